"""Where a URL's row lies in Cassandra: the names of the tables, and the bucket, which is half of a row's partition.

The tables themselves are `crawl.cql`, beside this file; `headrace provision` makes them.
"""

from __future__ import annotations

URL_STATE = "url_state"
URL_STATE_PAXOS = "url_state_paxos"  # the same rows by conditional writes, for comparison
OWNER_EPOCH = "owner_epoch"

BUCKETS = 16  # for ever: a row is found where it was written
"""Parts of a host, each a partition of its own.

A host's rows are 250 to 400 bytes each. 1 million URLs are 16 partitions of 62,500 rows and 16 to 25 MB; 10 million,
the largest hosts, 250 MB at most, which Cassandra 5 still reads in pages. More buckets would take rows of one page's
links apart: a batch within one partition writes some ten rows for the price of one.
"""

_BUCKET_SHIFT = 4  # 8 bits of the first byte - log2(BUCKETS)
STAMP_EPOCH_SHIFT = 32
STAMP_EPOCH_MAX = (1 << 31) - 1  # a timestamp is a signed 64-bit number
STAMP_VERSION_MAX = (1 << 32) - 1


def bucket_of(url_id: bytes) -> int:
    """The bucket of a URL, 0 to BUCKETS - 1: the first four bits of its digest.

    It depends on the URL alone, never on how many URLs its host has, so that a host that grows leaves no row behind in
    a place where nobody looks. `url_id` is a cryptographic digest: no site can fill one bucket. Rows are ordered by
    url_id within a partition, so the buckets read one after the other give a host's rows in the order of url_id.
    """
    assert len(url_id) == 16, f"url_id of {len(url_id)} bytes"
    return url_id[0] >> _BUCKET_SHIFT


def stamp(owner_epoch: int, state_version: int) -> int:
    """The write's timestamp (`USING TIMESTAMP`): the owner's epoch above, the state's version below.

    A fenced-off owner's write loses whatever its version, and a repeated write changes nothing.
    """
    assert 0 < owner_epoch <= STAMP_EPOCH_MAX, f"epoch {owner_epoch}"
    assert 0 <= state_version <= STAMP_VERSION_MAX, f"version {state_version}"
    return owner_epoch << STAMP_EPOCH_SHIFT | state_version
