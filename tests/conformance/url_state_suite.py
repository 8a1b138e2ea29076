"""The laws of the URL store and of the epochs, as suites: the fakes and the real stores run the very same tests.

Who takes `UrlStateLaws` gives the fixture `open_store`, which opens one more store on the same rows each time; hosts
are new in every test, so that rows of others are never met.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.ports import Elsewhere, Epochs, UrlState, UrlWrite
from connectors.url_batches import BATCH_BYTES_MAX, batches
from schemas.records import BodyRef, Kind, Source
from streams.core.homes import Home
from streams.core.rows import Status, UrlRow, Visit, decode_row, encode_row
from streams.core.rules.urls import url_id

OpenStore = Callable[[], UrlState]
_numbers = itertools.count()
_RUN = random.randrange(1 << 40)  # rows of an earlier run may still be there


def new_host() -> str:
    """A host that nobody has written of."""
    return f"https://h{next(_numbers)}.r{_RUN:x}.example"


def admitted(host: str, number: int, *, depth: int = 1, parent: bytes = b"p" * 16) -> UrlWrite:
    """The first write of a URL."""
    url = f"{host}/{number}"
    row = UrlRow(url, Source.LINK, Kind.PAGE, depth, 0, parent, 128, 7, place=b"\0" * 7)
    return UrlWrite(host, url_id(url), encode_row(row))


def visited(host: str, number: int, tag: str, *, version: int = 1) -> UrlWrite:
    """A later write, all of whose changing parts say `tag`."""
    url, body = f"{host}/{number}", BodyRef(tag, 1, 2)
    visit = Visit(
        8, 200, version, content_hash=tag.encode() * 8, body=body, content=body, etag=tag, title=tag, simhash=1 << 63
    )
    row = UrlRow(url, Source.LINK, Kind.PAGE, 1, 0, b"p" * 16, 128, 7, Status.FETCHED, version=version, visit=visit)
    return UrlWrite(host, url_id(url), encode_row(row))


def deleted(write: UrlWrite) -> UrlWrite:
    """The same URL as an operator's deletion writes it."""
    return UrlWrite(write.host_key, write.url_id, None)


def written(write: UrlWrite) -> UrlRow:
    """The row of a write that is no deletion."""
    assert write.row is not None
    return decode_row(write.row)


def known(store: UrlState, *writes: UrlWrite) -> list[UrlWrite]:
    """What stands of these URLs of one host, as writes, in the order of url_id; by `scan` and by `read` alike."""
    host = writes[0].host_key
    ids = {write.url_id for write in writes}
    read = zip(sorted(ids), store.read(host, sorted(ids)), strict=True)
    found = [(url_id, row) for url_id, row in read if row is not None]
    assert [one for one in store.scan(host, b"", 10_000) if one[0] in ids] == found
    return [UrlWrite(host, url_id, row) for url_id, row in found]


def in_order(*writes: UrlWrite) -> list[UrlWrite]:
    """As `known` has them."""
    return sorted(writes, key=lambda write: write.url_id)


class UrlStateLaws:
    """What the owner relies on, whoever keeps the rows."""

    many = 300  # rows, where it must be many; by Paxos each takes 20 ms and more

    @pytest.fixture
    def store(self, open_store: OpenStore) -> UrlState:
        """One store."""
        return open_store()

    def test_a_row_comes_back_whole(self, store: UrlState) -> None:
        """A takeover continues from what is read: no field of a row may be lost on the way, before or after a visit."""
        host = new_host()
        first, later = admitted(host, 1), visited(host, 2, "a")
        store.write([first, admitted(host, 2)], epoch=1, version=1)
        store.write([later], epoch=1, version=2)
        assert known(store, first, later) == in_order(first, later)

    def test_an_old_owner_with_a_higher_version_loses(self, store: UrlState) -> None:
        """The epoch fences: however far the old owner had counted, before or after the new one wrote."""
        host = new_host()
        store.write([admitted(host, 1)], epoch=1, version=1)
        store.write([visited(host, 1, "old")], epoch=1, version=4_000_000_000)
        store.write([visited(host, 1, "new")], epoch=2, version=1)
        store.write([visited(host, 1, "zombie")], epoch=1, version=4_000_000_001)
        assert known(store, admitted(host, 1)) == [visited(host, 1, "new")]

    def test_a_repeat_changes_nothing(self, store: UrlState) -> None:
        """A write whose answer was lost is sent again, perhaps after a later one of the same owner."""
        host = new_host()
        calls = [([admitted(host, 1)], 1), ([visited(host, 1, "b")], 2), ([visited(host, 1, "a", version=2)], 3)]
        for again in (0, 1, 2):
            for rows, version in calls:
                store.write(rows, epoch=3, version=version)
            store.write(calls[again][0], epoch=3, version=calls[again][1])
            assert known(store, admitted(host, 1)) == [visited(host, 1, "a", version=2)]

    def test_equal_stamps_cannot_mix_two_rows(self, store: UrlState) -> None:
        """Two owners that count alike by mistake: one of the rows stands whole, never an etag of one with a hash of
        the other, and repeats of both leave it standing."""
        host = new_host()
        rows = [visited(host, 1, tag) for tag in ("b", "a", "c")]
        store.write([admitted(host, 1)], epoch=1, version=1)
        for row in rows:
            store.write([row], epoch=5, version=5)
        (stands,) = known(store, rows[0])
        assert stands in rows
        for row in reversed(rows):
            store.write([row], epoch=5, version=5)
        assert known(store, rows[0]) == [stands]

    def test_two_first_inserts(self, store: UrlState) -> None:
        """Two owners admit one URL from different pages: the rightful one's parent and depth stand, both of them."""
        host = new_host()
        old = [admitted(host, number, depth=9, parent=b"o" * 16) for number in range(20)]
        new = [admitted(host, number, depth=2, parent=b"n" * 16) for number in range(20)]
        store.write(old[:10], epoch=1, version=9)
        with ThreadPoolExecutor(2) as threads:
            both = [
                threads.submit(store.write, old[10:], epoch=1, version=10),
                threads.submit(store.write, new, epoch=2, version=1),
            ]
            for one in both:
                one.result()
        assert known(store, *new) == in_order(*new)

    def test_a_late_write_after_a_takeover(self, store: UrlState, open_store: OpenStore) -> None:
        """What the old owner had on the way arrives after the new one has gone on: it changes nothing, adds no more
        than what is the new owner's to overwrite, and the new owner's next write stands."""
        host = new_host()
        late = [admitted(host, number) for number in range(6)]
        zombie = open_store()
        store.write(late[:4], epoch=1, version=1)
        store.write([visited(host, number, "new") for number in range(4)], epoch=2, version=1)
        zombie.write([*late, visited(host, 0, "late")], epoch=1, version=2)
        store.write([visited(host, 5, "new")], epoch=2, version=2)
        expected = [visited(host, number, "new") for number in (0, 1, 2, 3, 5)]
        assert known(store, *late) == in_order(*expected, late[4])

    def test_owners_that_race(self, store: UrlState) -> None:
        """Four owners of four epochs write the same rows at once: the last epoch's stand, all of them."""
        host = new_host()
        store.write([admitted(host, number) for number in range(20)], epoch=1, version=1)
        start = threading.Barrier(4)

        def write(epoch: int) -> None:
            start.wait(30)
            for version in (1, 2):
                rows = [visited(host, number, f"{epoch}{version}") for number in range(20)]
                store.write(rows, epoch=epoch, version=version)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, (5, 3, 4, 2)))
        expected = [visited(host, number, "52") for number in range(20)]
        assert known(store, *expected) == in_order(*expected)

    def test_a_crash_between_batches(self, store: UrlState) -> None:
        """The owner dies with a part of its group written: its successor writes the group anew, decided a little
        differently, and what the dead one's requests still bring changes nothing."""
        host = new_host()
        group = [admitted(host, number) for number in range(self.many // 10)]
        again = [admitted(host, number, depth=2) for number in range(self.many // 10)]
        parts = list(batches(group, rows_max=1))
        assert len(parts) > 2
        for crash_after in (1, len(parts) // 2, len(parts) - 1):
            done = {cell.url_id for part in parts[:crash_after] for cell in part.cells}
            store.write([row for row in group if row.url_id in done], epoch=2 * crash_after, version=7)
            store.write(again, epoch=2 * crash_after + 1, version=1)
            store.write([row for row in group if row.url_id not in done], epoch=2 * crash_after, version=7)
            assert known(store, *group) == in_order(*again)

    def test_a_deletion_is_as_if_it_had_never_been(self, store: UrlState) -> None:
        """An operator deletes a host: its URLs read as unknown, late writes do not bring them back, admission does."""
        host = new_host()
        rows = [admitted(host, number) for number in range(5)]
        store.write(rows, epoch=1, version=1)
        store.write([deleted(row) for row in rows[1:]], epoch=1, version=2)
        store.write(rows, epoch=1, version=1)
        assert known(store, *rows) == [rows[0]]
        store.write([deleted(admitted(host, 9))], epoch=1, version=3)  # admitted and deleted in one group
        assert known(store, admitted(host, 9)) == []
        store.write([rows[2], admitted(host, 9)], epoch=1, version=4)
        assert known(store, *rows, admitted(host, 9)) == in_order(rows[0], rows[2], admitted(host, 9))

    def test_the_last_row_of_a_call_counts(self, store: UrlState) -> None:
        """A group decides on a URL more than once; within one stamp the store could not tell which came last."""
        host = new_host()
        store.write([visited(host, 1, "z"), admitted(host, 1, depth=3), admitted(host, 1)], epoch=1, version=1)
        assert known(store, admitted(host, 1)) == [admitted(host, 1)]

    def test_more_than_a_batch_holds(self, store: UrlState) -> None:
        """Rows of one partition beyond a batch's limit, and one row beyond it alone, all become durable."""
        host = new_host()
        long = [_with_title(visited(host, number, "a"), BATCH_BYTES_MAX // 6) for number in range(self.many)]
        huge = _with_title(visited(host, self.many, "b"), 2 * BATCH_BYTES_MAX)
        store.write([admitted(host, number) for number in range(self.many + 1)], epoch=1, version=1)
        store.write([*long, huge], epoch=1, version=2)
        assert known(store, *long, huge) == in_order(*long, huge)

    def test_a_host_is_read_in_pages(self, store: UrlState) -> None:
        """The rebuild reads a host some rows at a time: each row once, in order, deleted ones not counted, and no row
        of a host whose name begins alike."""
        host = new_host()
        rows = [admitted(host, number) for number in range(self.many)]
        store.write([*rows, admitted(host + "a", 1), admitted(host + ":8080", 1)], epoch=1, version=1)
        store.write([deleted(row) for row in rows[::3]], epoch=1, version=2)
        expected = [write.url_id for write in in_order(*(row for at, row in enumerate(rows) if at % 3))]
        for page_rows in (1, 7, len(expected), 10_000):
            read: list[bytes] = []
            while True:
                page = store.scan(host, read[-1] if read else b"", page_rows)
                assert len(page) <= page_rows
                read += [url_id for url_id, _ in page]
                if len(page) < page_rows:
                    break
            assert read == expected, page_rows
        assert store.scan(new_host(), b"", 10) == []

    def test_reading_names_what_is_known(self, store: UrlState) -> None:
        """Asked for known and unknown URLs, some of them twice, the answers stand in the order of the questions."""
        host = new_host()
        rows = [admitted(host, number) for number in range(self.many)]
        store.write(rows, epoch=1, version=1)
        asked = [admitted(host, number).url_id for number in (*range(self.many + 30, 20, -1), 3, 3, 7)]
        standing = {row.url_id: row.row for row in rows}
        assert store.read(host, asked) == [standing.get(url_id) for url_id in asked]
        assert store.read(host, []) == []

    def test_nothing_is_written_by_an_empty_call(self, store: UrlState) -> None:
        """A group without rows costs nothing and waits for nobody."""
        store.write([], epoch=1, version=1)

    @settings(
        max_examples=15,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(
        st.lists(
            st.tuples(
                st.sets(st.integers(0, 5), min_size=1), st.integers(1, 3), st.integers(1, 4), st.sampled_from("nvd")
            ),
            min_size=1,
            max_size=8,
            unique_by=lambda call: call[1:3],
        ),
        st.randoms(use_true_random=False),
    )
    def test_any_order_of_any_owners(
        self, store: UrlState, calls: list[tuple[set[int], int, int, str]], dice: random.Random
    ) -> None:
        """Whatever the order of arrival, and with repeats, each URL is what its highest (epoch, version) says."""
        host = new_host()
        expected: dict[bytes, tuple[int, int, UrlWrite]] = {}
        sent = []
        store.write([admitted(host, number) for number in range(6)], epoch=1, version=0)  # a URL is admitted first
        for numbers, epoch, version, kind in calls:
            rows = [_row_of(kind, host, number, f"{epoch}.{version}") for number in sorted(numbers)]
            sent.append((rows, epoch, version))
            for row in rows:
                at = (epoch, version, row)
                expected[row.url_id] = max(expected.get(row.url_id, at), at, key=lambda one: one[:2])
        arriving = [*sent, *dice.choices(sent, k=3)]
        dice.shuffle(arriving)
        for rows, epoch, version in arriving:
            store.write(rows, epoch=epoch, version=version)
        stand = [row for _, _, row in expected.values() if row.row is not None]
        untouched = [admitted(host, n) for n in range(6) if admitted(host, n).url_id not in expected]
        asked = [admitted(host, number) for number in range(6)]
        assert known(store, *asked) == in_order(*stand, *untouched)


class EpochLaws:
    """What fences owners; the fixture `epochs` gives the store, `elsewhere` the same as another region has it."""

    def test_epochs_rise_from_one(self, epochs: Epochs) -> None:
        """An owner's epoch is above all before it; a partition's epochs are its own."""
        one, other = _partitions(2)
        assert [epochs.take(one) for _ in range(3)] == [1, 2, 3]
        assert epochs.take(other) == 1
        assert epochs.take(one) == 4

    def test_takes_that_race_give_each_number_once(self, epochs: Epochs) -> None:
        """Workers that all believe a partition to be theirs get different epochs, each of them rising ones."""
        (partition,) = _partitions(1)
        start = threading.Barrier(4)

        def take(_: int) -> list[int]:
            start.wait(30)
            return [epochs.take(partition) for _ in range(4)]

        with ThreadPoolExecutor(4) as threads:
            taken = list(threads.map(take, range(4)))
        assert all(some == sorted(some) for some in taken)
        every = sorted(epoch for some in taken for epoch in some)
        assert len(set(every)) == len(every) == 16
        assert epochs.take(partition) > every[-1]

    def test_a_partition_is_at_home_where_it_was_taken_first(self, epochs: Epochs, elsewhere: Epochs) -> None:
        """Two regions never take a partition from each other without an order, and each says where it is."""
        (partition,) = _partitions(1)
        assert elsewhere.home(partition) is None
        assert epochs.take(partition) == 1
        with pytest.raises(Elsewhere):
            elsewhere.take(partition)
        assert elsewhere.home(partition) == epochs.home(partition) == Home(1, "r")
        assert epochs.take(partition) == 2

    def test_a_move_is_an_epoch(self, epochs: Epochs, elsewhere: Epochs) -> None:
        """From the move on the former region takes it no more, and the new one's epoch is above all before it."""
        (partition,) = _partitions(1)
        last = epochs.take(partition)
        moved = epochs.move(partition, "elsewhere")
        assert epochs.home(partition) == Home(moved, "elsewhere")
        with pytest.raises(Elsewhere):
            epochs.take(partition)
        assert last < moved < elsewhere.take(partition)
        (untaken,) = _partitions(1)
        assert epochs.move(untaken, "elsewhere") < elsewhere.take(untaken)


def _partitions(count: int) -> Sequence[int]:
    """Partitions that nobody has taken."""
    return [_RUN % 1_000_000 * 1_000 + next(_numbers) for _ in range(count)]


def _with_title(write: UrlWrite, characters: int) -> UrlWrite:
    row = written(write)
    assert row.visit is not None
    row.visit.title = "t" * characters
    return write._replace(row=encode_row(row))


def _row_of(kind: str, host: str, number: int, tag: str) -> UrlWrite:
    if kind == "v":
        return visited(host, number, tag)
    write = admitted(host, number, parent=tag.encode().ljust(16))
    return write if kind == "n" else deleted(write)
