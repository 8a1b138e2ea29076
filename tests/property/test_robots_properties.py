"""Properties of robots rules that no list of examples covers."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from schemas.records import RobotsAnswer, RobotsDecision
from streams.core import policy
from streams.core.robots_fetch import RobotsState, after_answer, changes_at_ms, decide, usable
from streams.core.rules.robots import RobotsRules, describe, parse
from streams.core.rules.robots_match import canonical_pattern

HOST = "http://example.org"
AGENTS = ("headrace", "otherbot", "*")

paths = st.builds("/{}".format, st.text("ab/c?*$", max_size=8))
patterns = st.builds("/{}{}".format, st.text("ab/c*", max_size=6), st.sampled_from(["", "$"]))
rules = st.tuples(st.sampled_from(["Allow", "Disallow"]), patterns)
groups = st.tuples(st.lists(st.sampled_from(AGENTS), min_size=1, max_size=2), st.lists(rules, min_size=1, max_size=6))
files = st.lists(groups, max_size=4)


def text_of(file: list[tuple[list[str], list[tuple[str, str]]]]) -> str:
    lines = []
    for names, body in file:
        lines += [f"User-agent: {name}" for name in names] + [f"{field}: {path}" for field, path in body] + [""]
    return "\n".join(lines)


@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode), st.text(max_size=20), st.text(max_size=40))
def test_any_bytes_are_a_file(body: bytes, token: str, url: str) -> None:
    """No site can raise an exception in the fetcher or the owner."""
    parsed = parse(body, token, base_url=HOST)
    stored = RobotsRules.decode(parsed.encode())
    for asked in (url, HOST + url, f"{HOST}/{url}"):
        assert parsed.allows(asked) is stored.allows(asked)
        assert describe(parsed, asked)["allowed"] is stored.allows(asked)


@given(
    st.lists(
        st.sampled_from([b"User-agent: *", b"Disallow: ", b"Allow:/", b"\xff*", b"%2", b"$", b"\r", b"#", b":", b"<a>"])
    )
)
def test_any_mixture_of_our_own_words_is_a_file(parts: list[bytes]) -> None:
    """As above, near the grammar, where the branches are."""
    parsed = parse(b"\n".join(parts), "x") if len(parts) % 2 else parse(b"".join(parts), "x")
    assert RobotsRules.decode(parsed.encode()).rules == parsed.rules


@given(files, paths, st.sampled_from(AGENTS[:2]))
@settings(max_examples=400)
def test_ordinary_files_mean_what_protego_makes_of_them(
    file: list[tuple[list[str], list[tuple[str, str]]]], path: str, agent: str
) -> None:
    """An implementation by others agrees where both follow the RFC."""
    text = text_of(file)
    # Protego reads "$" as the letter, too, which the RFC does not.
    if "$" in path or "*" in path:
        path = re.sub(r"[$*]", "", path)
    assert parse(text.encode(), agent).allows(HOST + path) is Protego.parse(text).can_fetch(HOST + path, agent), text


def reference(pattern: str, path: str) -> bool:
    """2.2.3 as a table: which prefixes of the path each prefix of the pattern can take."""
    anchored = pattern.endswith("$")
    reached = {0}
    for letter in pattern.removesuffix("$"):
        if letter == "*":
            reached = set(range(min(reached), len(path) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(path) and path[at] == letter}
    return len(path) in reached if anchored else bool(reached)


@given(st.lists(rules, min_size=1, max_size=60), st.builds("/{}".format, st.text("ab/c", max_size=12)))
@settings(max_examples=300)
def test_the_winner_is_the_longest_match_and_allow_wins_ties(body: list[tuple[str, str]], path: str) -> None:
    """The layout for speed decides as the definition does: try all, take the longest, of equals Allow."""
    text = text_of([(["*"], body)])
    matching = [(len(pattern), field == "Allow") for field, pattern in body if reference(pattern, path)]
    assert parse(text.encode(), "x").allows(HOST + path) is (max(matching)[1] if matching else True)


@given(st.text("aZ09%2fFeE*$?/~:&= ü\x00", max_size=12))
def test_the_canonical_form_is_stable(text: str) -> None:
    """A rule in canonical form is its own canonical form."""
    once = canonical_pattern(f"/{text}".encode())
    assert canonical_pattern(once.encode()) == once


answers = st.sampled_from(
    [RobotsAnswer(d, b"r" if d is RobotsDecision.PARSE_RULES else b"") for d in RobotsDecision]
    + [RobotsAnswer(RobotsDecision.ALLOW_ALL, max_age_ms=age) for age in (0, policy.HOUR_MS, 10**12)]
)
steps = st.tuples(answers, st.integers(0, 2 * policy.DAY_MS), st.none() | st.integers(0, 2 * policy.DAY_MS))


@given(st.lists(steps, max_size=12), st.integers(0, 3 * policy.DAY_MS))
def test_no_copy_ever_serves_past_24_hours(history: list[tuple[RobotsAnswer, int, int | None]], later_ms: int) -> None:
    """Whatever came, a page is granted only under a copy of the last 24 h, and a waiting host wakes up again."""
    state, now_ms, copied_ms = RobotsState(), 1_000, -policy.DAY_MS
    for answer, passed_ms, retry_after_ms in history:
        now_ms += passed_ms
        state = after_answer(state, answer, now_ms, retry_after_ms)
        if answer.decision in (RobotsDecision.PARSE_RULES, RobotsDecision.ALLOW_ALL):
            copied_ms = now_ms
    at_ms = now_ms + later_ms
    use = usable(state, at_ms)
    if use in ("rules", "allow_all"):
        assert at_ms - copied_ms < policy.ROBOTS_TTL_MS
    if use == "disallow_all":
        assert at_ms < changes_at_ms(state, at_ms) <= at_ms + policy.DAY_MS
    for _ in range(4):
        at_ms = max(at_ms, changes_at_ms(state, at_ms))
    assert usable(state, at_ms) == "ask"


@given(
    st.integers(0, 999),
    st.sampled_from(["", "connection_reset"]),
    st.lists(st.tuples(st.sampled_from([b"Location", b"Cache-Control", b"Content-Range"]), st.binary(max_size=30))),
    st.binary(max_size=60),
    st.integers(0, 9),
)
def test_every_answer_has_a_meaning(
    status: int, failure: str, headers: list[tuple[bytes, bytes]], body: bytes, hops: int
) -> None:
    """No server can raise an exception in the fetcher; a hop has a target, and nothing else has one."""
    answer, target = decide(
        status, failure, headers, body, request_url=HOST + "/robots.txt", hops_so_far=hops, product_token="x"
    )
    assert (answer.decision is RobotsDecision.HOP) is (target is not None)
    assert bool(answer.rules) is (answer.decision is RobotsDecision.PARSE_RULES)
