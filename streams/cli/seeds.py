"""Where a crawl starts: URLs, files of URLs and sitemaps from the command line, made into `DiscoveredUrl`s.

A word of the command line is, in this order: `-` (stdin), a URL with a scheme, an existing file, or a bare name such as
`example.org/docs`, which gets `https://` (`http://` on loopback, where nobody has a certificate). In a file one line is
one URL; blank lines and what follows a `#` at the line's start or after a blank are left out. UTF-8, or UTF-16 with its
mark, as some editors on Windows save it.
"""

from __future__ import annotations

import codecs
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from schemas.records import DiscoveredUrl, Kind, Source
from streams.cli.words import count, shorten
from streams.core.failures import UsageError
from streams.core.policy import URL_BYTES_MAX
from streams.core.rules.urls import host_key, normalize, path_and_query

__all__ = ["is_file_word", "judged", "read_seeds", "seed_of", "url_of"]

BAD_SEEDS_SHOWN_MAX = 10
FILE_BYTES_MAX = 1 << 30  # ten million seeds of a hundred characters; more are the matter of a feed
PRIORITY_SEED = 192

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PORT_FOLLOWS = re.compile(r"[^/:?#]+:[0-9]{1,5}(?:[/?#]|$)")
_SITEMAP = re.compile(r"sitemap[^/]*\.xml(?:\.gz)?$", re.IGNORECASE)
_FILE_ENDING = re.compile(r"\.(?:txt|csv|tsv|list|lst|urls?|jsonl?|toml|ya?ml|log|gz)$", re.IGNORECASE)


class _Line(NamedTuple):
    text: str
    where: str  # "", "seeds.txt line 3", "stdin line 3"


def read_seeds(
    words: Iterable[str],
    sitemaps: Iterable[str] = (),
    *,
    stdin: Callable[[], BinaryIO],
    now_ms: int,
) -> list[DiscoveredUrl]:
    """All seeds in the order given, each URL once. Raises `UsageError` that lists the first ten that are none."""
    seeds: dict[str, DiscoveredUrl] = {}
    bad: list[str] = []
    bad_count = 0
    for line, forced in _lines(words, sitemaps, stdin):
        url, problem = url_of(line.text)
        if url is None:
            bad_count += 1
            if len(bad) < BAD_SEEDS_SHOWN_MAX:
                bad.append(f"{line.where}: {problem}" if line.where else problem)
            continue
        seeds[url] = seed_of(url, now_ms, sitemap=forced)  # a --sitemap comes last, and stands
    if bad_count:
        raise UsageError(_refusal(bad, bad_count))
    return list(seeds.values())


def url_of(text: str) -> tuple[str | None, str]:
    """The normal form of a seed, or None and what is wrong with it."""
    url, what, came = judged(text)
    if url is not None:
        return url, ""
    shown = f'"{shorten(text, 100)}"'
    needed = "needed a URL such as https://example.org/docs"
    return None, f"{shown} {what}: {needed}{came}"


def judged(text: str) -> tuple[str | None, str, str]:
    """The normal form of a seed; or None, what it is not, and why, in words that are alike for alike mistakes."""
    if not text or " " in text or not text.isprintable():  # every blank but this one is unprintable
        return None, "is no URL", ", came a blank or control character in it"
    scheme = _SCHEME.match(text)
    if scheme is not None and _PORT_FOLLOWS.match(text) is None:
        if scheme.group().lower() not in ("http:", "https:"):
            return None, "is no web address", f", came the scheme {scheme.group()}"
        if text[scheme.end() : scheme.end() + 2] != "//":
            return None, "is no URL", f", came no // after {scheme.group()}"
    else:
        text = _with_scheme(text)
        authority = re.split(r"[/\\?#]", text.partition("://")[2], maxsplit=1)[0]
        if "[" not in authority and not _is_name(authority):
            return None, "is neither a URL nor an existing file", ", or a file of them"
    url = normalize(text)
    if url is None:
        too_long = len(text.encode("utf-8", "surrogatepass")) > URL_BYTES_MAX
        why = f"it is longer than {URL_BYTES_MAX:,} bytes" if too_long else "its host or port is not one"
        return None, "is no URL", f"; {why}"
    return url, "", ""


def seed_of(url: str, now_ms: int, *, sitemap: bool = False) -> DiscoveredUrl:
    """A seed by its normal form; one that is named like a sitemap is taken for one."""
    return _seed(url, sitemap or _SITEMAP.search(path_and_query(url).partition("?")[0]) is not None, now_ms)


def _seed(url: str, sitemap: bool, now_ms: int) -> DiscoveredUrl:
    return DiscoveredUrl(
        url=url,
        host_key=host_key(url),
        source=Source.SITEMAP if sitemap else Source.SEED,
        discovered_ms=now_ms,
        priority_hint=PRIORITY_SEED,
        kind=Kind.SITEMAP if sitemap else Kind.PAGE,
    )


def _lines(
    words: Iterable[str], sitemaps: Iterable[str], stdin: Callable[[], BinaryIO]
) -> Iterator[tuple[_Line, bool]]:
    for word in words:
        if word == "-":
            yield from ((line, False) for line in _decoded(stdin().read(FILE_BYTES_MAX + 1), "stdin"))
        elif is_file_word(word):
            yield from ((line, False) for line in _decoded(_read(Path(word)), word))
        else:
            yield _Line(word.strip(), ""), False
    for word in sitemaps:
        yield _Line(word.strip(), "--sitemap"), True


def is_file_word(word: str) -> bool:
    """Whether a word of the command line is a file that exists. Raises UsageError for one that should."""
    if "://" in word:
        return False
    if _exists(word):
        return True
    if word.startswith(("./", "../", "/", "~")) or _FILE_ENDING.search(word):
        raise UsageError(f'"{word}": no such file; needed a URL, or a file with one URL a line')
    return False


def _exists(word: str) -> bool:
    try:
        return bool(word) and Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or a NUL in it: no file, perhaps a URL
        return False


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror}); needed a file with one URL a line") from error


def _decoded(data: bytes, name: str) -> Iterator[_Line]:
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{name}: needed at most {FILE_BYTES_MAX >> 20} MiB of seeds, came more; split the file")
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name} line {line}: needed text in UTF-8, came other bytes; save it as UTF-8") from error
    for number, raw in enumerate(re.split("\r\n|\r|\n", text), 1):
        seed = re.sub(r"(?:^|\s)#.*", "", raw).strip()
        if seed:
            yield _Line(seed, f"{name} line {number}")


def _with_scheme(text: str) -> str:
    host = re.split("[/?#]", text.removeprefix("//"), maxsplit=1)[0]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        loopback = ipaddress.ip_address(name).is_loopback
    except ValueError:
        loopback = name.lower() == "localhost" or name.lower().endswith(".localhost")
    return ("http://" if loopback else "https://") + text.removeprefix("//")


def _is_name(authority: str) -> bool:
    name = authority.rpartition("@")[2].partition(":")[0]
    return ("." in name.strip(".") or name.lower() == "localhost") and not name.startswith(".")


def _refusal(bad: list[str], bad_count: int) -> str:
    if bad_count == 1:
        return bad[0]
    more = "" if bad_count == len(bad) else f"\n  and {bad_count - len(bad):,} more"
    return f"{count(bad_count, 'seed')} are not usable, nothing was started:\n  " + "\n  ".join(bad) + more
