"""`headrace explain --fleet`: the owner of a host is asked, at its worker's page."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from infra.settings_fleet import Fleet
from schemas.topics import OWNER_PAGES, partition_for
from streams.cli.fleet.clients import fleet_of, open_reader, partitions_of
from streams.cli.shell import Shell
from streams.core.failures import EXIT_FAILED, CrawlError, UsageError
from streams.core.rules.urls import host_key, normalize

if TYPE_CHECKING:
    from connectors.owner_page import OwnerPage

__all__ = ["explain"]

TOPIC = "discovered-urls"  # any co-partitioned one tells how hosts are dealt
UNKNOWN = ("the crawl does not know this host", "it would be admitted", "it would not be admitted")  # by its owner


def explain(what: str, arguments: argparse.Namespace, shell: Shell) -> list[tuple[str, str]]:
    """(label, sentence) of all owners that may know of it, the decisive one first. Raises CrawlError."""
    fleet = fleet_of(arguments, shell)
    partitions_of(OWNER_PAGES, fleet, shell)
    count = partitions_of(TOPIC, fleet, shell)
    asked = {partition_for(key, count): text for key, text in reversed(_keys(what))}
    known: list[list[tuple[str, str]]] = []
    unknown: list[list[tuple[str, str]]] = []
    for partition, text in reversed(asked.items()):
        said = _ask(partition, text, fleet, shell)
        (known if _knows(said) else unknown).append(said)
    # Of two owners, one of http and one of https, the one that knows the host has the answer.
    return [row for said in known or unknown[:1] for row in said]


def _keys(what: str) -> list[tuple[str, str]]:
    """(host_key, what its owner is asked), the likelier first. A bare name may be either scheme's."""
    if "://" in what:
        url = normalize(what)
        if url is None:
            raise UsageError(f"explain: needed a URL or a host, came {what!r}; try https://example.org/page")
        return [(host_key(url), what)]
    keys = []
    for scheme in ("https", "http"):
        url = normalize(f"{scheme}://{what}")
        if url is None:
            raise UsageError(f"explain: needed a URL or a host, came {what!r}; try example.org")
        keys.append((host_key(url), what if url == host_key(url) + "/" else url))
    return keys


def _ask(partition: int, what: str, fleet: Fleet, shell: Shell) -> list[tuple[str, str]]:
    """The answer of the partition's owner; once more where the owner has changed between look and question."""
    from connectors.owner_page import NotTheOwner

    first = _owner(partition, fleet, shell)
    try:
        answer = shell.fleet.ask_owner(first, what)
    except NotTheOwner:
        second = _owner(partition, fleet, shell)
        if second == first:
            raise
        answer = shell.fleet.ask_owner(second, what)
    return list(answer.because)


def _owner(partition: int, fleet: Fleet, shell: Shell) -> OwnerPage:
    from connectors.owner_page import pages

    reader = open_reader(fleet, shell)
    try:
        found = pages(reader)
    finally:
        reader.close()
    if partition not in found:
        raise CrawlError(
            f"kafka at {','.join(fleet.kafka)}: needed the owner of partition {partition}, but none has taken it over"
            " yet; start a worker with the stage owner: faust -A streams.app worker",
            EXIT_FAILED,
        )
    return found[partition]


def _knows(said: list[tuple[str, str]]) -> bool:
    return not any(mark in sentence for _, sentence in said[:1] for mark in UNKNOWN)
