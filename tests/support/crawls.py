"""The real command in processes of its own, and what its folder then says, read by other people's tools."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq
from warcio.archiveiterator import ArchiveIterator

from tests.support.site import PROJECT, ServedSite

COMMAND = (sys.executable, "-m", "streams.cli")
END_S_MAX = 180.0


class Record(NamedTuple):
    """One record of a segment, as warcio reads it."""

    type: str
    url: str
    offset_bytes: int
    length_bytes: int
    digest: str
    payload: bytes


def crawl_words(out: Path, *seeds: str, delay: str | None = "0", concurrency: int | None = 8) -> list[str]:
    """The command line of a crawl of loopback; None leaves the default."""
    words = ["crawl", *seeds, "--out", str(out), "--allow-address", "127.0.0.0/8", "--json"]
    words += ["--user-agent", "HeadraceTest/1.0 (+https://example.org/bot)"]
    words += [] if delay is None else ["--delay", delay]
    return words if concurrency is None else [*words, "--concurrency", str(concurrency)]


def start(words: list[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The command, started; its output is read by `end`."""
    return subprocess.Popen(
        [*COMMAND, *words],
        cwd=PROJECT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # negative: the signal
    out: str
    err: str

    def events(self) -> list[dict[str, Any]]:
        """The lines of --json; a last line that a kill has torn is left out."""
        lines = self.out[: self.out.rfind("\n") + 1].splitlines()
        return [msgspec.json.decode(line) for line in lines if line]


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for the command's own end. Fails when it does not come."""
    try:
        out, err = process.communicate(timeout=END_S_MAX)
    except subprocess.TimeoutExpired:
        kill(process)
        out, err = process.communicate()
        raise AssertionError(
            f"no end within {END_S_MAX:.0f} s: {process.args!r}\n{out[-2_000:]}\n{err[-4_000:]}"
        ) from None
    return Ended(process.returncode, out, err)


def run(words: list[str], env: Mapping[str, str] | None = None) -> Ended:
    return end(start(words, env))


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9 of the command alone; the processes that it started must see to themselves."""
    process.send_signal(signal.SIGKILL)


def export(out: Path, name: str) -> Path:
    """The export of that name, made by the real command."""
    ended = run(["export", str(out), "--to", name])
    assert ended.code == 0, ended
    return out / name


def page_rows(out: Path) -> list[dict[str, Any]]:
    """The rows of pages.parquet, read by pyarrow."""
    rows: list[dict[str, Any]] = pq.read_table(export(out, "pages.parquet")).to_pylist()
    return rows


def fetched(rows: list[dict[str, Any]]) -> set[str]:
    """The URLs whose page is stored; the same notion as `tests.support.walk.pages`."""
    return {row["url"] for row in rows if row["state"] == "fetched" and row["status"] == 200}


def records(segment: Path) -> Iterator[Record]:
    """All records from start to end. warcio raises on what it cannot read; digests are checked where there are any."""
    with segment.open("rb") as stream:
        archive = ArchiveIterator(stream, check_digests="raise")
        for record in archive:
            payload = record.content_stream().read()
            headers = record.rec_headers
            offset, length = archive.get_record_offset(), archive.get_record_length()
            url = headers.get_header("WARC-Target-URI") or ""
            yield Record(record.rec_type, url, offset, length, headers.get_header("WARC-Payload-Digest") or "", payload)
        assert archive.err_count == 0, f"{segment}: warcio counts {archive.err_count} errors"


def segments(out: Path, folder: str = "warc") -> list[Path]:
    """The segments of a crawl that no process holds."""
    return sorted(path for path in (out / folder).iterdir() if ".warc.gz" in path.name)


def record_at(out: Path, place: str) -> Record:
    """The record that an export's column `body`, `content` or `text` names, read from its offset alone."""
    name, offset, length = place.rsplit(":", 2)
    path = out / name if (out / name).exists() else out / f"{name}.open"
    with path.open("rb") as stream:
        stream.seek(int(offset))
        archive = ArchiveIterator(stream, check_digests="raise")
        record = next(archive)
        payload = record.content_stream().read()
        archive.read_to_end(record)
        headers = record.rec_headers
        assert archive.get_record_length() == int(length), (
            f"{place}: the record has {archive.get_record_length()} bytes"
        )
        url = headers.get_header("WARC-Target-URI") or ""
        digest = headers.get_header("WARC-Payload-Digest") or ""
        return Record(record.rec_type, url, int(offset), int(length), digest, payload)


def crawl_of(site: ServedSite, out: Path, path: str = "/index.html", **options: Any) -> list[str]:
    """The words of a crawl of that site from that path."""
    return crawl_words(out, site.url(path), **options)
