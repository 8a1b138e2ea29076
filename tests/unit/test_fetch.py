"""The fetch stage: the request of a lease, and the result of what came."""

from __future__ import annotations

import msgspec
import pytest

from schemas.records import FetchLease, FetchResult, Kind, Outcome, RobotsAnswer, RobotsDecision
from streams.core import fetch, policy
from streams.core.fetch import REFUSED, RETRIED, Exchange
from streams.core.http1 import Head, Headers
from streams.core.rules.http_dates import parse_http_date

NOW_MS = 1_717_243_200_000  # 2024-06-01T12:00:00Z
URL = "http://www.example.com/page?a=1"
AGENT = fetch.agent("Headrace/0.1 (+https://headrace.example/)", contact="crawl@headrace.example")
LEASE = FetchLease(
    lease_id=b"l" * 16,
    host_key="http://www.example.com",
    url_id=b"u" * 16,
    url=URL,
    url_version=3,
    kind=Kind.PAGE,
    attempt=1,
    policy_version=7,
    owner_epoch=2,
    not_before_ms=NOW_MS,
    start_by_ms=NOW_MS + 1_000,
    duration_ms_max=1_000,
    robots_for="http://asked.example",
)


def of(status: int, *headers: tuple[bytes, bytes], conditional: bool = False, lease: FetchLease = LEASE) -> FetchResult:
    """The result of a whole answer with these header lines."""
    head = Head(status, "", "1.1", headers)
    return fetch.outcome(lease, Exchange(NOW_MS - 5, NOW_MS, head=head, address="192.0.2.9"), conditional=conditional)


def lease(**changes: object) -> FetchLease:
    """LEASE with changes."""
    return msgspec.structs.replace(LEASE, **changes)


def request_lines(for_lease: FetchLease) -> list[str]:
    """The lines of the planned request."""
    return fetch.plan(for_lease, AGENT, now_ms=NOW_MS).request.decode("latin-1").split("\r\n")


def test_the_request_is_whole_and_its_order_is_fixed() -> None:
    """A site's log shows who asks, and nothing of one request differs from the next but what must."""
    assert request_lines(LEASE) == [
        "GET /page?a=1 HTTP/1.1",
        "Host: www.example.com",
        "User-Agent: Headrace/0.1 (+https://headrace.example/)",
        f"Accept: {fetch.ACCEPT}",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "From: crawl@headrace.example",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("url", "where", "host_line"),
    [
        ("http://a.example/", ("http", "a.example", 80), "Host: a.example"),
        ("https://a.example/", ("https", "a.example", 443), "Host: a.example"),
        ("http://a.example:8080/x", ("http", "a.example", 8080), "Host: a.example:8080"),
        ("http://[2001:db8::1]:81/", ("http", "2001:db8::1", 81), "Host: [2001:db8::1]:81"),
    ],
)
def test_a_plan_says_where_to_connect(url: str, where: tuple[str, str, int], host_line: str) -> None:
    """A port or an IPv6 host in the URL leads to that very server, and its Host line names it."""
    plan = fetch.plan(lease(url=url), AGENT, now_ms=NOW_MS)
    assert (plan.scheme, plan.host, plan.port) == where
    assert host_line in plan.request.decode().split("\r\n")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"etag": 'W/"a"'}, 'If-None-Match: W/"a"'),
        ({"etag": '"a"', "last_modified": "Wed, 01 May 2024 10:00:00 GMT"}, 'If-None-Match: "a"'),
        ({"last_modified": "Wed, 01 May 2024 10:00:00 GMT"}, "If-Modified-Since: Wed, 01 May 2024 10:00:00 GMT"),
        ({"etag": "\xe9"}, "If-None-Match: \xe9"),
        ({"last_modified": "Fri, 01 Jan 2100 00:00:00 GMT"}, None),
        ({"last_modified": "yesterday"}, None),
        ({"etag": "a\r\nX-Injected: 1"}, None),
        ({"etag": "a" * (policy.VALIDATOR_CHARS_MAX + 1)}, None),
        ({"etag": "\u0661"}, None),
        ({}, None),
    ],
)
def test_one_validator_as_it_was_received(changes: dict[str, str], line: str | None) -> None:
    """A validator that could freeze a page or break the request's head is never sent."""
    plan = fetch.plan(lease(**changes), AGENT, now_ms=NOW_MS)
    sent = [text for text in plan.request.decode("latin-1").split("\r\n") if text.startswith(("If-", "X-"))]
    assert sent == ([line] if line else [])
    assert plan.conditional is bool(line)


@pytest.mark.parametrize("bad", ["Headrace\r\nX: 1", " Headrace", "Head\x00race", "crawl\u0661"])
def test_a_user_agent_cannot_break_the_head(bad: str) -> None:
    """A name with a line end in it is our own mistake and stops the start."""
    with pytest.raises(AssertionError):
        fetch.agent(bad)


def test_the_product_token_is_what_robots_txt_calls_us() -> None:
    """Version and contact are no part of the name that rules are looked up by."""
    assert AGENT.product_token == "Headrace"
    assert fetch.agent("Headrace (+https://headrace.example/)").product_token == "Headrace"


@pytest.mark.parametrize("status", [200, 201, 202, 203, 204, 205, 226, 299])
def test_2xx_is_fetched(status: int) -> None:
    """Any successful answer is a page, an empty one too."""
    result = of(status, (b"Content-Type", b"text/html"), (b"ETag", b'"x"'))
    assert (result.outcome, result.error, result.status) == (Outcome.FETCHED, "", status)
    assert (result.content_type, result.etag) == ("text/html", '"x"')


def test_a_result_carries_its_lease() -> None:
    """Whoever gets a result can find the lease, the visit and the asking host again."""
    result = of(200)
    assert (result.lease_id, result.url_id, result.url_version, result.url) == (b"l" * 16, b"u" * 16, 3, URL)
    assert (result.host_key, result.kind, result.robots_for) == (LEASE.host_key, Kind.PAGE, "http://asked.example")
    assert (result.started_ms, result.finished_ms, result.address) == (NOW_MS - 5, NOW_MS, "192.0.2.9")


def test_304_counts_only_when_it_was_asked_for() -> None:
    """A 304 to a plain request must not pass for a page that has not changed."""
    assert of(304, conditional=True).outcome is Outcome.NOT_MODIFIED
    assert (of(304).outcome, of(304).error) == (Outcome.FAILED, "not_modified_unasked")


def test_a_part_is_no_page() -> None:
    """206 without a range asked for is not stored as if it were whole."""
    assert (of(206).outcome, of(206).error) == (Outcome.FAILED, "partial_content")


@pytest.mark.parametrize(
    ("status", "permanent"), [(300, False), (301, True), (302, False), (303, False), (307, False), (308, True)]
)
def test_a_redirect_is_a_result(status: int, permanent: bool) -> None:
    """The target is named in its normal form, and only 301 and 308 are for good."""
    result = of(status, (b"location", b"//Other.Example:80/a/../b#frag"))
    assert result.outcome is Outcome.REDIRECT
    assert result.redirect_target == "http://other.example/b"
    assert result.permanent is permanent


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], "no_location"),
        ([b""], "no_location"),
        ([b"http://[bad"], "bad_location"),
        ([b"/a", b"/b"], "bad_location"),
        ([b"ftp://ftp.example/x"], "bad_scheme"),
        ([b"javascript:alert(1)"], "bad_scheme"),
        ([b" FILE:///etc/passwd"], "bad_scheme"),
        ([b"http://a.example/" + b"x" * 3_000], "bad_location"),
        ([b"/page?a=1"], "redirect_loop"),
        ([b"#top"], "redirect_loop"),
    ],
)
def test_a_location_that_leads_nowhere_is_a_failure(lines: list[bytes], error: str) -> None:
    """No target is made up from a Location that has none, and a redirect to itself ends here."""
    result = of(302, *((b"Location", line) for line in lines))
    assert (result.outcome, result.error, result.redirect_target) == (Outcome.FAILED, error, None)
    assert not result.permanent


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        (b"/synspr\xc3\xb8ve", "http://www.example.com/synspr%C3%B8ve"),
        (b"/caf\xe9", "http://www.example.com/caf%C3%A9"),
        (b"?b=2", "http://www.example.com/page?b=2"),
        (b"HTTPS://A.example", "https://a.example/"),
    ],
)
def test_a_location_is_read_as_browsers_read_it(raw: bytes, target: str) -> None:
    """Sites write Location in raw UTF-8, in Latin-1, relative; all of them lead to one normal form."""
    assert of(301, (b"Location", raw)).redirect_target == target


@pytest.mark.parametrize("status", [305, 306, 309, 399])
def test_other_3xx_lead_nowhere(status: int) -> None:
    """A proxy that an answer names is not used, an unknown 3xx not followed."""
    assert of(status, (b"Location", b"/b")).outcome is Outcome.FAILED


@pytest.mark.parametrize("status", [408, 421, 425, 429, 500, 502, 503, 504, 507, 508, 509, 511, 520, 522, 530, 599])
def test_what_may_pass_is_tried_again(status: int) -> None:
    """Trouble of the site costs a page a delay, not its place."""
    result = of(status, (b"Retry-After", b"120"))
    assert (result.outcome, result.retry_after_ms) == (Outcome.RETRY, 120_000)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "bad_request"),
        (403, "forbidden"),
        (404, "not_found"),
        (410, "gone"),
        (414, "uri_too_long"),
        (451, "legal_reasons"),
        (418, "status_418"),
        (501, "not_implemented"),
        (505, "status_505"),
        (101, "status_101"),
        (600, "status_600"),
        (999, "status_999"),
    ],
)
def test_what_is_final_is_not_tried_again(status: int, error: str) -> None:
    """A final answer without a page is not asked for again within the visit, whatever Retry-After says."""
    result = of(status, (b"Retry-After", b"120"))
    assert (result.outcome, result.error, result.retry_after_ms) == (Outcome.FAILED, error, None)


def test_413_passes_only_with_retry_after() -> None:
    """RFC 9110 15.5.14: the header says that the condition is temporary."""
    assert of(413).outcome is Outcome.FAILED
    assert of(413, (b"Retry-After", b"5")).outcome is Outcome.RETRY


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("0", 0),
        ("120", 120_000),
        (" 120 ", 120_000),
        ("007", 7_000),
        ("9" * 5_000, policy.RETRY_AFTER_MS_MAX),
        ("Sat, 01 Jun 2024 12:10:00 GMT", 600_000),
        ("Saturday, 01-Jun-24 12:10:00 GMT", 600_000),
        ("Sat Jun  1 12:10:00 2024", 600_000),
        ("Sat, 01 Jun 2024 11:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", policy.RETRY_AFTER_MS_MAX),
        ("Sat, 01 Jun 2024 12:10:00 +0200", None),
        ("", None),
        ("-1", None),
        ("+60", None),
        ("1.5", None),
        ("60, 120", None),
        ("soon", None),
        ("\u0661\u0662\u0660", None),
    ],
)
def test_retry_after_by_its_grammar(text: str, span_ms: int | None) -> None:
    """Seconds or a date, bounded, never negative; anything else is as if it were not there."""
    assert fetch.retry_after(((b"Retry-After", text.encode()),), now_ms=NOW_MS) == span_ms


def test_the_longest_of_several_retry_after_counts() -> None:
    """A proxy's line must not shorten what the site asks for."""
    lines: Headers = ((b"Retry-After", b"60"), (b"retry-after", b"90"), (b"Retry-After", b"never"))
    assert fetch.retry_after(lines, now_ms=NOW_MS) == 90_000


@pytest.mark.parametrize(
    ("modified", "date", "kept"),
    [
        ("Wed, 01 May 2024 10:00:00 GMT", None, True),
        ("Sat, 01 Jun 2024 12:00:00 GMT", None, True),
        ("Sat, 01 Jun 2024 12:00:01 GMT", None, False),
        ("Sat, 01 Jun 2024 12:00:01 GMT", "Sat, 01 Jun 2024 12:00:02 GMT", True),
        ("Sat, 01 Jun 2024 11:00:00 GMT", "Sat, 01 Jun 2024 10:00:00 GMT", False),
        ("Fri, 01 Jan 2100 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT", False),
        ("0", None, False),
        ("", None, False),
    ],
)
def test_last_modified_beyond_the_date_is_not_kept(modified: str, date: str | None, kept: bool) -> None:
    """RFC 9110 8.8.2.1: else a page could be frozen until the year that it names."""
    lines = [(b"Last-Modified", modified.encode())]
    if date is not None:
        lines.append((b"Date", date.encode()))
    assert of(200, *lines).last_modified == (modified if kept else None)


def test_validators_of_errors_are_not_kept() -> None:
    """The ETag of an error page would make the page itself look unchanged."""
    assert of(404, (b"ETag", b'"e"')).etag is None
    assert of(304, (b"ETag", b'"e"'), conditional=True).etag == '"e"'


@pytest.mark.parametrize("failure", sorted(RETRIED))
def test_the_network_s_failures_may_pass(failure: str) -> None:
    """Every failure on the way is a value and is tried again."""
    result = fetch.outcome(LEASE, Exchange(NOW_MS, NOW_MS, failure=failure), conditional=True)
    assert (result.outcome, result.error, result.status) == (Outcome.RETRY, failure, 0)


@pytest.mark.parametrize("failure", sorted(REFUSED))
def test_what_we_refuse_is_said_so(failure: str) -> None:
    """A refusal by our own policy is never tried again as if the network had failed."""
    assert fetch.outcome(LEASE, Exchange(NOW_MS, NOW_MS, failure=failure), conditional=False).outcome is Outcome.REFUSED


@pytest.mark.parametrize("failure", ["too_large", "bad_encoding", "unknown_encoding", "header_too_large", "bad_chunk"])
def test_an_unreadable_answer_is_final_and_keeps_its_status(failure: str) -> None:
    """A page that cannot be read is a failure, and the fetch log shows what the site said."""
    head = Head(200, "OK", "1.1", ((b"ETag", b'"e"'),))
    result = fetch.outcome(LEASE, Exchange(NOW_MS, NOW_MS, failure=failure, head=head), conditional=False)
    assert (result.outcome, result.error, result.status, result.etag) == (Outcome.FAILED, failure, 200, None)


def test_an_expired_lease_has_no_answer() -> None:
    """A lease that came too late says so and counts as nothing asked."""
    result = fetch.expired(LEASE, now_ms=NOW_MS)
    assert (result.outcome, result.status, result.error) == (Outcome.EXPIRED, 0, "expired")


def test_robots_decides_where_it_differs_from_the_status() -> None:
    """A robots redirect is a hop or a failure, never a page's redirect; a whole 206 is an answer."""
    redirect = of(302, (b"Location", b"/r"))
    hop = fetch.with_robots(redirect, RobotsAnswer(RobotsDecision.HOP), "http://www.example.com/r")
    assert (hop.outcome, hop.redirect_target) == (Outcome.REDIRECT, "http://www.example.com/r")
    ended = fetch.with_robots(redirect, RobotsAnswer(RobotsDecision.DISALLOW_ALL), None)
    assert (ended.outcome, ended.redirect_target, ended.error) == (Outcome.FAILED, None, "too_many_redirects")
    whole = fetch.with_robots(of(206), RobotsAnswer(RobotsDecision.PARSE_RULES), None)
    assert (whole.outcome, whole.error) == (Outcome.FETCHED, "")
    missing = fetch.with_robots(of(404), RobotsAnswer(RobotsDecision.ALLOW_ALL), None)
    assert (missing.outcome, missing.error) == (Outcome.FAILED, "not_found")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
        ("Sun Nov  6 08:49:37 1994", 784_111_777),
        ("Sun, 6 Nov 1994 08:49:37 UTC", 784_111_777),
        ("Sun, 06 Nov 1994 08:49:60 GMT", 784_111_799),
        ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ("Sun, 06 Foo 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 24:49:37 GMT", None),
        ("1994-11-06T08:49:37Z", None),
        ("Sun, 0\u0666 Nov 1994 08:49:37 GMT", None),
    ],
)
def test_http_dates_in_three_forms(text: str, seconds: int | None) -> None:
    """RFC 9110 5.6.7: one form is sent, two old ones are still met, others are no dates."""
    assert parse_http_date(text, now_ms=NOW_MS) == (None if seconds is None else seconds * 1000)


def test_a_year_of_two_digits_is_never_far_in_the_future() -> None:
    """RFC 9110 5.6.7: more than 50 years ahead means the last century."""
    assert parse_http_date("Sunday, 06-Nov-74 08:49:37 GMT", now_ms=NOW_MS) == 3_308_719_777_000
    assert parse_http_date("Sunday, 06-Nov-75 08:49:37 GMT", now_ms=NOW_MS) == 184_495_777_000
