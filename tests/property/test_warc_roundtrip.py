"""Any answer a server may give comes back from its record, by another project's reader."""

from __future__ import annotations

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core import store
from tests.support.warc_samples import read_all

NAMES = st.text(alphabet="!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCXYZ", min_size=1, max_size=20)
KNOWN_NAMES = st.sampled_from(["Content-Length", "content-encoding", "Transfer-Encoding", "Content-Type", "Set-Cookie"])
VALUES = st.binary(max_size=40) | st.sampled_from([b"gzip", b"chunked", b"br", b"0", b"7", b"text/html; charset=utf-8"])
HEADERS = st.lists(st.tuples((NAMES | KNOWN_NAMES).map(str.encode), VALUES), max_size=12).map(tuple)


@settings(max_examples=300, deadline=None)
@given(headers=HEADERS, body=st.binary(max_size=300), status=st.integers(200, 299), reason=st.text(max_size=20))
def test_any_answer_round_trips(
    headers: tuple[tuple[bytes, bytes], ...], body: bytes, status: int, reason: str
) -> None:
    """Body, status and the number of header lines survive; warcio unpacks nothing, for no header tells it to."""
    coded = any(name.lower() == b"content-encoding" for name, _ in headers)
    block = store.http_header_block(
        status, reason, "1.1", headers, body_bytes=len(body), content_codings="x" if coded else ""
    )
    content_hash = hashlib.sha256(body).digest()
    member = store.response_record(
        "http://h/", address="::1", http_header=block, body=body, content_hash=content_hash, fetched_ms=1
    )
    (seen,) = read_all(member)
    assert seen.payload == body
    assert seen.digest_ok is True
    assert seen.status.startswith(str(status))
    lengths = [value for name, value in seen.http if name.lower() == "content-length"]
    assert [int(x) for x in lengths] == [len(body)]
    true_length = any(
        name.lower() == b"content-length" and value.strip() == b"%d" % len(body) for name, value in headers
    )
    assert block.count(b"\r\n") == len(headers) + (2 if true_length else 3)
    mine = store.read_record(member)
    assert isinstance(mine, store.Record)
    assert (mine.http_header, mine.payload) == (block, body)


@given(data=st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    """Whatever lies on the disk, reading it is a value."""
    assert isinstance(store.read_record(data), store.BadRecord)
    assert isinstance(store.read_record(store.gzip_member(data)), store.BadRecord)
    assert isinstance(store.read_record(store.gzip_member(b"WARC/1.1\r\n", data)), store.Record | store.BadRecord)
