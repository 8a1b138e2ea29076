"""All URL rows are walked once, whatever their number and spread, in a real Cassandra: what a replay goes by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from cassandra import ConsistencyLevel

from connectors import cassandra_rows, url_walk
from connectors.cassandra_link import CassandraLink
from connectors.ports import UrlWrite
from connectors.url_state_cassandra import CassandraUrlState
from connectors.url_walk import UrlWalk
from infra.settings_fleet import Fleet
from infra.wiring_fleet import open_link
from schemas.records import Kind, Source
from streams.core.rows import UrlRow, decode_row, encode_row
from streams.core.rules.urls import host_key, url_id
from tests.services.conftest import Fleet as Services

HOSTS = 40
URLS = 30  # of most hosts
LARGE = 1_500  # of one


@pytest.fixture(scope="module")
def settings(fleet: Services) -> Fleet:
    """Tables of this module's own."""
    return fleet.keyspace("url_walk_test")


@pytest.fixture(scope="module")
def link(settings: Fleet) -> Iterator[CassandraLink]:
    """Filled once: hosts of some URLs, one of very many, a deleted row, and half a row that nobody must stumble on."""
    link = open_link(settings, print)
    state = CassandraUrlState(link)
    for host in range(HOSTS):
        urls = [f"http://h{host}.test/{n}" for n in range(LARGE if not host else URLS)]
        state.write([UrlWrite(host_key(url), url_id(url), _row(url)) for url in urls], epoch=1, version=host)
    strange = "http://h1.test/half"  # a later write of what was never admitted: a row without its URL
    state.write([UrlWrite(host_key(strange), url_id(strange), _row(strange, version=1))], epoch=1, version=1)
    gone = "http://h1.test/0"
    state.write([UrlWrite(host_key(gone), url_id(gone), None)], epoch=2, version=1)
    yield link
    link.close()


def _row(url: str, version: int = 0) -> bytes:
    return encode_row(UrlRow(url, Source.LINK, Kind.PAGE, 1, 0, b"", 128, 1, version=version))


def expected() -> set[str]:
    every = {f"http://h{host}.test/{n}" for host in range(HOSTS) for n in range(LARGE if not host else URLS)}
    return every - {"http://h1.test/0"}


@pytest.mark.parametrize("rows_max", [cassandra_rows.PAGE_ROWS_MAX, 7])
def test_every_row_is_walked_once(link: CassandraLink, rows_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects a replay from bodies that it misses at the edge of a page, and from reading one twice."""
    monkeypatch.setattr(url_walk, "PAGE_ROWS_MAX", rows_max)
    found = [decode_row(row).url for host, url_id_, row in UrlWalk(link).rows()]
    assert Counter(found) == Counter(expected())


def test_a_slice_with_more_partitions_than_an_answer_holds_is_halved(
    link: CassandraLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects the partitions behind the first page of a slice, which at production's size is every slice."""
    monkeypatch.setattr(url_walk, "SLICES", 2)
    asked = link.prepared(url_walk._PARTITIONS, ConsistencyLevel.QUORUM)
    monkeypatch.setattr(asked, "fetch_size", 20)
    found = [decode_row(row).url for _, _, row in UrlWalk(link).rows()]
    assert Counter(found) == Counter(expected())


def test_named_hosts_are_walked_alone(link: CassandraLink) -> None:
    """Protects other hosts from a replay of one, and the rows of a large one from being cut."""
    found = [(host, decode_row(row).url) for host, _, row in UrlWalk(link).rows(["http://h0.test", "http://h5.test"])]
    assert {host for host, _ in found} == {"http://h0.test", "http://h5.test"}
    assert len(found) == LARGE + URLS
