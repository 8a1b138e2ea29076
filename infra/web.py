"""The fetcher as the settings want it: who asks, which addresses may be asked, how names are found."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from connectors.resolver import Resolver
from connectors.web_http import HttpWeb
from infra.settings import Dns, Settings, user_agent_header
from streams.core import fetch
from streams.core.policy import FetchLimits
from streams.core.rules.addresses import Network

__all__ = ["allowed_networks", "open_web", "overrides", "version"]


def open_web(settings: Settings, now_ms: Callable[[], int], may_start: Callable[[], bool] = lambda: True) -> HttpWeb:
    """Made while an event loop runs; closing it closes its resolver."""
    allowed = allowed_networks(settings)
    resolver = Resolver(now_ms=now_ms, servers=settings.dns.servers, overrides=overrides(settings.dns), allowed=allowed)
    limits = FetchLimits(**{name: getattr(settings.fetch, name) for name in FetchLimits.__struct_fields__})
    return HttpWeb(
        agent=fetch.agent(user_agent_header(settings.crawl, version())),
        resolver=resolver,
        now_ms=now_ms,
        limits=limits,
        allowed=allowed,
        connections_max=settings.crawl.fetch_concurrency,
        may_start=may_start,
    )


def allowed_networks(settings: Settings) -> tuple[Network, ...]:
    """The networks that may be asked although they are not public."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in settings.crawl.allow_addresses)


def overrides(dns: Dns) -> dict[str, Sequence[str]]:
    """`NAME=ADDR` settings by name; one name may have several addresses."""
    found: dict[str, list[str]] = {}
    for entry in dns.resolve:
        name, _, address = entry.partition("=")
        found.setdefault(name, []).append(address.removeprefix("[").removesuffix("]"))
    return dict(found)


def version() -> str:
    """Of the installed package, or of the checkout that this file lies in."""
    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:
        project = Path(__file__).resolve().parent.parent / "pyproject.toml"
        return str(tomllib.loads(project.read_text("utf-8"))["project"]["version"])
