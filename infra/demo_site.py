"""The pages of the demo's web: eight small sites, each with something that a crawler must get right.

Pure: `answer(request)` says what a site answers; `infra.demo_web` serves it and keeps the log. The text is made from a
digest of the URL, so that every run serves the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

__all__ = [
    "FORBIDDEN",
    "HOSTS",
    "SEED_HOST",
    "Answer",
    "Asked",
    "answer",
    "crawl_delay_ms",
    "disallowed",
]

SEED_HOST = "library.demo.test"
FORBIDDEN = ("quiet.demo.test", "/private/1")  # linked, and denied by robots.txt
BOOKS = 48  # 0.15 s apart: some eight seconds
MIRRORED = 12  # books that the mirror serves byte for byte
ARTICLES = 24
SLOW_MS = 600
SLOW_PAGES = 12
RETRY_AFTER_S = 2
_VOCABULARY = (
    "water mill wheel race weir sluice gate grain stone flour river bank meadow bridge lantern copper ledger harbour"
    " signal orchard valley winter summer letter paper press type margin chapter index shelf reader garden window"
    " market square tower clock bell quarry slate timber rope canvas compass chart island current tide shore"
)
WORDS = _VOCABULARY.split()


class Asked(msgspec.Struct, frozen=True):
    """One request. `number` counts the host's requests from 0."""

    host: str
    path: str
    number: int
    port: int
    if_none_match: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """What is sent, after `after_ms`."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    after_ms: int = 5


def answer(asked: Asked) -> Answer:
    """What a site answers. An entity tag that still holds turns it into a 304."""
    site = HOSTS.get(asked.host)
    if site is None:
        return Answer(421, b"no such site\n", "text/plain")
    given = _robots(asked) if asked.path == "/robots.txt" else site(asked)
    if given.status != 200:
        return given
    tag = f'"{hashlib.sha256(given.body).hexdigest()[:16]}"'
    headers = (*given.headers, ("ETag", tag))
    if asked.if_none_match == tag:
        return Answer(304, b"", "", headers, given.after_ms)
    return msgspec.structs.replace(given, headers=headers)


def crawl_delay_ms(host: str) -> int:
    """What the host's robots.txt asks for, 0 for nothing."""
    return 1_000 if host == "quiet.demo.test" else 0


def disallowed(host: str, path: str) -> bool:
    """What the host's robots.txt forbids to everybody."""
    return any(path.startswith(prefix) for prefix in _DISALLOWED.get(host, ()))


_DISALLOWED = {"quiet.demo.test": ("/private/",), "shop.demo.test": ("/basket",)}


def _robots(asked: Asked) -> Answer:
    lines = ["User-agent: *"]
    lines += [f"Disallow: {prefix}" for prefix in _DISALLOWED.get(asked.host, ())]
    if delay_ms := crawl_delay_ms(asked.host):
        lines.append(f"Crawl-delay: {delay_ms // 1_000}")
    if asked.host == "news.demo.test":
        lines.append(f"Sitemap: {_url(asked, asked.host, '/sitemap.xml')}")
    return Answer(body="\n".join([*lines, ""]).encode(), content_type="text/plain; charset=utf-8")


def _library(asked: Asked) -> Answer:
    if asked.path == "/":
        others = [(_url(asked, host, "/"), host) for host in HOSTS if host != asked.host]
        return _page(asked, "The library", [*others, *((f"/books/{n}", f"Book {n}") for n in range(0, BOOKS, 6))])
    return _book(asked, BOOKS)


def _mirror(asked: Asked) -> Answer:
    if asked.path == "/":
        return _page(asked, "A mirror of the library", [(f"/books/{n}", f"Book {n}") for n in range(MIRRORED)])
    return _book(asked, MIRRORED)


def _book(asked: Asked, books: int) -> Answer:
    """The same bytes on library and mirror: links are relative and the text hangs on the path alone."""
    number = _number(asked.path, "/books/")
    if number is None or number >= books:
        return _missing()
    links = [
        (f"{n}", f"Book {n}") for n in range(number + 1, number + 4) if n < (BOOKS if number >= MIRRORED else MIRRORED)
    ]
    return _page(msgspec.structs.replace(asked, host="books"), f"Book {number}", links)


def _news(asked: Asked) -> Answer:
    if asked.path == "/":
        return _page(asked, "The news", [(f"/articles/{n}", f"Article {n}") for n in range(6)])
    if asked.path == "/sitemap.xml":
        rows = "".join(
            f"<url><loc>{_url(asked, asked.host, f'/articles/{n}')}</loc>"
            f"<lastmod>2026-11-{n % 28 + 1:02}</lastmod></url>"
            for n in range(ARTICLES)
        )
        body = f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{rows}</urlset>'
        return Answer(body=body.encode(), content_type="application/xml")
    number = _number(asked.path, "/articles/")
    if number is None or number >= ARTICLES:
        return _missing()
    return _page(asked, f"Article {number}", [("/", "All the news")])


def _slow(asked: Asked) -> Answer:
    number = 0 if asked.path == "/" else _number(asked.path, "/pages/")
    if number is None or number >= SLOW_PAGES:
        return _missing()
    links = [(f"/pages/{n}", f"Page {n}") for n in range(1, SLOW_PAGES)]
    return msgspec.structs.replace(_page(asked, f"Slow page {number}", links), after_ms=SLOW_MS)


def _shop(asked: Asked) -> Answer:
    """A calendar without an end, and paths that grow by themselves: the trap."""
    if asked.path == "/":
        goods = [(f"/goods/{n}", f"Item {n}") for n in range(12)]
        return _page(asked, "The shop", [*goods, ("/calendar/2026/1", "Opening hours"), ("/basket?add=1", "Basket")])
    if asked.path.startswith("/calendar/"):
        year, _, month = asked.path.removeprefix("/calendar/").partition("/")
        if not (year.isascii() and year.isdigit() and month.isascii() and month.isdigit() and len(year) < 8):
            return _missing()
        following = int(year) * 12 + int(month)
        links = [(f"/calendar/{(following + n) // 12}/{(following + n) % 12 + 1}", "later") for n in range(6)]
        return _page(asked, f"Month {month} of {year}", links)
    number = _number(asked.path, "/goods/")
    if number is None or number >= 12:
        return _missing()
    return _page(asked, f"Item {number}", [("/", "The shop"), (f"{number}/more/more/more/more/more/more", "more")])


def _quiet(asked: Asked) -> Answer:
    if asked.path == "/" or ((number := _number(asked.path, "/notes/")) is not None and number < 6):
        notes = [(f"/notes/{n}", f"Note {n}") for n in range(6)]
        return _page(asked, "Quiet, please", [*notes, *((f"/private/{n}", "private") for n in range(4))])
    return _page(asked, "You should not be here", []) if asked.path.startswith("/private/") else _missing()


def _busy(asked: Asked) -> Answer:
    if asked.number == 3:
        return Answer(503, b"busy, come back later\n", "text/plain", (("Retry-After", str(RETRY_AFTER_S)),))
    if asked.path == "/" or ((number := _number(asked.path, "/tickets/")) is not None and number < 10):
        return _page(asked, "Busy", [(f"/tickets/{n}", f"Ticket {n}") for n in range(10)])
    return _missing()


def _old(asked: Asked) -> Answer:
    if asked.path == "/":
        links = [("/moved/1", "moved"), ("/circle/1", "in a circle"), ("/lost", "lost"), ("/gone", "gone")]
        return _page(asked, "The old site", links)
    if asked.path == "/gone":
        return Answer(410, b"gone\n", "text/plain")
    moved = {
        "/moved/1": "/moved/2",
        "/moved/2": "/moved/3",
        "/moved/3": _url(asked, SEED_HOST, "/books/1"),
        "/circle/1": "/circle/2",
        "/circle/2": "/circle/1",
    }
    target = moved.get(asked.path)
    return _missing() if target is None else Answer(301, b"", "", (("Location", target),))


HOSTS: dict[str, Callable[[Asked], Answer]] = {
    "library.demo.test": _library,
    "news.demo.test": _news,
    "slow.demo.test": _slow,
    "shop.demo.test": _shop,
    "mirror.demo.test": _mirror,
    "quiet.demo.test": _quiet,
    "busy.demo.test": _busy,
    "old.demo.test": _old,
}


def _page(asked: Asked, title: str, links: list[tuple[str, str]]) -> Answer:
    items = "".join(f'<li><a href="{href}">{text}</a>' for href, text in links)
    text = "".join(f"<p>{paragraph}</p>\n" for paragraph in _text(f"{asked.host}{asked.path}"))
    html = f'<!doctype html>\n<html lang="en"><title>{title}</title>\n<h1>{title}</h1>\n{text}<ul>{items}</ul></html>\n'
    return Answer(body=html.encode())


def _text(seed: str) -> list[str]:
    stream = hashlib.shake_128(seed.encode()).digest(600)
    words = [WORDS[byte % len(WORDS)] for byte in stream]
    return [" ".join(words[start : start + 60]).capitalize() + "." for start in range(0, len(words), 60)]


def _missing() -> Answer:
    return Answer(404, b"not found\n", "text/plain")


def _number(path: str, prefix: str) -> int | None:
    rest = path.removeprefix(prefix)
    return int(rest) if rest != path and rest.isascii() and rest.isdigit() and len(rest) < 9 else None


def _url(asked: Asked, host: str, path: str) -> str:
    return f"http://{host}:{asked.port}{path}"
