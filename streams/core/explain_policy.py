"""Words and limits, in words: what an operator said of a host and until when, what it shares, how near a limit is."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from schemas.records import HostPolicy
from streams.core.budget import Budget
from streams.core.host_policy import Blocked, Change, Standing, Word
from streams.core.hosts import NEVER_MS, HostState
from streams.core.permits import HostPermits, Phase
from streams.core.policy import Politeness, TrapLimits
from streams.core.rows import QueueClass
from streams.core.rules.traps import TemplateCounts, template
from streams.core.rules.urls import host_key
from streams.core.sharing import describe

Sentence = tuple[str, str]
"""(label, sentence)."""


def explain_words(standings: Sequence[Standing], version: int) -> list[Sentence]:
    """The words on one host, the nearest first; nothing when there are none. `version`: under which it is granted."""
    sentences: list[Sentence] = []
    for standing in reversed(standings):
        if standing.exception is not None:
            until = f"until {instant(standing.until_ms)}" if standing.until_ms < NEVER_MS else "without a date"
            sentences.append(("exception", f"{_about(standing)}, {until}: {values(standing.exception)}"))
        if standing.lasting != Word():
            sentences.append(("operator", f"{_about(standing)}: {values(standing.lasting)}"))
    if sentences:
        sentences.append(("policy", f"version {version}"))
    return sentences


def explain_block(host: HostState | None, url: str) -> list[Sentence]:
    """Whether an operator keeps the URL from being fetched, whatever else holds."""
    override = None if host is None else host.override
    if override is None:
        return []
    if override.deleted:
        return [("operator", "the host is deleted: nothing of it is fetched until it is resumed")]
    if override.paused:
        return [("operator", "the host is paused: nothing of it is fetched until it is resumed")]
    pattern = Blocked().by(override.blocked_patterns, url)
    return [] if pattern is None else [("operator", f"blocked by the pattern {pattern}")]


def explain_groups(permits: HostPermits | None, now_ms: int) -> list[Sentence]:
    """The permits of a host that shares limits with others."""
    if permits is None:
        return []
    sentences: list[Sentence] = []
    if permits.address:
        believed = f"until {instant(permits.address_until_ms)}" if permits.address_until_ms > now_ms else "no longer"
        sentences.append(("address", f"{permits.address}, believed {believed}"))
    for group, permit in permits.permits.items():
        if permit.phase is Phase.ASKED:
            said = f"waits for its turn since {instant(permit.since_ms)}: the limit is shared by all hosts of it"
        else:
            said = f"has leave for one request until {instant(permit.until_ms)}"
        sentences.append((group.partition(":")[0], f"{group}: {said}"))
    return sentences


def explain_budget(budget: Budget, now_ms: int) -> list[Sentence]:
    """What is left of the crawl's daily budget, for the classes that have one."""
    said = []
    for queue, what in (
        (QueueClass.NEW, "new URLs"),
        (QueueClass.RETRY, "retries"),
        (QueueClass.REVISIT, "known URLs"),
    ):
        left = budget.left(queue, now_ms)
        if left is not None:
            said.append(f"{left} requests for {what}" if left else f"none for {what} until the next day")
    return [("all hosts", f"left of today's budget (UTC): {', '.join(said)}")] if said else []


def explain_pattern(url: str, counts: TemplateCounts, limits: TrapLimits) -> list[Sentence]:
    """How near the URL's template is to the limit of the trap rule; nothing below half of it."""
    pattern = template(url)
    seen, limit = counts.told(pattern, limits)
    if seen * 2 < limit:
        return []
    shown = pattern.removeprefix(host_key(url))
    said = f"{seen:,} of {limit:,} URLs of the pattern {shown} are known"
    if seen >= limit:
        said += f": it is paused, and of its new URLs one in {limits.sample_every:,} is taken"
    return [("trap", said)]


def describe_change(change: Change) -> str:
    """One line of the history."""
    policy = change.policy
    if change.politeness is not None:
        said = configuration(change.politeness)
    else:
        said = _change_values(policy)
    if change.error:
        said = f"refused: {change.error}"
    return f"version {policy.policy_version}, {instant(change.applied_ms)}, {policy.host_key or 'the crawl'}: {said}"


def values(word: Word) -> str:
    """`delay 5000 ms, 2 at once, paused`."""
    said = []
    if word.delay_ms is not None:
        said.append(f"delay {word.delay_ms} ms")
    if word.concurrency is not None:
        said.append(f"{word.concurrency} at once")
    if word.budget_per_day is not None:
        said.append(f"{word.budget_per_day} requests a day")
    if word.blocked_patterns:
        said.append(f"blocked {', '.join(word.blocked_patterns)}")
    elif word.blocked_patterns is not None:
        said.append("nothing blocked")
    if word.paused is not None:
        said.append("paused" if word.paused else "not paused")
    if word.deleted is not None:
        said.append("deleted" if word.deleted else "not deleted")
    return ", ".join(said) or "nothing"


def configuration(politeness: Politeness) -> str:
    """The crawl's own politeness."""
    said = (
        f"delay {politeness.delay_ms} ms, {politeness.concurrency} at once, {politeness.budget_per_day} requests a day"
    )
    if not politeness.respect_robots:
        said += ", robots.txt not obeyed"
    return "; ".join((said, *describe(politeness)))


def instant(ms: int) -> str:
    """`2026-11-30 15:07:41Z`."""
    try:
        return datetime.datetime.fromtimestamp(ms / 1_000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return f"{ms} ms"


def _about(standing: Standing) -> str:
    return f"version {standing.version} for {standing.key}"


def _change_values(policy: HostPolicy) -> str:
    word = Word(
        policy.delay_ms,
        policy.concurrency,
        policy.budget_per_day,
        policy.blocked_patterns,
        policy.paused,
        policy.deleted,
    )
    said = [] if word == Word() else [values(word)]
    if policy.reset:
        said.insert(0, "earlier words forgotten")
    said += [f"block {pattern}" for pattern in policy.block]
    said += [f"unblock {pattern}" for pattern in policy.unblock]
    if policy.until_ms is not None:
        said.append(f"until {instant(policy.until_ms)}" if said else f"the exception ends {instant(policy.until_ms)}")
    return ", ".join(said) or "nothing"
