"""Any order of appends, syncs, commits, closes and crashes leaves the committed records and no others."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.segments_local import LocalSegments, Position, read_record
from schemas.records import BodyRef
from tests.support.lossy_files import LossyFiles
from tests.support.warc_samples import digest, parsed, read_all, response

STEPS = st.lists(
    st.sampled_from(["page", "page", "page", "sync", "sync", "commit", "commit", "close", "plug", "kill"]), max_size=40
)


class Crawl:
    """The owner's side: a sync is followed by its commit or by the end of the run, as the engine does it."""

    def __init__(self, root: Path, segment_bytes_max: int) -> None:
        self.root, self.limit = root, segment_bytes_max
        self.files = LossyFiles()
        self.committed: Position = ()
        self.kept: list[tuple[str, BodyRef, bytes]] = []
        self.epoch = self.pages = 0
        self.start()

    def start(self) -> None:
        self.epoch += 1
        self.segments = LocalSegments(
            self.root, crawl_id="c", epoch=self.epoch, files=self.files, segment_bytes_max=self.limit
        )
        self.segments.recover(self.committed)
        self.group: list[tuple[str, BodyRef, bytes]] = []
        self.synced: list[tuple[str, BodyRef, bytes]] | None = None  # what a commit would keep, once synced

    def page(self) -> None:
        url, body = f"http://h/{self.pages}", digest(self.pages.to_bytes(4, "big")) * 3
        self.pages += 1
        self.group.append((url, self.segments.append_response(url, response(url, body), digest(body)), body))
        self.segments.append_parsed(parsed(url, body.hex().encode(), links=1))

    def sync(self) -> None:
        if self.synced is None:
            self.segments.sync()
            self.synced, self.group = self.group, []

    def commit(self) -> None:
        if self.synced is not None:
            self.committed = self.segments.position()
            self.kept += self.synced
            self.synced = None

    def close(self) -> None:
        if self.synced is None:  # a run that ends well commits before it closes
            self.segments.close()
            self.start()

    def plug(self) -> None:
        self.files.crash()
        self.start()

    def kill(self) -> None:
        """The process dies and the machine goes on: what was written is there, synced or not."""
        self.start()

    def check(self) -> None:
        self.kill()
        paths = sorted((self.root / "warc").iterdir())
        assert not [path for path in paths if path.suffix == ".open"]
        seen = [x for path in paths for x in read_all(path) if x.type == "response"]
        assert [(x.headers["warc-target-uri"], x.payload) for x in seen] == [(url, body) for url, _, body in self.kept]
        assert all(read_record(self.root, ref).payload == body for _, ref, body in self.kept)
        texts = [x for p in sorted((self.root / "parsed").iterdir()) for x in read_all(p) if x.type == "conversion"]
        assert [x.headers["warc-target-uri"] for x in texts] == [url for url, _, _ in self.kept]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, segment_bytes_max=st.sampled_from([300, 1_000, 1 << 20]))
def test_committed_records_and_no_others(steps: list[str], segment_bytes_max: int) -> None:
    """The archive is what the owner committed, whatever happened in between and whenever the plug was pulled."""
    with tempfile.TemporaryDirectory() as folder:
        crawl = Crawl(Path(folder), segment_bytes_max)
        for step in steps:
            getattr(crawl, step)()
        crawl.check()
