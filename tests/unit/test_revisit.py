"""When a page is fetched again."""

from __future__ import annotations

from streams.core import policy as bounds
from streams.core.policy import DAY_MS, CrawlPolicy
from streams.core.rules import revisit

POLICY = CrawlPolicy()


def test_every_interval_lies_within_the_policy() -> None:
    """Protects the bounds of 1 and 30 days, whatever is learnt."""
    for interval_ms in (0, 1, DAY_MS, 7 * DAY_MS, 400 * DAY_MS):
        for rule in (revisit.changed_interval_ms, revisit.unchanged_interval_ms):
            assert POLICY.revisit_ms_min <= rule(interval_ms, POLICY) <= POLICY.revisit_ms_max
    for priority in range(256):
        assert POLICY.revisit_ms_min <= revisit.first_interval_ms(priority, POLICY) <= POLICY.revisit_ms_max


def test_a_change_shortens_and_no_change_lengthens() -> None:
    """Protects the direction of learning."""
    assert revisit.changed_interval_ms(8 * DAY_MS, POLICY) == 4 * DAY_MS
    assert revisit.unchanged_interval_ms(8 * DAY_MS, POLICY) == 12 * DAY_MS


def test_value_comes_first() -> None:
    """Protects the start: the more a page is worth, the sooner its second visit."""
    intervals = [revisit.first_interval_ms(priority, POLICY) for priority in range(256)]
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[0] > intervals[255]


def test_gone_is_looked_at_once_more_and_then_rests() -> None:
    """Protects a page from one blunder of its site, and the site from being asked for what it does not have."""
    assert revisit.gone_interval_ms(1, POLICY) == POLICY.revisit_ms_min
    assert revisit.gone_interval_ms(bounds.TOMBSTONE_AFTER_VISITS, POLICY) == bounds.TOMBSTONE_REVISIT_MS


def test_a_denied_url_comes_up_when_the_rules_that_deny_it_are_too_old() -> None:
    """Protects the next look: slots begin early, so a URL that was denied waits a slot longer than a copy serves."""
    assert revisit.denied_interval_ms(POLICY) >= bounds.ROBOTS_TTL_MS + bounds.REVISIT_SLOT_MS
