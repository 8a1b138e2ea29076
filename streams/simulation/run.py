"""One seed: a web, a crawler of one of the two kinds, faults, and the judges."""

from __future__ import annotations

import traceback
from random import Random

import msgspec

from streams.core import policy as bounds
from streams.core.policy import CrawlPolicy, Politeness, TrapLimits
from streams.simulation.embedded_owner import Engine
from streams.simulation.faults import Faults
from streams.simulation.fleet_owner import Fleet
from streams.simulation.loop import START_MS, Loop, Violation
from streams.simulation.operator_words import Operator
from streams.simulation.owner_process import Setting
from streams.simulation.web import Web

RUN_MS = 26 * bounds.HOUR_MS
CALM_MS = bounds.HOUR_MS  # at the end: no more faults
LOOK_MS = 30 * bounds.MINUTE_MS

# (requests at once, delay) of an address and of a registrable domain
_FREE = (None, None)
SHARED_LIMITS: tuple[tuple[tuple[int | None, int | None], tuple[int | None, int | None]], ...] = (
    (_FREE, _FREE),
    (_FREE, _FREE),
    ((1, 300), _FREE),
    (_FREE, (1, 2_500)),
    ((2, None), (2, None)),
)


class Report(msgspec.Struct):
    """What came of one seed."""

    seed: int
    kind: str = ""
    hosts: int = 0
    fetches: int = 0
    completions: int = 0
    virtual_h: float = 0.0
    injected: dict[str, int] = {}
    lags_ms: list[int] = []  # of high-priority URLs, where there was capacity for all
    slowed: int = 0  # leases that are not among them: of hosts that go at a fraction of their pace
    digest: str = ""
    rule: str = ""  # the rule that was broken, "" when none was
    violation: str = ""
    last_events: list[str] = []


def policy_of(random: Random) -> CrawlPolicy:
    """The operator's policy of a seed."""
    address, domain = random.choice(SHARED_LIMITS)
    return CrawlPolicy(
        politeness=Politeness(
            delay_ms=random.choice((200, 1_000, 1_000, 5_000)),
            concurrency=random.choice((1, 1, 1, 1, 2)),
            budget_per_day=random.choice((100_000, 100_000, 100_000, 120)),
            address_concurrency=address[0],
            address_delay_ms=address[1],
            domain_concurrency=domain[0],
            domain_delay_ms=domain[1],
        ),
        revisit_ms_min=3 * bounds.HOUR_MS,
        revisit_ms_max=10 * bounds.HOUR_MS,
        traps=TrapLimits(template_urls_max=170, endless_template_urls_max=20, sample_every=64),
        lost_leases_max=20,
    )


def simulate(seed: int, run_ms: int = RUN_MS) -> Report:
    """Run one seed to its end or to the first violation."""
    loop = Loop(seed)
    random = loop.random("setting")
    faults = Faults(loop.random("faults"))
    end_ms = START_MS + run_ms
    web = Web(loop.random("web"), loop.random("answers"), faults, end_ms - 2 * CALM_MS)
    policy = policy_of(random)
    plenty = random.random() < 0.7  # capacity for all
    setting = Setting(loop, web, policy, faults, leases_max=64 if plenty else 4, parses_max=64 if plenty else 8)
    fleet = random.random() < 0.5
    runner: Engine | Fleet = Fleet(setting, end_ms - 2 * CALM_MS) if fleet else Engine(setting)
    report = Report(seed, kind="fleet" if fleet else "embedded", hosts=len(web.hosts))
    try:
        loop.at(START_MS, runner.start)
        Operator(setting, runner.send, end_ms - 2 * CALM_MS)
        at_ms = START_MS
        while at_ms < end_ms:
            at_ms += LOOK_MS
            faults.calm = at_ms > end_ms - CALM_MS
            loop.run(at_ms)
            setting.judges.flow.look(runner.store, loop.now_ms)
            if isinstance(runner, Fleet):
                runner.check_home()
        while not runner.quiet():
            loop.run(loop.now_ms + bounds.SECOND_MS)
        setting.judges.books.audit(runner.store, runner.waiting_tasks())
        if isinstance(runner, Fleet):
            runner.check_rows()
    except Violation as violation:
        _failed(report, loop, violation.rule, str(violation), violation.host_key)
    except AssertionError as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        _failed(
            report, loop, "assertion", f"{where.name} ({where.filename.rpartition('/')[2]}:{where.lineno}): {error}", ""
        )
    report.fetches = setting.judges.politeness.requests
    report.completions = setting.judges.books.completions
    report.virtual_h = (loop.now_ms - START_MS) / bounds.HOUR_MS
    report.injected = faults.injected
    if plenty and policy.politeness.budget_per_day > 10_000 and not setting.judges.politeness.limits:
        report.lags_ms, report.slowed = setting.judges.flow.lags_ms, setting.judges.flow.slowed
    report.digest = loop.digest()
    return report


def _failed(report: Report, loop: Loop, rule: str, text: str, host_key: str) -> None:
    report.rule, report.violation = rule, text
    report.last_events = loop.recent(host_key)
