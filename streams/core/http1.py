"""Reads one HTTP/1.x answer from bytes as they come (RFC 9112). No I/O: the shell feeds it and looks at what is known.

Theory of operation
-------------------
A `ResponseReader` reads one answer to one GET. After each `feed` or `feed_eof` the shell looks at `head`, takes the
body's bytes from `pieces` (and empties the list), and stops at `complete` or at an `error`.

| state  | what comes                                   | next                                                      |
|--------|----------------------------------------------|-----------------------------------------------------------|
| HEAD   | a 1xx head other than 101                    | HEAD, INTERIM_HEADS_MAX times (RFC 9110 15.2)             |
| HEAD   | 204, 304, 101, or Content-Length 0           | DONE (RFC 9112 6.3, rule 1)                               |
| HEAD   | a last transfer coding `chunked`             | CHUNK_SIZE (rule 4); it overrides Content-Length (rule 3) |
| HEAD   | another transfer coding                      | TO_CLOSE (rule 4)                                         |
| HEAD   | Content-Length, one value however often said | LENGTH (rule 6); values that differ are an error (rule 5) |
| HEAD   | none of these                                | TO_CLOSE (rule 8)                                         |
| LENGTH | the last byte                                | DONE                                                      |
| CHUNK… | the chunk of size 0, then trailers           | DONE                                                      |
| any    | the connection's end                         | DONE in TO_CLOSE, else `error`                            |
| DONE   | more bytes                                   | `excess`: they answer nothing that was asked              |

`reusable` is true only when the answer ended where it said it would and nothing came after it.

Codes of `error`: `empty_reply`, `incomplete_head`, `incomplete_body`, `bad_status_line`, `header_too_large`,
`bad_content_length`, `bad_transfer_encoding`, `bad_chunk`, `too_many_interim`.
"""

from __future__ import annotations

import enum
import re

import msgspec

from streams.core.policy import CHUNK_LINE_BYTES_MAX, CONTENT_LENGTH_DIGITS_MAX, INTERIM_HEADS_MAX, FetchLimits

_HEAD_END = re.compile(rb"\n\r?\n")  # RFC 9112 2.2: a lone LF may be taken for a line's end
_STATUS_LINE = re.compile(rb"HTTP/(\d(?:\.\d)?)[ \t]+([1-9]\d\d)(?:[ \t]+([^\r\n]*))?[ \t]*", re.IGNORECASE)
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 5.6.2
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_NOT_IN_VALUE = bytes.maketrans(b"\0\r\n", b"   ")  # RFC 9110 5.5: replaced with SP

Headers = tuple[tuple[bytes, bytes], ...]
"""Header lines in order: names as received, values without the white space around them."""


class Head(msgspec.Struct, frozen=True):
    """A final status line and its header lines."""

    status: int
    reason: str
    version: str  # "1.1"
    headers: Headers


class _State(enum.Enum):
    HEAD = enum.auto()
    LENGTH = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK_DATA = enum.auto()
    CHUNK_END = enum.auto()
    TRAILERS = enum.auto()
    TO_CLOSE = enum.auto()
    DONE = enum.auto()


def values(headers: Headers, name: bytes) -> list[bytes]:
    """The values of all lines with this name (given in lower case), in order."""
    return [value for key, value in headers if key.lower() == name]


def list_members(lines: list[bytes]) -> list[bytes]:
    """The members of a comma-separated field, lower case, empty ones dropped (RFC 9110 5.6.1)."""
    return [member for line in lines for part in line.split(b",") if (member := part.strip(b" \t").lower())]


class ResponseReader:
    """See the module's text. One reader reads one answer."""

    __slots__ = (
        "_buffer",
        "_interim",
        "_limits",
        "_remaining",
        "_searched",
        "_state",
        "_trailer_bytes",
        "body_coded",
        "complete",
        "content_length",
        "error",
        "excess",
        "head",
        "persistent",
        "pieces",
    )

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._state = _State.HEAD
        self._buffer = b""  # what could not be read yet: part of a head, a chunk's size line, a trailer
        self._searched = 0
        self._interim = 0
        self._remaining = 0
        self._trailer_bytes = 0
        self.head: Head | None = None
        self.pieces: list[bytes] = []
        self.body_coded: tuple[str, ...] = ()  # transfer codings other than chunked, in the order applied
        self.content_length: int | None = None  # None when the head does not tell, or chunked overrides it
        self.complete = False
        self.error = ""
        self.excess = False
        self.persistent = False

    @property
    def reusable(self) -> bool:
        """Whether the next request may be sent on the same connection."""
        return self.complete and self.persistent and not self.excess and not self.error

    def feed(self, data: bytes) -> None:
        """Read what came. Body bytes land in `pieces`."""
        if self.error or not data:
            return
        if self._state is _State.LENGTH:  # the common case, nothing is buffered in this state
            self._length(data)
            return
        if self._state is _State.TO_CLOSE:
            self.pieces.append(data)
            return
        data = self._buffer + data if self._buffer else data
        self._buffer = b""
        while data and not self.error:
            left = self._step(data)
            if left is None:
                return
            data = left

    def feed_eof(self) -> None:
        """The other side has closed its half."""
        if self.error or self._state is _State.DONE:
            return
        if self._state is _State.TO_CLOSE:
            self._finish()
        elif self._state is _State.HEAD:
            self.error = "incomplete_head" if self._buffer.strip() else "empty_reply"
        else:
            self.error = "incomplete_body"

    def _step(self, data: bytes) -> bytes | None:
        """Read as far as the state goes; what is left, or None when more must come first."""
        match self._state:
            case _State.HEAD:
                return self._read_head(data)
            case _State.LENGTH:
                self._length(data)
                return None
            case _State.TO_CLOSE:
                self.pieces.append(data)
                return None
            case _State.CHUNK_SIZE:
                return self._chunk_size(data)
            case _State.CHUNK_DATA:
                return self._chunk_data(data)
            case _State.CHUNK_END:
                return self._chunk_end(data)
            case _State.TRAILERS:
                return self._trailer(data)
            case _State.DONE:
                self.excess = True
                return None

    def _finish(self) -> None:
        self._state = _State.DONE
        self.complete = True

    # --- head ---------------------------------------------------------------------------------------------------------

    def _read_head(self, data: bytes) -> bytes | None:
        if not self._searched and data[0] in b"\r\n":
            data = data.lstrip(b"\r\n")  # empty lines before a message (RFC 9112 2.2)
        end = _HEAD_END.search(data, max(0, self._searched - 2))
        if end is None:
            self._searched = len(data)
            self._buffer = data
            if len(data) > self._limits.header_bytes_max:
                self.error = "header_too_large"
            elif not b"HTTP/".startswith(data[:5].upper()):
                self.error = "bad_status_line"
            return None
        self._searched = 0
        if end.start() > self._limits.header_bytes_max:
            self.error = "header_too_large"
            return None
        head = self._parse_head(data[: end.start()])
        if head is None:
            return None
        if head.status < 200 and head.status != 101:
            self._interim += 1
            if self._interim > INTERIM_HEADS_MAX:
                self.error = "too_many_interim"
            return data[end.end() :]
        self.head = head
        self._begin_body(head)
        return data[end.end() :]

    def _parse_head(self, block: bytes) -> Head | None:
        """`block` is without the empty line that ends it. Sets `error` and returns None when it is no head."""
        lines = block.split(b"\n")
        status = _STATUS_LINE.fullmatch(lines[0].rstrip(b"\r"))
        if status is None:
            self.error = "bad_status_line"
            return None
        if len(lines) - 1 > self._limits.header_lines_max or max(map(len, lines)) > self._limits.header_line_bytes_max:
            self.error = "header_too_large"
            return None
        headers: list[tuple[bytes, bytes]] = []
        for line in lines[1:]:
            if line[:1] in (b" ", b"\t"):  # obs-fold, read as one SP (RFC 9112 5.2)
                if headers and (more := line.strip(b" \t\r")):
                    name, value = headers[-1]
                    headers[-1] = (name, value + b" " + more.translate(_NOT_IN_VALUE))
                continue
            name, colon, value = line.partition(b":")
            name = name.rstrip(b" \t")  # no space may stand there, but some servers put one (RFC 9112 5.1)
            if not colon or _TOKEN.fullmatch(name) is None:
                continue  # not a header line: what is not understood is left out
            headers.append((name, value.strip(b" \t\r").translate(_NOT_IN_VALUE)))
        version = status[1].decode()
        return Head(int(status[2]), (status[3] or b"").strip().decode("latin-1"), version, tuple(headers))

    def _begin_body(self, head: Head) -> None:
        """RFC 9112 section 6.3 in the order of its rules."""
        lengths: list[bytes] = []
        codings: list[bytes] = []
        connection: list[bytes] = []
        for name, value in head.headers:
            lower = name.lower()
            if lower == b"content-length":
                lengths.append(value)
            elif lower == b"transfer-encoding":
                codings.append(value)
            elif lower == b"connection":
                connection.append(value)
        options = list_members(connection)
        self.persistent = b"close" not in options and (head.version == "1.1" or b"keep-alive" in options)
        if head.status in (204, 304):
            self._finish()
            return
        if head.status == 101:  # never asked for: what follows is no HTTP
            self.persistent = False
            self._finish()
            return
        if codings:
            self._begin_coded(list_members(codings), overrides=bool(lengths))
            return
        if lengths:
            self._begin_length(lengths)
            return
        self._state = _State.TO_CLOSE
        self.persistent = False

    def _begin_coded(self, codings: list[bytes], *, overrides: bool) -> None:
        codings = [coding for coding in codings if coding != b"identity"]
        if overrides:
            self.persistent = False  # it may be an attempt to smuggle (RFC 9112 6.1)
        chunked = codings[-1:] == [b"chunked"]
        rest = codings[:-1] if chunked else codings
        if any(coding not in (b"gzip", b"x-gzip", b"deflate") for coding in rest):
            self.error = "bad_transfer_encoding"
            return
        self.body_coded = tuple(coding.decode() for coding in rest)
        if chunked:
            self._state = _State.CHUNK_SIZE
        else:
            self._state = _State.TO_CLOSE
            self.persistent = False

    def _begin_length(self, lengths: list[bytes]) -> None:
        said = {part.strip(b" \t") for line in lengths for part in line.split(b",")}
        if any(not part.isdigit() or len(part) > CONTENT_LENGTH_DIGITS_MAX for part in said):
            self.error = "bad_content_length"
            return
        numbers = {int(part) for part in said}
        if len(numbers) != 1:
            self.error = "bad_content_length"
            return
        self.content_length = self._remaining = numbers.pop()
        self._state = _State.LENGTH
        if self._remaining == 0:
            self._finish()

    # --- body ---------------------------------------------------------------------------------------------------------

    def _length(self, data: bytes) -> None:
        if len(data) > self._remaining:
            data = data[: self._remaining]
            self.excess = True
        self.pieces.append(data)
        self._remaining -= len(data)
        if self._remaining == 0:
            self._finish()

    def _line(self, data: bytes, bytes_max: int) -> tuple[bytes, bytes] | None:
        """The first line without its end, and the rest; None and buffered when it is not whole."""
        end = data.find(b"\n", self._searched, bytes_max)
        if end < 0:
            if len(data) >= bytes_max:
                self.error = "bad_chunk"
            self._searched = len(data)
            self._buffer = data
            return None
        self._searched = 0
        return data[:end].removesuffix(b"\r"), data[end + 1 :]

    def _whole_chunks(self, data: bytes) -> bytes:
        """The way of nearly all chunks: those that lie whole and plain in `data`. What is left is for the states."""
        at = 0
        while True:
            end = data.find(b"\r\n", at, at + 10)
            if end < 0 or not (size_text := data[at:end]).isalnum():
                return data[at:]
            try:
                size = int(size_text, 16)
            except ValueError:
                return data[at:]
            begin, at_next = end + 2, end + 4 + size
            if size == 0 or data[at_next - 2 : at_next] != b"\r\n":
                return data[at:]
            self.pieces.append(data[begin : at_next - 2])
            at = at_next

    def _chunk_size(self, data: bytes) -> bytes | None:
        if not self._searched:
            data = self._whole_chunks(data)
            if not data:
                return None
        found = self._line(data, CHUNK_LINE_BYTES_MAX)
        if found is None:
            return None
        line, rest = found
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            self.error = "bad_chunk"
            return None
        self._remaining = int(size[1], 16)
        self._state = _State.CHUNK_DATA if self._remaining else _State.TRAILERS
        return rest

    def _chunk_data(self, data: bytes) -> bytes | None:
        size = self._remaining
        if len(data) < size:
            self.pieces.append(data)
            self._remaining = size - len(data)
            return None
        self.pieces.append(data[:size])
        self._state = _State.CHUNK_END
        return data[size:]

    def _chunk_end(self, data: bytes) -> bytes | None:
        if data == b"\r":
            self._buffer = data
            return None
        for end in (b"\r\n", b"\n"):
            if data.startswith(end):
                self._state = _State.CHUNK_SIZE
                return data[len(end) :]
        self.error = "bad_chunk"
        return None

    def _trailer(self, data: bytes) -> bytes | None:
        """Trailer fields are left out: nothing that we use may stand there (RFC 9110 6.5.1)."""
        found = self._line(data, self._limits.header_line_bytes_max)
        if found is None:
            return None
        line, rest = found
        self._trailer_bytes += len(line)
        if self._trailer_bytes > self._limits.header_bytes_max:
            self.error = "header_too_large"
            return None
        if not line:
            self._finish()
        return rest
