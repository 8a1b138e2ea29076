"""Records that are read together are the ones that were asked for, wherever they lie, and few requests are made."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from connectors import bodies_together
from connectors.bodies_together import BodiesTogether, spans
from connectors.object_store import ObjectStore
from schemas.records import BodyRef
from streams.core.store import conversion_record
from tests.support.fake_s3 import BUCKET, FakeS3

refs = st.builds(
    BodyRef,
    st.sampled_from(("warc/a", "warc/b")),
    st.integers(0, 20 << 20),
    st.integers(1, 6 << 20),
)


@given(st.lists(refs, max_size=40))
def test_every_record_lies_whole_in_one_span(asked: list[BodyRef]) -> None:
    """Protects against a body cut at the edge of a request, or read as another's."""
    found = spans(asked)
    assert sorted(member for span in found for member in span.members) == list(range(len(asked)))
    for span in found:
        for member in span.members:
            ref = asked[member]
            assert (span.segment, span.start <= ref.offset_bytes) == (ref.segment, True)
            assert ref.offset_bytes + ref.record_bytes <= span.end
        assert len(span.members) == 1 or span.end - span.start <= bodies_together.SPAN_BYTES_MAX


def test_neighbours_come_by_one_request_and_what_is_lost_costs_itself() -> None:
    """Protects the number of requests, the order of bodies, and good ones beside damaged and missing ones."""
    texts = [f"text {number}".encode() for number in range(30)]
    members = [conversion_record("http://a.test/", 1, number, text) for number, text in enumerate(texts)]
    asked, at = [], 0
    for member in members:
        asked.append(BodyRef("parsed/x", at, len(member)))
        at += len(member)
    damaged = b"".join(members[:10]) + bytes(len(members[10])) + b"".join(members[11:])
    s3 = FakeS3()
    objects = ObjectStore(s3, BUCKET)
    objects.put("parsed/x", damaged)
    lost = BodyRef("parsed/nowhere", 0, 9)
    with ThreadPoolExecutor(2) as threads:
        before = s3.calls.total()
        order = [*reversed(asked), lost]
        found = asyncio.run(BodiesTogether(objects, threads).read(order))
    assert s3.calls.total() - before == 2
    expected = [None if number == 10 else text for number, text in enumerate(texts)]
    assert found == [*reversed(expected), None]
