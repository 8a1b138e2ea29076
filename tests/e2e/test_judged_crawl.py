"""A crawl of 50 hosts with manners of their own, killed and started again, before the outside judge."""

from __future__ import annotations

from pathlib import Path

from tests.support.judge_web import HOSTS
from tests.support.judged_crawl import judged_crawl


def test_a_killed_crawl_breaks_no_hosts_policy(tmp_path: Path) -> None:
    """Protects politeness as the hosts see it: by log and policies alone there is no breach, and much was asked."""
    judged = judged_crawl(tmp_path, seconds=36, kills=1, delay_ms=500)
    assert judged.breaches == []
    assert judged.hosts == HOSTS
    assert judged.requests > 10 * HOSTS, judged
    assert {200, 301, 302, 404, 429, 500, 503} <= set(judged.statuses), "every kind of answer was met"
    assert judged.robots_answers >= HOSTS
