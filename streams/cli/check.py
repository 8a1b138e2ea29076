"""`headrace check`: what Headrace makes of one robots.txt, URL, page or sitemap; whether a crawl's index is right."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from infra.settings import Settings, product_token
from schemas.records import BodyRef, Kind, ParseTask, RobotsDecision
from streams.cli.crawl import add_identity, add_network, settings_of
from streams.cli.seeds import url_of
from streams.cli.shell import Shell
from streams.cli.sources import Input, hint, is_url, read_local, read_url
from streams.cli.words import instant, printable
from streams.core.failures import EXIT_DONE, EXIT_FAILED, UsageError
from streams.core.policy import URL_BYTES_MAX
from streams.core.rules import robots, sitemaps, traps, urls
from streams.core.rules.addresses import literal_address, refusal

EXAMPLES = """
  headrace check robots https://example.org --url https://example.org/private/ --user-agent MyBot
  headrace check robots robots.txt --url /a --url /b          paths of one file
  headrace check url '../a?x=%7e#top' --base https://Example.org:443/b/c
  headrace check page page.html --url https://example.org/page.html --json
  headrace check sitemap https://example.org/sitemap.xml
  headrace check index DIR                 a crawl's index against its URLs; --rebuild makes it anew from them
  curl -s https://example.org | headrace check page - --url https://example.org/

A URL that is refused is exit code 1.
A SOURCE is a file, a URL or - for stdin. A URL is asked once, by the crawl's own fetcher and its address rules.
"""

KINDS = ("robots", "url", "page", "sitemap", "index")
ROWS_SHOWN_MAX = 40
FILE_BASE = "https://site.invalid"  # stands for the site when only paths are asked about
_NOWHERE = BodyRef("", 0, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", metavar="KIND", help=", ".join(KINDS))
    add("source", metavar="SOURCE", help="a file, a URL or - ; for url: the href itself; for index: a crawl's folder")
    add(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="where a page or sitemap was found; what to ask robots.txt",
    )
    add("--base", metavar="URL", help="url: the page in which the href stands")
    add("--content-type", metavar="TYPE", help="page, sitemap: as the server sent it")
    add("--rebuild", action="store_true", help="index: make it anew from the folder's URLs")
    add_identity(parser)
    add_network(parser)
    add("--json", action="store_true", help="one JSON object; nothing is left out of it")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    checks = {"robots": _robots, "url": _url, "page": _page, "sitemap": _sitemap, "index": _index}
    if arguments.what not in checks:
        raise UsageError(f'check: needed one of {", ".join(KINDS)}, came "{arguments.what}"')
    settings = settings_of(arguments, shell)
    found = checks[arguments.what](arguments, settings, shell)
    if arguments.json:
        shell.print(msgspec.json.encode(found).decode())
    else:
        for line in lines(found):
            shell.print(line)
    return EXIT_FAILED if found.get("refused") else EXIT_DONE


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A mapping of any depth for people: long lists are cut, what is empty is left out."""
    width = max((len(str(key)) for key, value in found.items() if _shown(value)), default=0)
    for key, value in found.items():
        if not _shown(value):
            continue
        label = f"{str(key).replace('_', ' '):<{width}}"
        if not isinstance(value, list):
            yield f"{label}  {_plain(value)}"
            continue
        yield f"{label}  {len(value):,}"
        yield from (f"  {_plain(row)}" for row in value[:ROWS_SHOWN_MAX])
        if len(value) > ROWS_SHOWN_MAX:
            yield f"  and {len(value) - ROWS_SHOWN_MAX:,} more; --json shows all"


def _shown(value: Any) -> bool:
    return value is not None and value not in ("", [], {}, ())


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return _row(value) if "url" in value else ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return " ".join(_plain(inner) for inner in value)
    return printable(str(value).replace("\n", " "))


def _row(row: Mapping[str, Any]) -> str:
    """One URL with what is said of it, as `https://a.example/  kind a, rel nofollow`."""
    parts = [
        key if inner is True else _plain(inner) if key == "rule" else f"{key} {_plain(inner)}"
        for key, inner in row.items()
        if key not in ("url", "allowed") and _shown(inner) and inner is not False
    ]
    verdict = f"{'allowed' if row['allowed'] else 'disallowed':<12}" if "allowed" in row else ""
    return verdict + _plain(row["url"]) + ("  " + ", ".join(parts) if parts else "")


# --- robots -------------------------------------------------------------------------------------------------------


def _robots(arguments: argparse.Namespace, settings: Settings, shell: Shell) -> dict[str, Any]:
    token = product_token(settings.crawl)
    base = FILE_BASE
    meaning: str | None = None
    if is_url(arguments.source):
        source = _robots_url(arguments.source)
        base = source.removesuffix("/robots.txt")
        answer = read_url(source, Kind.ROBOTS, settings, shell.now_ms).result
        assert answer is not None, "a fetched input has a result"
        assert answer.robots is not None, "a robots lease has a robots answer"
        decision = answer.robots.decision
        rules = robots.RobotsRules()
        if decision is RobotsDecision.PARSE_RULES:
            decoded = robots.RobotsRules.decode(answer.robots.rules)
            rules = msgspec.structs.replace(decoded, sitemaps=answer.robots.sitemaps)
        said = f"{answer.status} {answer.error}".removeprefix("0 ").strip()
        meaning = {
            RobotsDecision.PARSE_RULES: f"{said}: its rules hold",
            RobotsDecision.ALLOW_ALL: f"{said}: there are no rules, everything may be asked",
            RobotsDecision.DISALLOW_ALL: f"{said}: it cannot be reached, until then nothing may be asked{hint(answer)}",
        }.get(decision, said)
        asked = [_verdict(rules, decision, url) for url in _asked(arguments.url, base)]
    else:
        body = read_local(arguments.source, shell).body
        named = next((url for url in arguments.url if is_url(url)), None)
        site = named and url_of(named)[0]
        base = urls.host_key(site) if site else FILE_BASE
        rules = robots.parse(body, token, base_url=f"{base}/robots.txt")
        asked = [_verdict(rules, RobotsDecision.PARSE_RULES, url) for url in _asked(arguments.url, base)]
    return {
        "answer": meaning,
        "for": token,
        "urls": asked,
        "rules": len(rules.rules),
        "crawl_delay_s": None if rules.crawl_delay_ms is None else rules.crawl_delay_ms / 1_000,
        "sitemaps": list(rules.sitemaps),
    }


def _verdict(rules: robots.RobotsRules, decision: RobotsDecision, url: str) -> dict[str, Any]:
    if decision is RobotsDecision.DISALLOW_ALL:
        return {"url": url, "allowed": False, "rule": "robots.txt cannot be reached"}
    return {"url": url, "allowed": rules.allows(url), "rule": rules.deciding_rule(url) or "no rule matches"}


def _asked(words: list[str], base: str) -> Iterator[str]:
    for word in words:
        url = urls.normalize(word, base + "/")
        if url is None:
            raise UsageError(f'--url: needed a URL or a path, came "{printable(word)}"')
        yield url


def _robots_url(source: str) -> str:
    url, problem = url_of(source)
    if url is None:
        raise UsageError(problem)
    return url if urlsplit(url).path == "/robots.txt" else urls.host_key(url) + "/robots.txt"


# --- url ----------------------------------------------------------------------------------------------------------


def _url(arguments: argparse.Namespace, settings: Settings, shell: Shell) -> dict[str, Any]:
    base = None
    if arguments.base is not None:
        base, problem = url_of(arguments.base)
        if base is None:
            raise UsageError(f"--base: {problem}")
    url = urls.normalize(arguments.source, base)
    if url is None:
        return {"href": arguments.source, "normalized": None, "refused": _why_refused(arguments.source, base)}
    literal = literal_address(urls.host_name(urls.host_key(url)))
    return {
        "href": arguments.source,
        "normalized": url,
        "host_key": urls.host_key(url),
        "url_id": urls.url_id(url).hex(),
        "template": traps.template(url),
        "trap": traps.url_trap(url),
        "address": None if literal is None else refusal(literal) or "public",
    }


def _why_refused(href: str, base: str | None) -> str:
    """The reason that a seed would be given, or what its resolution comes to."""
    href = href.strip()
    as_seed, problem = url_of(href)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", href):
        return problem or f"it is no http or https URL; as a seed it would be {as_seed}"
    if base is not None:
        return f"with --base it comes to no URL: longer than {URL_BYTES_MAX:,} bytes, or its host or port is not one"
    if as_seed is None:
        return f"it is relative and has no --base, and as a seed: {problem}"
    return f"it is relative and has no --base; as a seed it would be {as_seed}"


# --- page and sitemap ---------------------------------------------------------------------------------------------


def _input(arguments: argparse.Namespace, kind: Kind, settings: Settings, shell: Shell) -> tuple[Input, str]:
    """The input and the URL that it stands for."""
    if len(arguments.url) > 1:
        raise UsageError(f"check {arguments.what}: needed one --url, came {len(arguments.url)}")
    named = arguments.url[0] if arguments.url else None
    if is_url(arguments.source):
        found = read_url(arguments.source, kind, settings, shell.now_ms)
        named = named or found.url
    else:
        if named is None:
            if arguments.source != "-":
                read_local(arguments.source, shell)  # one that is not there is the first thing to be put right
            raise UsageError(
                f"check {arguments.what}: a file does not say where it was found; add --url https://example.org/..."
            )
        found = read_local(arguments.source, shell)
    assert named is not None, "a fetched input has a URL"
    url, problem = url_of(named)
    if url is None:
        raise UsageError(f"--url: {problem}")
    return found, url


def _page(arguments: argparse.Namespace, settings: Settings, shell: Shell) -> dict[str, Any]:
    from streams.core.parse import describe, parse_page

    found, url = _input(arguments, Kind.PAGE, settings, shell)
    now_ms = shell.now_ms()
    task = ParseTask(
        url_id=urls.url_id(url),
        host_key=urls.host_key(url),
        url=url,
        url_version=1,
        kind=Kind.PAGE,
        content=_NOWHERE,
        fetched_ms=now_ms,
        depth=0,
        extractor_version=1,
        content_type=arguments.content_type or found.content_type,
        robots_tags=found.robots_tags,
        link_headers=found.link_headers,
    )
    parsed = parse_page(
        task,
        found.body,
        limits=settings.parse,
        product_token=product_token(settings.crawl),
        now_ms=now_ms,
        with_resources=True,
    )
    return describe(parsed)


def _sitemap(arguments: argparse.Namespace, settings: Settings, shell: Shell) -> dict[str, Any]:
    found, url = _input(arguments, Kind.SITEMAP, settings, shell)
    content_type = arguments.content_type or found.content_type
    read = sitemaps.read(found.body, url=url, content_type=content_type, limits=settings.parse)
    return {
        "url": url,
        "type": read.type,
        "errors": list(read.errors),
        "not_taken": [{"url": loc, "error": error} for error, loc in read.not_taken],
        "urls": [_entry(entry.url, entry.lastmod_ms) for entry in read.entries],
        "children": [_entry(entry.url, entry.lastmod_ms) for entry in read.children],
    }


def _index(arguments: argparse.Namespace, settings: Settings, shell: Shell) -> dict[str, Any]:
    from infra.index_check import check_index

    report = check_index(Path(arguments.source), rebuild=arguments.rebuild, now_ms=shell.now_ms())
    found = dict(msgspec.to_builtins(report))
    if not report.loaded_rows_per_s:
        del found["loaded_rows_per_s"]
    if report.stale or (report.missing and report.whole):
        again = f"headrace check index {arguments.source} --rebuild"
        found["refused"] = f"the index is not what the URLs say; {again} makes it anew"
    elif not report.whole:
        found["note"] = "the next crawl in this folder loads what is missing"
    return found


def _entry(url: str, lastmod_ms: int | None) -> dict[str, Any]:
    return {"url": url, "lastmod": None if lastmod_ms is None else instant(lastmod_ms)}
