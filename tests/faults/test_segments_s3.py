"""Segments for a store that is away, forgets, refuses or answers too late, and a spool that was left behind."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectors.bodies_s3 import S3Bodies
from connectors.files import StoreFailed
from connectors.object_store import ObjectMissing, ObjectStore
from connectors.ports import StoreClosed
from connectors.segments_s3 import S3Segments, Spool
from schemas.records import BodyRef
from streams.core.failures import CrawlError
from tests.support.fake_s3 import BUCKET, FakeS3
from tests.support.warc_samples import digest, read_all, response

URL = "http://www.example.org/"
PART_BYTES = 500


class World:
    """A store and a spool. Waiting takes no time: `on_pause` is called with each wait, `clock` goes on by it."""

    def __init__(self, folder: Path) -> None:
        self.s3 = FakeS3()
        self.seconds = 0.0
        self.waits = 0
        self.on_pause: Callable[[int], None] = lambda waits: None
        self.objects = ObjectStore(
            self.s3, BUCKET, part_bytes=PART_BYTES, clock=lambda: self.seconds, pause=self._pause
        )
        self.spool = Spool(folder / "spool")
        self.segments = self.open()

    def open(self, epoch: int = 1) -> S3Segments:
        return S3Segments(self.objects, self.spool, worker="w", epoch=epoch)

    def append(self, number: int, body_bytes: int = 640) -> BodyRef:
        url, body = f"{URL}{number}", body_of(number, body_bytes)
        return self.segments.append_response(url, response(url, body), digest(body))

    def _pause(self, seconds: float) -> None:
        self.waits += 1
        self.seconds += seconds
        assert self.waits < 1_000, "it never came to an end"
        self.on_pause(self.waits)


def body_of(number: int, body_bytes: int = 640) -> bytes:
    return b"".join(digest(f"{number}.{at}".encode()) for at in range(body_bytes // 32))  # does not compress


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.spool.close()


def test_nothing_is_seen_before_it_is_whole(world: World) -> None:
    """While an upload is under way there is no object; when `sync` returns it is there, whole, in several parts."""
    ref = world.append(1)
    seen: list[bool] = []
    world.s3.before = lambda operation: seen.append(ref.segment in world.s3.objects)
    world.segments.sync()
    assert seen == [False] * len(seen)
    assert world.s3.calls["upload_part"] >= 2
    assert [one.payload for one in read_all(world.s3.objects[ref.segment]) if one.type == "response"] == [body_of(1)]
    assert world.segments.backlog_bytes() == 0
    assert world.spool.remains() == []


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_store_that_goes_away_is_waited_for(world: World, parts: int) -> None:
    """Away before the upload or within it: the sync waits, with longer and longer pauses, and loses nothing."""
    refs = [world.append(number) for number in range(3)]

    def leave(operation: str) -> None:
        world.s3.away = world.s3.away or world.s3.calls["upload_part"] == parts

    def come_back(waits: int) -> None:
        assert world.objects.away_s() > 0
        if waits == 20:
            world.s3.before = lambda operation: None
            world.s3.away = False

    world.s3.before, world.on_pause = leave, come_back
    world.segments.sync()
    assert world.waits == 20
    assert 60 < world.seconds < 200
    assert world.objects.away_s() == 0
    assert [S3Bodies(world.objects).read(ref) for ref in refs] == [body_of(number) for number in range(3)]
    assert world.s3.uploads == {}


def test_records_come_while_the_store_is_away(world: World) -> None:
    """A sync that waits holds nobody up: what comes meanwhile goes to the next segment, and is read from the spool."""
    world.append(1)
    world.s3.away = True
    more: list[BodyRef] = []

    def append(waits: int) -> None:
        more.append(world.append(1 + waits))
        assert world.segments.read(more[-1]) == body_of(1 + waits)
        world.s3.away = waits < 5

    world.on_pause = append
    world.segments.sync()
    assert len({ref.segment for ref in more}) == 1
    assert more[0].segment not in world.s3.objects
    world.segments.sync()
    assert [world.segments.read(ref) for ref in more] == [body_of(2 + at) for at in range(5)]


def test_two_syncs_at_once_wait_for_each_other(world: World) -> None:
    """A sync that finds another one uploading returns only when that segment is there: it may be announced then."""
    ref = world.append(1)
    first = threading.Event()
    go_on = threading.Event()

    def hold(operation: str) -> None:
        if operation == "complete_multipart_upload":
            first.set()
            assert go_on.wait(20)

    world.s3.before = hold
    threads = [threading.Thread(target=world.segments.sync) for _ in range(2)]
    threads[0].start()
    assert first.wait(20)
    threads[1].start()
    threads[1].join(0.1)
    assert threads[1].is_alive()
    assert ref.segment not in world.s3.objects
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert ref.segment in world.s3.objects
    assert world.s3.calls["create_multipart_upload"] == 1


def test_a_lost_answer_to_the_completion_is_no_second_upload(world: World) -> None:
    """The completion took effect and its answer was lost: the object is there, and is not written again."""
    ref = world.append(1)
    world.s3.loses_answer.add("complete_multipart_upload")
    world.segments.sync()
    assert world.s3.calls["create_multipart_upload"] == 1
    assert world.segments.read(ref) == body_of(1)


def test_an_upload_that_the_store_forgot_is_begun_anew(world: World) -> None:
    """A store that came back without the upload gets all parts again."""
    ref = world.append(1)

    def forget(operation: str) -> None:
        if operation == "complete_multipart_upload" and world.s3.calls["create_multipart_upload"] == 1:
            world.s3.uploads.clear()

    world.s3.before = forget
    world.segments.sync()
    assert world.s3.calls["create_multipart_upload"] == 2
    assert world.segments.read(ref) == body_of(1)


def test_a_refusal_ends_the_wait_with_a_sentence_and_keeps_the_segment(world: World) -> None:
    """Keys that are refused for a minute need people; once mended the next sync brings what waited."""
    ref = world.append(1)
    world.s3.refuses = "AccessDenied"
    with pytest.raises(StoreFailed, match=r"AccessDenied.*check fleet\.bucket"):
        world.segments.sync()
    assert world.seconds >= 60
    world.s3.refuses = ""
    world.segments.sync()
    assert world.segments.read(ref) == body_of(1)


def test_a_worker_that_ends_waits_no_longer(world: World) -> None:
    """`close` of the store ends a sync that waits, and the begun upload is ended if the store is there."""
    world.append(1)

    def end(operation: str) -> None:
        if operation == "complete_multipart_upload":
            world.objects.close()

    world.s3.before = end
    world.s3.loses_answer.add("upload_part")
    world.on_pause = lambda waits: world.objects.close()
    with pytest.raises(StoreClosed):
        world.segments.sync()
    assert world.s3.uploads == {}
    assert world.s3.objects == {}


def test_a_start_removes_what_a_killed_worker_left(world: World) -> None:
    """Spool files of a killed process were never announced: they go, with their uploads; those of others stay."""
    ref = world.append(1)
    mine = world.s3.create_multipart_upload(Bucket=BUCKET, Key=ref.segment)["UploadId"]
    others = world.s3.create_multipart_upload(Bucket=BUCKET, Key=ref.segment + "x")["UploadId"]
    world.segments = world.open(epoch=2)
    later = world.append(2)
    assert world.segments.recover() == 1
    assert mine not in world.s3.uploads
    assert others in world.s3.uploads
    assert world.segments.read(later) == body_of(2)
    world.segments.sync()
    assert world.spool.remains() == []
    assert later.segment in world.s3.objects


def test_a_spool_is_one_workers_own(world: World, tmp_path: Path) -> None:
    """Two workers in one folder would remove each other's segments: the second is told what to do."""
    with pytest.raises(CrawlError, match=r"another worker holds it; give each worker its own fleet\.data"):
        Spool(tmp_path / "spool")
    world.spool.close()
    Spool(tmp_path / "spool").close()


def test_a_full_disk_leaves_no_torn_record(world: World) -> None:
    """An append that fails gives no reference and no record; the segment goes on with whole ones."""
    first = world.append(1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (first.offset_bytes + first.record_bytes + 100, before[1]))
    try:
        with pytest.raises(StoreFailed, match="File too large"):
            world.append(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    last = world.append(3, 32)
    world.segments.sync()
    found = [one.payload for one in read_all(world.s3.objects[last.segment]) if one.type == "response"]
    assert found == [body_of(1), body_of(3, 32)]


def test_a_record_that_is_not_there_is_no_store_that_is_away(world: World) -> None:
    """A parser must not wait for ever for an object that was deleted, and is told what was needed."""
    with pytest.raises(ObjectMissing, match=r"needed to read warc/gone .*no such object"):
        S3Bodies(world.objects).read(BodyRef("warc/gone", 0, 10))
    with pytest.raises(StoreFailed, match="got a reference"):
        S3Bodies(world.objects).read(BodyRef("warc/gone", 0, 0))
    assert world.waits == 0
