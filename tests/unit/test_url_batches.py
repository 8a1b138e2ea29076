"""URL rows gathered into batches: within one partition, bounded, each URL once, its text only where it belongs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.ports import UrlWrite
from connectors.url_batches import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Batch, batches, by_bucket
from connectors.url_records import decode_state
from schemas.cassandra import BUCKETS, bucket_of
from streams.core.rows import encode_row
from tests.conformance.url_state_suite import admitted, deleted, visited, written

HOSTS = ("https://a.example", "https://b.example")
_writes = st.lists(
    st.builds(
        lambda host, number, kind: {
            "n": admitted(host, number),
            "v": visited(host, number, "a" * (number + 1)),
            "d": deleted(admitted(host, number)),
        }[kind],
        st.sampled_from(HOSTS),
        st.integers(0, 60),
        st.sampled_from("nvd"),
    ),
    max_size=120,
)


def rows_of(some: list[Batch]) -> dict[tuple[str, bytes], bytes]:
    """(host_key, url_id) to the state that is written, of all batches."""
    return {(batch.host_key, cell.url_id): cell.state for batch in some for cell in batch.cells}


@given(_writes, st.integers(1, 2_000), st.integers(1, 20))
def test_every_row_goes_once_within_its_partition_and_the_limits(
    writes: list[UrlWrite], bytes_max: int, rows_max: int
) -> None:
    """Cassandra takes a batch over partitions apart, and refuses one that is too large, with all its rows."""
    some = list(batches(writes, bytes_max=bytes_max, rows_max=rows_max))
    for batch in some:
        assert batch.cells
        assert len(batch.cells) <= rows_max
        assert all(bucket_of(cell.url_id) == batch.bucket for cell in batch.cells)
        assert len(batch.cells) == 1 or sum(cell.size_bytes for cell in batch.cells) <= bytes_max
    last = {(write.host_key, write.url_id): write for write in writes}
    assert sum(len(batch.cells) for batch in some) == len(last)
    for key, state in rows_of(some).items():
        write = last[key]
        row = None if write.row is None else written(write)
        assert decode_state(row.url if row is not None else "", state) == row


def test_no_batch_is_split_without_need() -> None:
    """A statement costs as much as ten rows: what fits into one batch of a partition is one."""
    writes = [admitted(HOSTS[0], number) for number in range(BUCKETS * 40)]
    some = list(batches(writes))
    assert len(some) == BUCKETS
    assert max(len(batch.cells) for batch in some) < BATCH_ROWS_MAX
    full = list(batches(writes, rows_max=20))
    assert sum(len(batch.cells) == 20 for batch in full) >= len(writes) // 20 - BUCKETS


def test_a_large_row_goes_alone() -> None:
    """One page of a huge title must not take its neighbours' batch beyond the limit, nor be left out."""
    small = [visited(HOSTS[0], number, "a") for number in range(400)]
    row = written(small[0])
    row.last_error = "t" * BATCH_BYTES_MAX
    large = small[0]._replace(row=encode_row(row))
    mine = [write for write in small if bucket_of(write.url_id) == bucket_of(large.url_id) and write != small[0]]
    some = list(batches([mine[0], large, *mine[1:]]))
    assert [[cell.url_id for cell in batch.cells] for batch in some] == [
        [mine[0].url_id],
        [large.url_id],
        [write.url_id for write in mine[1:]],
    ]


def test_the_url_is_written_with_the_first_row_alone() -> None:
    """An update that wrote the URL again would double the bytes of a completion; a first one without it would make a
    row that nobody can read."""
    host = HOSTS[0]
    for write, url in (
        (admitted(host, 1), f"{host}/1"),
        (visited(host, 1, "a"), None),
        (deleted(admitted(host, 1)), None),
    ):
        ((cell,),) = [batch.cells for batch in batches([write])]
        assert cell.url == url


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=60), st.integers(1, 5))
def test_ids_are_asked_for_in_order_and_once(url_ids: list[bytes], ids_max: int) -> None:
    """The answers, one after the other, are the rows in the order of url_id."""
    asked = list(by_bucket(url_ids, ids_max))
    assert [url_id for _, some in asked for url_id in some] == sorted(set(url_ids))
    assert all(0 < len(some) <= ids_max for _, some in asked)
    assert all(bucket_of(url_id) == bucket for bucket, some in asked for url_id in some)
