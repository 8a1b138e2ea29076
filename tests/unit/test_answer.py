"""Framing, decoding and the end of an answer: `http1`, `decoding`, `answer`."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Kind
from streams.core.answer import AnswerReader
from streams.core.decoding import BodyDecoder, codings
from streams.core.http1 import ResponseReader
from streams.core.policy import DISCARDED_BYTES_MAX, INTERIM_HEADS_MAX, FetchLimits

OK = b"HTTP/1.1 200 OK\r\n"
LIMITS = FetchLimits()
SMALL = FetchLimits(
    header_bytes_max=400,
    header_lines_max=10,
    header_line_bytes_max=100,
    body_bytes_max=3_000_000,
    wire_bytes_max=2_000_000,
    robots_bytes_max=1_000,
)
TEXT = b"".join(b"<p>line %d</p>\n" % number for number in range(20_000))


def read(*pieces: bytes, kind: Kind = Kind.PAGE, limits: FetchLimits = LIMITS, closes: bool = False) -> AnswerReader:
    """An answer read from these pieces, then perhaps the connection's end."""
    answer = AnswerReader(kind, limits)
    for piece in pieces:
        answer.feed(piece)
    if closes:
        answer.feed_eof()
    return answer


def came(answer: AnswerReader) -> tuple[bool, str, bytes, bool]:
    """Done, failure, body and whether the connection may be used again."""
    return answer.done, answer.failure, answer.take_body(), answer.reusable


@pytest.mark.parametrize(
    ("raw", "body", "reusable"),
    [
        (OK + b"Content-Length: 5\r\n\r\nHello", b"Hello", True),
        (OK + b"content-length : 5 \r\n\r\nHello", b"Hello", True),
        (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nHello", b"Hello", True),
        (OK + b"Content-Length: 5, 5\r\n\r\nHello", b"Hello", True),
        (OK + b"Content-Length: 0\r\n\r\n", b"", True),
        (OK + b"Content-Length: 5\r\nConnection: Close\r\n\r\nHello", b"Hello", False),
        (OK + b"Content-Length: 5\r\n\r\nHello, stray", b"Hello", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nHello", b"Hello", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nHello", b"Hello", True),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n5\r\nHello\r\n0\r\n\r\n", b"Hello", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nHel\r\n02 \r\nlo\r\n0\r\nX-T: 1\r\n\r\n", b"Hello", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n0\r\n\r\nHTTP/1.1 200", b"Hello", False),
        (OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n0\r\n\r\n", b"Hello", False),
        (OK.replace(b"\r\n", b"\n") + b"Content-Length: 5\n\nHello", b"Hello", True),
        (b"\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nHello", b"Hello", True),
        (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nHello", b"Hello", True),
        (b"http/1.1  200  Fine\r\nContent-Length: 5\r\n\r\nHello", b"Hello", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nHello", b"Hello", True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nHello", b"Hello", True),
        (b"HTTP/1.1 204 No Content\r\nContent-Encoding: gzip\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nHello", b"", False),
        (OK + b"this is no header\r\nContent-Length: 5\r\n: x\r\n\r\nHello", b"Hello", True),
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_a_body_ends_where_rfc_9112_says(raw: bytes, body: bytes, reusable: bool, split: bool) -> None:
    """An answer is the same whether it comes at once or byte by byte, and stray bytes never become the next one."""
    pieces = [raw[index : index + 1] for index in range(len(raw))] if split else [raw]
    answer = read(*pieces)
    answer.feed(b"")
    # Byte by byte the answer is done before the stray bytes come; the connection then drops them.
    stray = raw.endswith((b"stray", b"HTTP/1.1 200")) or (b" 204 " in raw and raw.endswith(b"Hello"))
    assert came(answer) == (True, "", body, True if split and stray else reusable)


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n", OK + b"Transfer-Encoding: identity\r\n"])
def test_without_a_length_the_body_ends_with_the_connection(head: bytes) -> None:
    """Such an answer is whole only once the connection has ended, and the connection is then gone."""
    raw = head + b"\r\nHello"
    assert not read(raw).done
    assert came(read(raw, b" you", closes=True)) == (True, "", b"Hello you", False)


@pytest.mark.parametrize(
    ("raw", "failure"),
    [
        (b"", "empty_reply"),
        (b"\r\n", "empty_reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "incomplete_head"),
        (OK + b"Content-Length: 50\r\n\r\nHello", "incomplete_body"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n", "incomplete_body"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHel", "incomplete_body"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHello\r\n0\r\n", "incomplete_body"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"Hello")[:-1], "incomplete_body"),
    ],
)
def test_a_cut_answer_is_never_whole(raw: bytes, failure: str) -> None:
    """A page that was cut is tried again instead of being stored short."""
    assert came(read(raw, closes=True))[:2] == (True, failure)


@pytest.mark.parametrize(
    ("raw", "failure"),
    [
        (b"<html>Hello</html>\n\n", "bad_status_line"),
        (b"<html>Hello", "bad_status_line"),
        (b"ICY 200 OK\r\n\r\n", "bad_status_line"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "bad_status_line"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "bad_status_line"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "bad_status_line"),
        (OK + b"Content-Length: abc\r\n\r\nHello", "bad_content_length"),
        (OK + b"Content-Length: -5\r\n\r\nHello", "bad_content_length"),
        (OK + b"Content-Length: +5\r\n\r\nHello", "bad_content_length"),
        (OK + b"Content-Length: \r\n\r\nHello", "bad_content_length"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nHello", "bad_content_length"),
        (OK + b"Content-Length: 5, 6\r\n\r\nHello", "bad_content_length"),
        (OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nHello", "bad_content_length"),
        (OK + b"Transfer-Encoding: foo\r\n\r\nHello", "bad_transfer_encoding"),
        (OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "bad_transfer_encoding"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nHello\r\n0\r\n\r\n", "bad_chunk"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHelloXX0\r\n\r\n", "bad_chunk"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nHello\r\n", "bad_chunk"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"F" * 17 + b"\r\nHello", "bad_chunk"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 5_000, "bad_chunk"),
        (OK + b"X-Many: 1\r\n" * 11 + b"\r\n", "header_too_large"),
        (OK + b"X-Long: " + b"x" * 200 + b"\r\n\r\n", "header_too_large"),
        (OK + b"X-Endless: " + b"x" * 500, "header_too_large"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: 1\r\n" * 200, "header_too_large"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * (INTERIM_HEADS_MAX + 1), "too_many_interim"),
        (OK + b"Content-Length: 2000001\r\n\r\n", "too_large"),
        (OK + b"Content-Encoding: compress\r\nContent-Length: 5\r\n\r\nHello", "unknown_encoding"),
        (OK + b"Content-Encoding: gzip,gzip, gzip\r\nContent-Length: 5\r\n\r\nHello", "too_many_encodings"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nHello", "bad_encoding"),
    ],
)
def test_what_cannot_be_read_is_a_failure_and_ends_the_connection(raw: bytes, failure: str) -> None:
    """No faulty framing or coding is guessed at, and nothing more is read from such a connection."""
    done, found, _, reusable = came(read(raw, limits=SMALL))
    assert (done, found, reusable) == (True, failure, False)


def test_header_lines_are_kept_as_received() -> None:
    """The store writes what the site said: order, case, repetition; folds and NULs as RFC 9110 5.5 has them read."""
    raw = OK + b"X-B: 1\r\nx-a:\t2 \r\nX-B: 3\r\n and more\r\nX-N: a\0b\r\nX-L: caf\xe9\r\nContent-Length: 0\r\n\r\n"
    head = read(raw).head
    assert head is not None
    assert (head.status, head.reason, head.version) == (200, "OK", "1.1")
    assert head.headers[:5] == (
        (b"X-B", b"1"),
        (b"x-a", b"2"),
        (b"X-B", b"3 and more"),
        (b"X-N", b"a b"),
        (b"X-L", b"caf\xe9"),
    )


@pytest.mark.parametrize("status", [b"302 Found", b"404 Not Found", b"503 Busy", b"304 Not Modified"])
def test_the_body_of_another_answer_is_left_out(status: bytes) -> None:
    """Nothing of an error page is kept, and a small one does not cost the connection."""
    small = read(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\nHello")
    assert came(small)[:3] == (True, "", b"")
    large = read(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % (DISCARDED_BYTES_MAX + 1))
    assert came(large) == (True, "", b"", False)
    endless = read(b"HTTP/1.1 404 Not Found\r\n\r\n", b"x" * DISCARDED_BYTES_MAX, b"x")
    assert came(endless) == (True, "", b"", False)


@pytest.mark.parametrize("how", ["connection_reset", "read_timeout", "timeout"])
def test_a_broken_error_page_is_still_that_error(how: str) -> None:
    """The status says all; only a page that is kept must be whole."""
    for status, failure in ((b"404", ""), (b"200", "incomplete_body" if how == "connection_reset" else how)):
        answer = read(b"HTTP/1.1 " + status + b" X\r\nContent-Length: 50\r\n\r\nHello")
        answer.fail(how)
        assert (answer.done, answer.failure, answer.reusable) == (True, failure, False)


def test_robots_txt_is_cut_and_not_refused() -> None:
    """RFC 9309 2.5: the first part of a long file counts, whatever length is announced or hidden in a coding."""
    plain = read(OK + b"Content-Length: 9000000\r\n\r\n" + b"x" * 1_001, kind=Kind.ROBOTS, limits=SMALL)
    assert (plain.done, plain.failure, plain.truncated, len(plain.take_body())) == (True, "", True, 1_000)
    packed = zlib.compress(b"x" * 50_000_000)
    head = OK + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(packed)
    coded = read(head + packed, kind=Kind.ROBOTS, limits=SMALL)
    assert (coded.done, coded.failure, coded.truncated, len(coded.take_body())) == (True, "", True, 1_000)
    assert not plain.reusable


def encoded(name: str, data: bytes) -> bytes:
    """`data` in one coding; `raw` is deflate without its wrapper."""
    match name:
        case "gzip":
            return gzip.compress(data)
        case "deflate":
            return zlib.compress(data)
        case "raw":
            deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
            return deflate.compress(data) + deflate.flush()
        case "br":
            return bytes(brotli.compress(data, quality=4))
        case _:
            return zstandard.ZstdCompressor().compress(data)


def decode(names: Iterable[str], wire: bytes, step: int = 1 << 20, **limits: int) -> tuple[str, bytes]:
    """Error and body of a coded body fed in steps."""
    bounds = {"decoded_max": 10_000_000, "wire_max": 10_000_000, "ratio_max": 200} | limits
    decoder = BodyDecoder(tuple(name.replace("raw", "deflate") for name in names), **bounds)
    for start in range(0, len(wire), step):
        decoder.feed(wire[start : start + step])
    decoder.finish()
    return decoder.error, decoder.take()


NAMES = ["gzip", "deflate", "raw", "br", "zstd"]


@pytest.mark.parametrize("step", [1, 7, 1_000, 1 << 20])
@pytest.mark.parametrize("name", NAMES)
def test_every_coding_is_undone_however_it_is_cut(name: str, step: int) -> None:
    """The bytes of a page do not depend on how the network cut them."""
    text = TEXT[:50_000] if step < 1_000 else TEXT
    assert decode([name], encoded(name, text), step) == ("", text)


@pytest.mark.parametrize("step", [3, 1 << 20])
@pytest.mark.parametrize("name", NAMES)
def test_bytes_after_the_end_are_ignored(name: str, step: int) -> None:
    """Garbage that servers append to a coded body is no part of it, and no error."""
    for garbage in (b"garbage", b"\0" * 20, b"\x1f", b"\x28\xb5"):
        assert decode([name], encoded(name, b"Hello") + garbage, step) == ("", b"Hello")


@pytest.mark.parametrize("step", [5, 1 << 20])
@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_follow_one_another(name: str, step: int) -> None:
    """RFC 1952 2.2 and RFC 8878 3.1: a body may be several members, of which none may be lost."""
    assert decode([name], encoded(name, b"Hello ") + encoded(name, b"crawler"), step) == ("", b"Hello crawler")


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_coding_is_incomplete(name: str) -> None:
    """A coded body that stops early is a cut transfer, to be tried again."""
    assert decode([name], encoded(name, TEXT)[:-6])[0] == "incomplete_body"
    assert decode([name], b"") == ("", b"")


@pytest.mark.parametrize("name", NAMES)
def test_a_corrupt_coding_is_an_error(name: str) -> None:
    """Noise is never stored as if it were the page."""
    wire = bytearray(encoded(name, TEXT))
    for index in range(40, 400):
        wire[index] ^= 0xA5
    assert decode([name], bytes(wire))[0] in ("bad_encoding", "incomplete_body")
    assert decode([name], bytes(wire))[0] != ""


def test_a_wrong_checksum_is_an_error() -> None:
    """RFC 1952 2.3.1: the CRC is there to be looked at."""
    wire = gzip.compress(b"Hello")
    assert decode(["gzip"], wire[:-8] + b"\0\0\0\0" + wire[-4:])[0] == "bad_encoding"


@pytest.mark.parametrize("names", [["gzip", "gzip"], ["br", "gzip"], ["deflate", "zstd"]])
def test_layers_are_undone_from_the_last(names: list[str]) -> None:
    """RFC 9110 8.4: codings are listed in the order in which they were applied."""
    assert decode(names, encoded(names[1], encoded(names[0], TEXT))) == ("", TEXT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bound", [{"decoded_max": 2_000_000, "ratio_max": 1_000_000}, {"decoded_max": 1 << 30}])
def test_a_bomb_is_stopped_while_it_grows(name: str, bound: dict[str, int]) -> None:
    """Size and ratio are looked at between bounded steps: what is held stays near the limit, not near the bomb."""
    wire = encoded(name, b"\0" * 100_000_000)
    decoder = BodyDecoder((name.replace("raw", "deflate"),), **{"wire_max": 10_000_000, "ratio_max": 200} | bound)
    decoder.feed(wire)
    assert decoder.error == "too_large"
    assert decoder.decoded_bytes < max(2_000_000, 200 * len(wire)) + 16_000_000


def test_a_small_page_may_shrink_by_any_ratio() -> None:
    """The ratio is looked at from 1 MiB on: a blank page is no bomb."""
    assert decode(["gzip"], gzip.compress(b" " * 1_000_000))[0] == ""
    assert decode(["gzip"], gzip.compress(b" " * 1_100_000))[0] == "too_large"


def test_wire_bytes_are_bounded_too() -> None:
    """A coding that does not shrink cannot go round the limit."""
    assert decode([], b"x" * 1_001, 10, wire_max=1_000)[0] == "too_large"


@pytest.mark.parametrize(
    ("lines", "named", "error"),
    [
        ([], (), ""),
        ([b"identity", b"none", b""], (), ""),
        ([b"GZip"], ("gzip",), ""),
        ([b"x-gzip"], ("gzip",), ""),
        ([b"gzip , br"], ("gzip", "br"), ""),
        ([b"gzip", b"identity, deflate"], ("gzip", "deflate"), ""),
        ([b"gzip, gzip, gzip"], (), "too_many_encodings"),
        ([b"compress"], (), "unknown_encoding"),
        ([b"\xff"], (), "unknown_encoding"),
    ],
)
def test_codings_by_name(lines: list[bytes], named: tuple[str, ...], error: str) -> None:
    """Names in any case and over several lines; an unknown one is never passed over."""
    assert codings(lines, 2) == (named, error)


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_no_bytes_make_the_reader_raise(pieces: list[bytes], closes: bool) -> None:
    """Whatever a server sends becomes a value."""
    for head in (b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n", OK + b"Content-Encoding: br\r\n\r\n"):
        answer = read(head, *pieces, closes=closes)
        assert answer.done or not closes


@given(st.binary(max_size=300), st.lists(st.integers(1, 60), max_size=20), st.sampled_from(["length", "chunked"]))
def test_any_body_survives_any_framing_and_any_cut(body: bytes, cuts: list[int], framing: str) -> None:
    """The body is what was sent, however it was chunked and wherever the network cut it."""
    if framing == "length":
        raw = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        chunks = [body[start : start + 7] for start in range(0, len(body), 7)]
        raw = OK + b"Transfer-Encoding: chunked\r\n\r\n"
        raw += b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    pieces = []
    for cut in cuts:
        pieces.append(raw[:cut])
        raw = raw[cut:]
    assert came(read(*pieces, raw)) == (True, "", body, True)


def test_a_reader_after_its_error_takes_nothing_more() -> None:
    """A faulty answer cannot recover into a page."""
    reader = ResponseReader(LIMITS)
    reader.feed(b"<html>\n\n")
    reader.feed(OK + b"Content-Length: 0\r\n\r\n")
    assert (reader.error, reader.complete, reader.head) == ("bad_status_line", False, None)
