"""The input of a check: a file, stdin, or a URL that is asked once, by the crawl's own fetcher and address rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from connectors.ports import Fetched, Web
from infra.settings import Settings
from schemas.records import FetchLease, FetchResult, Kind, Outcome, RobotsDecision
from streams.cli.seeds import url_of
from streams.cli.shell import Shell
from streams.core.failures import EXIT_FAILED, CrawlError, UsageError
from streams.core.policy import REDIRECT_HOPS_MAX, ROBOTS_HOPS_MAX
from streams.core.rules.urls import host_key, url_id

__all__ = ["Input", "hint", "is_url", "read_local", "read_url"]

INPUT_BYTES_MAX = 1 << 28


class Input(msgspec.Struct, frozen=True):
    """What a check reads. `result` is None when it came of a file or stdin."""

    body: bytes
    url: str | None = None  # normal form, after redirects
    content_type: str | None = None
    robots_tags: tuple[str, ...] = ()
    link_headers: tuple[str, ...] = ()
    result: FetchResult | None = None


def is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def read_local(source: str, shell: Shell) -> Input:
    """A file, or `-` for stdin. Raises `UsageError`."""
    try:
        if source == "-":
            body = shell.stdin.read(INPUT_BYTES_MAX + 1)
        else:
            with Path(source).open("rb") as stream:
                body = stream.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}); needed a file, a URL or - for stdin") from error
    if len(body) > INPUT_BYTES_MAX:
        raise UsageError(f"{source}: needed at most {INPUT_BYTES_MAX >> 20} MiB, came more")
    return Input(body)


def read_url(source: str, kind: Kind, settings: Settings, now_ms: Callable[[], int]) -> Input:
    """Ask for a URL and follow its redirects, each a request of its own and one delay apart. Raises `CrawlError`."""
    url, problem = url_of(source)
    if url is None:
        raise UsageError(problem)
    fetched = asyncio.run(_ask(url, kind, settings, now_ms))
    result, response = fetched.result, fetched.response
    if kind is not Kind.ROBOTS and response is None:
        said = f"{result.status} {result.error}".removeprefix("0 ").strip()
        todo = hint(result)
        raise CrawlError(
            f"{result.url}: needed an answer with a body, came {said or result.outcome.value}{todo}", EXIT_FAILED
        )
    headers = response.headers if response is not None else ()
    return Input(
        body=response.body if response is not None else b"",
        url=result.url,
        content_type=result.content_type,
        robots_tags=_values(headers, b"x-robots-tag"),
        link_headers=_values(headers, b"link"),
        result=result,
    )


async def _ask(url: str, kind: Kind, settings: Settings, now_ms: Callable[[], int]) -> Fetched:
    from infra.web import open_web

    web: Web = open_web(settings, now_ms)
    hops_max = ROBOTS_HOPS_MAX if kind is Kind.ROBOTS else REDIRECT_HOPS_MAX
    not_before_ms = now_ms()
    try:
        for hops in range(hops_max + 1):
            fetched = await web.fetch(_lease(url, kind, hops, not_before_ms, settings))
            target = _next(fetched.result)
            if target is None:
                return fetched
            url, not_before_ms = target, fetched.result.finished_ms + settings.politeness.delay_ms
    finally:
        await web.close()
    raise CrawlError(f"{url}: needed an answer within {hops_max} redirects, came another redirect", EXIT_FAILED)


def _next(result: FetchResult) -> str | None:
    if result.robots is not None:
        return result.redirect_target if result.robots.decision is RobotsDecision.HOP else None
    return result.redirect_target if result.outcome is Outcome.REDIRECT else None


def _lease(url: str, kind: Kind, hops: int, not_before_ms: int, settings: Settings) -> FetchLease:
    return FetchLease(
        lease_id=bytes(16),
        host_key=host_key(url),
        url_id=url_id(url),
        url=url,
        url_version=1,
        kind=kind,
        attempt=0,
        policy_version=0,
        owner_epoch=0,
        not_before_ms=not_before_ms,
        start_by_ms=not_before_ms + 60_000,
        duration_ms_max=settings.fetch.duration_ms_max,
        redirect_hops=hops,
    )


def _values(headers: tuple[tuple[bytes, bytes], ...], name: bytes) -> tuple[str, ...]:
    return tuple(value.decode("latin-1") for key, value in headers if key.lower() == name)


def hint(result: FetchResult) -> str:
    """What to do about an address that was refused; "" for anything else."""
    if result.error == "private_address":
        return f"; {result.address} is not a public address, allow it with --allow-address {result.address}"
    return ""
