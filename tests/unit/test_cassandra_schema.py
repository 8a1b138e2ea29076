"""A row is found where it was written, whatever its host has become, and an older owner's write loses."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cassandra import BUCKETS, STAMP_EPOCH_MAX, STAMP_VERSION_MAX, bucket_of, stamp

IDS = st.binary(min_size=16, max_size=16)


@given(st.lists(IDS, max_size=40))
def test_buckets_in_order_are_the_host_in_order(url_ids: list[bytes]) -> None:
    """The rebuild reads a host bucket by bucket, and merges with an index in the order of url_id without sorting."""
    by_bucket = sorted(url_ids, key=lambda url_id: (bucket_of(url_id), url_id))
    assert by_bucket == sorted(url_ids)
    assert all(0 <= bucket_of(url_id) < BUCKETS for url_id in url_ids)


def test_the_bucket_is_pinned() -> None:
    """Another function would look for every known URL in the wrong partition and admit it anew."""
    assert [bucket_of(bytes([first]) + bytes(15)) for first in (0, 15, 16, 127, 128, 255)] == [0, 0, 1, 7, 8, 15]


def test_a_large_host_is_spread_evenly() -> None:
    """A million-URL host must not be one partition, nor nearly one."""
    counts = Counter(
        bucket_of(hashlib.blake2b(b"https://a.example/%d" % number, digest_size=16).digest())
        for number in range(32_000)
    )
    assert len(counts) == BUCKETS
    assert max(counts.values()) < 1.1 * 32_000 / BUCKETS


@given(st.integers(1, STAMP_EPOCH_MAX - 1), st.integers(0, STAMP_VERSION_MAX), st.integers(0, STAMP_VERSION_MAX))
def test_a_later_epoch_wins_whatever_the_version(epoch: int, version: int, other: int) -> None:
    """A fenced-off owner may have counted far ahead; its write must lose all the same."""
    assert stamp(epoch, version) < stamp(epoch + 1, other)
    assert (stamp(epoch, version) < stamp(epoch, other)) == (version < other)
    assert stamp(epoch + 1, other) < 1 << 63  # Cassandra's timestamp is signed


@pytest.mark.parametrize(("epoch", "version"), [(0, 1), (STAMP_EPOCH_MAX + 1, 0), (1, STAMP_VERSION_MAX + 1), (1, -1)])
def test_a_stamp_out_of_range_is_ours_to_find(epoch: int, version: int) -> None:
    """A version that ran into the epoch's bits would make a write of the future."""
    with pytest.raises(AssertionError):
        stamp(epoch, version)
