"""One answer while it is received: what the framing gives goes through the decoding, until enough is known. Pure.

| the head says                       | then                                                                   |
|-------------------------------------|------------------------------------------------------------------------|
| a final answer whose body is kept   | decode it under the limits; refuse a Content-Length above them at once |
| the same, kind ROBOTS               | stop at `robots_bytes_max`, keep what is there, `truncated`            |
| a redirect, an error, anything else | read a small body, so that the connection lives; leave a large one     |

`done` with `failure` "" means that the answer is what `head` and `take_body` say. A failure in a body that is not kept
is none: the status says all.
"""

from __future__ import annotations

from schemas.records import Kind
from streams.core.decoding import BodyDecoder, codings
from streams.core.fetch import wants_body
from streams.core.http1 import Head, ResponseReader, values
from streams.core.policy import DISCARDED_BYTES_MAX, FetchLimits


class AnswerReader:
    """Fed by the connection; see the module's text."""

    __slots__ = (
        "_decoder",
        "_discarded_bytes",
        "_kind",
        "_limits",
        "_reader",
        "content_codings",
        "done",
        "failure",
        "head",
        "truncated",
    )

    def __init__(self, kind: Kind, limits: FetchLimits) -> None:
        self._kind = kind
        self._limits = limits
        self._reader = ResponseReader(limits)
        self._decoder: BodyDecoder | None = None
        self._discarded_bytes = 0
        self.head: Head | None = None
        self.content_codings = ""  # what was undone: "gzip", "gzip, br"
        self.done = False
        self.failure = ""
        self.truncated = False

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request after this answer."""
        return self.done and not self.failure and self._reader.reusable

    @property
    def wire_bytes(self) -> int:
        """Bytes of the body as received, without framing."""
        return self._decoder.wire_bytes if self._decoder is not None else self._discarded_bytes

    @property
    def held_bytes(self) -> int:
        """What is kept of the body so far, decoded."""
        return self._decoder.decoded_bytes if self._decoder is not None else 0

    def take_body(self) -> bytes:
        """The decoded body, once; b"" for an answer whose body is not kept."""
        return self._decoder.take() if self._decoder is not None else b""

    def feed(self, data: bytes) -> bool:
        """Bytes from the wire. Returns `done`."""
        if not self.done:
            self._reader.feed(data)
            self._advance()
        return self.done

    def feed_eof(self) -> None:
        """The other side has closed the connection in good order."""
        if not self.done:
            self._reader.feed_eof()
            self._advance()

    def fail(self, code: str) -> None:
        """The connection broke or the time is over: `code` says how. A body that is not kept does not matter."""
        if self.done:
            return
        if self.head is not None and self._decoder is None:
            self._finish("")
        elif code == "connection_reset" and self.head is not None:
            self._finish("incomplete_body")
        else:
            self._finish(code)

    def _finish(self, failure: str) -> None:
        self.done = True
        self.failure = failure

    def _advance(self) -> None:
        reader = self._reader
        if self.head is None and reader.head is not None:
            self.head = reader.head
            self._begin(reader.head)
            if self.done:
                return
        decoder = self._decoder
        if decoder is None:
            self._discard()
            return
        for piece in reader.pieces:
            decoder.feed(piece)
        reader.pieces.clear()
        if decoder.full:
            self.truncated = True
            self._finish("")
        elif decoder.error:
            self._finish(decoder.error)
        elif reader.error:
            self._finish(reader.error)
        elif reader.complete:
            decoder.finish()
            self._finish(decoder.error)

    def _begin(self, head: Head) -> None:
        limits = self._limits
        length = self._reader.content_length
        if not wants_body(head, self._kind):
            if length is not None and length > DISCARDED_BYTES_MAX:
                self._finish("")
            return
        named, error = codings(values(head.headers, b"content-encoding"), limits.codings_max)
        if error:
            self._finish(error)
            return
        named += codings([coding.encode() for coding in self._reader.body_coded], limits.codings_max)[0]
        length_max = limits.wire_bytes_max if named else min(limits.wire_bytes_max, limits.body_bytes_max)
        is_robots = self._kind is Kind.ROBOTS
        if length is not None and length > length_max and not is_robots:
            self._finish("too_large")
            return
        self.content_codings = ", ".join(named)
        self._decoder = BodyDecoder(
            named,
            decoded_max=limits.body_bytes_max,
            wire_max=limits.wire_bytes_max,
            ratio_max=limits.decode_ratio_max,
            cut_bytes=limits.robots_bytes_max if is_robots else None,
        )

    def _discard(self) -> None:
        """No head yet, or an answer whose body is not kept."""
        reader = self._reader
        if self.head is None:
            if reader.error:
                self._finish(reader.error)
            return
        self._discarded_bytes += sum(map(len, reader.pieces))
        reader.pieces.clear()
        if reader.complete or reader.error or self._discarded_bytes > DISCARDED_BYTES_MAX:
            self._finish("")
