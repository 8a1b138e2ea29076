"""The owner in a little web with everything that goes wrong: crashes, lost, late, repeated and reordered messages.

`_Run` drives; `Judge` and `Auditor` judge, and share nothing with it but the records. A failing seed replays alone.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import FetchLease, FetchResult, Outcome, ParsedPage, ParseTask, StoredResult
from streams.core import backqueue
from streams.core.hosts import NEVER_MS
from streams.core.owner import Event
from streams.core.policy import DAY_MS, CrawlPolicy, Politeness
from streams.core.rows import Status, decode_row
from streams.core.tasks import decode_task
from streams.core.turn import Family, Turn
from tests.support.core_checkers import Auditor, Judge
from tests.support.core_world import World, parsed, stored
from tests.support.little_web import LittleWeb

STEPS = 80  # with everything that goes wrong
CALM_STEPS_MAX = 4_000  # until the crawl must have ended

Message = FetchResult | StoredResult | ParsedPage


class _Run:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.web = LittleWeb(self.dice)
        policy = CrawlPolicy(
            politeness=Politeness(
                delay_ms=self.dice.choice((0, 1_000)),
                concurrency=self.dice.choice((1, 1, 3)),
                budget_per_day=self.dice.choice((12, 100_000)),
            ),
            lost_leases_max=1_000,
        )
        self.world = World(policy, jitter=self.dice.random, index_rows_max=self.dice.choice((1, 5, 1_000)))
        self.world.now_ms -= self.world.now_ms % DAY_MS  # so that a budget is met with whole days
        self.world.restart()
        self.judge, self.auditor = Judge(self.web, policy), Auditor()
        self.leases: list[FetchLease] = []  # out, unanswered
        self.messages: list[Message] = []  # on their way to the owner
        self.old: list[Message] = []  # delivered before
        self.world.seed(*self.web.seeds)

    def chaos(self) -> None:
        dice = self.dice
        for _ in range(STEPS):
            what = dice.choice(("turn",) * 8 + ("crash", "restart", "takeover", "lose", "seed", "index"))
            if what == "turn":
                self._turn()
            elif what == "crash":
                self._turn(commit=False)
                self._restart()
            elif what == "restart":
                self._restart()
            elif what == "takeover":
                self.world.restart(close_leases=False)
            elif what == "index":  # another worker takes over, whose disk has none
                self.world.store.clear_index()
                self.world.restart(close_leases=False)
            elif what == "lose" and self.leases:
                self.leases.pop(dice.randrange(len(self.leases)))  # its fetcher died: no result will come
            elif what == "seed":
                self.world.seed(*self.web.seeds)
                self.judge.passed(self.world.now_ms)
            self._pass(dice.choice((0, 0, 50, 1_000, 5_000, 30_000, 200_000)))

    def calm(self) -> None:
        """Nothing goes wrong any more: everything must come to its end."""
        for _ in range(CALM_STEPS_MAX):
            self._turn(everything=True)
            if self.leases or self.messages:
                continue
            totals = self.world.owner.totals
            in_flight = any(slot.state.in_flight for slot in self.world.owner.hosts.in_memory())
            settled = not totals.queued_new and not totals.queued_retry and not in_flight
            if settled and not self.world.owner.index.loading:
                return
            next_ms = self.world.owner.next_ms()
            assert next_ms < NEVER_MS, "work is left and nothing will ever look at it"
            self._pass(max(1, next_ms - self.world.now_ms))
        raise AssertionError("the crawl does not end")

    def _turn(self, *, everything: bool = False, commit: bool = True) -> None:
        dice, world = self.dice, self.world
        while self.leases and (everything or dice.random() < 0.5):
            lease = self.leases.pop(dice.randrange(len(self.leases)))
            self.messages.append(self.web.answer(lease, world.now_ms))
        events: list[Event] = []
        while self.messages and (everything or dice.random() < 0.7):
            message = self.messages.pop(dice.randrange(len(self.messages)))
            events.append(message)
            self.old.append(message)
        if self.old and not everything and dice.random() < 0.3:
            events.append(dice.choice(self.old))
        turn = world.turn(*events, leases_max=dice.choice((0, 2, 100)) if not everything else 100, commit=commit)
        if commit:
            self._committed(turn, events)

    def _committed(self, turn: Turn, events: list[Event]) -> None:
        now_ms = self.world.now_ms
        for event in events:
            if isinstance(event, FetchResult):
                self.judge.received(event, now_ms)
        self.judge.passed(now_ms)
        for lease in turn.leases:
            self.judge.granted(lease, now_ms)
        for entry in turn.log:
            if entry.result.outcome is Outcome.FETCHED and entry.result.robots is None:
                self.messages.append(stored(entry.result, entry.result.url_id * 2))
        self.leases += turn.leases
        self.messages += [self._parsed(task) for task in turn.tasks]
        self.auditor.check(self.world.store, self.world.owner)

    def _parsed(self, task: ParseTask) -> ParsedPage:
        return parsed(task, *self.web.pages[task.url].links)

    def _restart(self) -> None:
        """The process is gone, with its requests and its memory; what it sent may still arrive late."""
        self.old += self.messages
        self.messages = []
        self.leases = []
        self.judge.closed(self.world.now_ms)
        self.world.restart()
        self.messages += [self._parsed(decode_task(raw)) for _, raw in self.world.store.tasks()]
        self.auditor.check(self.world.store, self.world.owner)

    def _pass(self, span_ms: int) -> None:
        self.world.now_ms += span_ms


def _run(seed: int) -> None:
    run = _Run(seed)
    run.chaos()
    run.calm()
    rows = [decode_row(raw) for raw in run.world.store.families[Family.URL].values()]
    assert {row.url for row in rows} == run.web.reachable()
    for row in rows:
        page = run.web.pages[row.url]
        assert row.status is not Status.NEW, row.url
        assert (row.status is Status.DENIED) == (not run.web.allows(row.url)), row.url
        if run.web.allows(row.url) and page.status == 200 and page.fails < 1_000:
            assert row.status is (Status.FETCHED if page.redirect is None else Status.REDIRECT), row.url
    assert not run.world.store.families[Family.TASK], "a body was never parsed"
    _index_is_the_same_when_it_is_made_anew(run)


def _index_is_the_same_when_it_is_made_anew(run: _Run) -> None:
    """The owner is lost again and again on the way, with the turn that it had in hand."""
    world, kept = run.world, [dict(run.world.store.families[family]) for family in (Family.QUEUE, Family.SEEN)]
    world.lose_index()
    for _ in range(run.dice.randrange(6)):
        turn = world.owner.load_index(world.now_ms)
        if run.dice.random() < 0.6:
            world.store.commit(turn.writes)
        world.restart()
        run.auditor.check(world.store, world.owner)
    world.load_index()
    run.auditor.check(world.store, world.owner)
    assert [dict(world.store.families[family]) for family in (Family.QUEUE, Family.SEEN)] == kept


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_polite_and_complete_whatever_goes_wrong(seed: int) -> None:
    """Protects politeness, the books and every URL against crashes and lost, late, repeated and reordered messages."""
    _run(seed)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32))
def test_windows_of_the_back_queues_are_as_good_as_the_queues(seed: int) -> None:
    """Protects the same with windows of two URLs, so that refills and evictions happen all the time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backqueue, "WINDOW_URLS_MAX", 2)
        _run(seed)
