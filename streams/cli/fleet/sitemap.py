"""`headrace sitemap`: what a sitemap names, into a fleet; a file is read here, a URL is left to the crawl's manners."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import msgspec

from infra.settings import Settings, load
from schemas.records import Kind, ParsedPage
from streams.cli.fleet.refused import Refused
from streams.cli.fleet.sending import Item, add_sending, send_all
from streams.cli.seeds import is_file_word, seed_of, url_of
from streams.cli.shell import Shell
from streams.cli.sources import read_local
from streams.cli.words import count
from streams.core.failures import UsageError
from streams.core.route import route
from streams.core.rules import sitemaps
from streams.core.rules.urls import host_key, url_id

EXAMPLES = """
  headrace sitemap https://example.org/sitemap.xml      the fleet fetches it: robots.txt first, one request, at its pace
  headrace sitemap export.xml.gz                        read here; its pages, and the sitemaps of an index, are sent
  headrace sitemap page-3.xml --url https://example.org/page-3.xml
  curl -s https://example.org/feed | headrace sitemap - --dry-run

What counts is what the file is: urlset, index, RSS, Atom or one URL a line, gzipped or not, 50,000 entries and 50 MB at
most. With --url it may name pages of its own host only, as the protocol has it; without, you vouch for all it names.
Exit codes: 0 all of it is acknowledged, 1 something was refused or Kafka is away, 2 bad input, 130 stopped.
"""

_NOWHERE = "https://site.invalid/"  # RFC 6761: no host has that name
_WORDS = {
    "bad_loc": "no URL that can be fetched",
    "cross_host": "of another host than its sitemap (without --url you vouch for it)",
    "too_many_urls": "beyond the entries that one sitemap may have; split it",
    "relative": "relative, and nobody said to what: --url",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sitemaps", nargs="+", metavar="URL|FILE|-", help="a sitemap or feed, or an index of them")
    parser.add_argument("--url", metavar="URL", help="where the file lies on its site")
    add_sending(parser)


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    words = [word.strip() for word in arguments.sitemaps]
    files = {word for word in words if word == "-" or is_file_word(word)}
    for word in words:
        if word not in files and "/" not in word and word.lower().endswith(".xml"):
            raise UsageError(f'"{word}": no such file; needed a sitemap\'s URL, or a file')
    if arguments.url is not None and (len(words) != 1 or not files):
        raise UsageError("sitemap --url: needed one FILE or -, whose URL it is")
    if words.count("-") > 1:
        raise UsageError("sitemap: needed - once, came it twice; stdin can be read once")
    urls = {word: _url(word) for word in words if word not in files}
    at = None if arguments.url is None else _url(arguments.url)
    settings = load(config=arguments.config, environ=shell.environ)
    files_read = {word: _read(word, at, settings, shell) for word in sorted(files)}

    def items(stopped: Callable[[], bool]) -> Iterator[Item]:
        for word in words:
            if word in urls:
                yield seed_of(urls[word], shell.now_ms(), sitemap=True)
            else:
                yield from _items(files_read[word], word, at, shell)

    return send_all(items, arguments, shell, noun="entry" if files else "sitemap")


def _url(text: str) -> str:
    url, problem = url_of(text)
    if url is None:
        raise UsageError(problem)
    return url


def _read(word: str, at: str | None, settings: Settings, shell: Shell) -> sitemaps.Sitemap:
    """The file as the crawl would read it. Raises UsageError when it is no sitemap at all."""
    body = read_local(word, shell).body
    read = sitemaps.read(
        body,
        url=_NOWHERE if at is None else at,
        content_type=None,
        limits=settings.parse,
        trusted_hosts=None if at is None else frozenset(),
    )
    name = "stdin" if word == "-" else word
    if read.type in ("invalid", "refused"):
        raise UsageError(
            f"{name}: needed a sitemap (urlset, index, RSS, Atom, or one URL a line), came none that can be read"
            f" ({', '.join(read.errors) or read.type}); headrace check sitemap {word} shows more"
        )
    notes = [error for error in read.errors if error not in _WORDS]
    shell.say(
        f"{name}: {read.type}, {count(len(read.entries), 'page')}, {count(len(read.children), 'sitemap')}"
        + (f"; not all of it could be read: {', '.join(notes)}" if notes else "")
    )
    return read


def _items(read: sitemaps.Sitemap, word: str, at: str | None, shell: Shell) -> Iterator[Item]:
    """Its pages and sitemaps as any router finds them, then what it names in vain."""
    name = "stdin" if word == "-" else word
    url = _NOWHERE if at is None else at
    for found in route(_page(read, url), now_ms=shell.now_ms()).values():
        for one in found:
            if one.host_key == host_key(_NOWHERE):
                yield Refused(name, one.url.removeprefix(_NOWHERE[:-1]), _WORDS["relative"])
            else:
                yield one if at is not None else msgspec.structs.replace(one, parent_id=b"", trusted_hosts=())
    shown: dict[str, int] = {}
    for error, loc in read.not_taken:
        shown[error] = shown.get(error, 0) + 1
        yield Refused(name, loc, _WORDS.get(error, error))
    for error, number in read.not_taken_counts:
        for _ in range(number - shown.get(error, 0)):
            yield Refused(name, "", _WORDS.get(error, error))


def _page(read: sitemaps.Sitemap, url: str) -> ParsedPage:
    return ParsedPage(
        url_id=url_id(url),
        host_key=host_key(url),
        url=url,
        url_version=0,
        kind=Kind.SITEMAP,
        depth=0,
        fetched_ms=0,
        extractor_version=0,
        entries=(*read.entries, *read.children),
        sitemap_type=read.type,
    )
