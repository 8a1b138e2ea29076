"""The contents page: the stages in the order in which a URL passes them, each with its inbox and its outboxes.

Every runner iterates `STAGES`. The prose of the same flow is the docstring of the package `streams`; what a topic
carries is `schemas.topics`.
"""

from __future__ import annotations

import msgspec

from schemas.topics import TOPICS, Group


class Stage(msgspec.Struct, frozen=True):
    """One step. The stages of one group run in one process and one order; `room` is its module."""

    name: str
    group: Group
    room: str
    inbox: tuple[str, ...]  # topics read
    outbox: tuple[str, ...]  # topics written


STAGES = (
    Stage(
        name="admit",
        group=Group.OWNER,
        room="streams.core.admit",
        inbox=("discovered-urls", "host-policies", "owner-messages"),
        outbox=("discovered-urls", "owner-messages", "dead-letters"),  # forwards what somebody sent to the wrong owner
    ),
    Stage(
        name="frontier",
        group=Group.OWNER,
        room="streams.core.frontier",
        inbox=("wake-ups",),
        outbox=("fetch-leases", "owner-messages"),
    ),
    Stage(
        name="fetch",
        group=Group.FETCH,
        room="streams.core.fetch",
        inbox=("fetch-leases",),
        outbox=("fetch-results", "dead-letters"),
    ),
    Stage(
        name="store",
        group=Group.FETCH,  # in the fetcher's process: a body never crosses a topic
        room="streams.core.store",
        inbox=(),
        outbox=("stored-results", "dead-letters"),
    ),
    Stage(
        name="complete",
        group=Group.OWNER,
        room="streams.core.complete",
        inbox=("fetch-results", "stored-results"),
        outbox=("discovered-urls", "parse-tasks", "parsed-pages", "owner-messages", "dead-letters"),
    ),
    Stage(
        name="parse",
        group=Group.PARSE,
        room="streams.core.parse",
        inbox=("parse-tasks",),
        outbox=("parsed-pages", "owner-messages", "dead-letters"),
    ),
    Stage(
        name="route",
        group=Group.ROUTE,
        room="streams.core.route",
        inbox=("parsed-pages",),
        outbox=("discovered-urls", "dead-letters"),
    ),
    Stage(
        name="index",
        group=Group.ROUTE,
        room="streams.core.indexing",  # on one machine the index is an export of the store
        inbox=(),  # what route read
        outbox=("index-events",),
    ),
)


def stage(name: str) -> Stage:
    """The stage of that name. Asserts that there is one."""
    found = [one for one in STAGES if one.name == name]
    assert found, f"no stage {name!r}; known: {', '.join(one.name for one in STAGES)}"
    return found[0]


def check(stages: tuple[Stage, ...] = STAGES) -> tuple[str, ...]:
    """What is wrong with the flow, a sentence each; empty when all holds. Runners call it before they start.

    Holds: every topic named exists; a topic is read by one stage at most, and by the group that its description names;
    every topic that a stage should read is read; what is written is written by a producer that the topic names.
    """
    readers: dict[str, list[Stage]] = {name: [] for name in TOPICS}
    for one in stages:
        for name in one.inbox:
            readers.setdefault(name, []).append(one)
    wrong = [
        f"stage {one.name}: topic {name!r} is not in schemas.topics"
        for one in stages
        for name in (*one.inbox, *one.outbox)
        if name not in TOPICS
    ]
    wrong += [
        f"stage {one.name} writes {name}, whose producers are {', '.join(TOPICS[name].producers)}"
        for one in stages
        for name in one.outbox
        if name in TOPICS and one.name not in TOPICS[name].producers
    ]
    ours = {one.group for one in stages}
    for name, topic in TOPICS.items():
        reading = readers[name]
        if len(reading) > 1:
            wrong.append(f"topic {name} is read by {' and '.join(one.name for one in reading)}; one reader is allowed")
        wrong += [
            f"topic {name} belongs to group {topic.group.value}, {one.name} is of {one.group.value}"
            for one in reading
            if one.group is not topic.group
        ]
        if not reading and topic.group in ours:
            wrong.append(f"topic {name} is read by no stage, its group is {topic.group.value}")
    return tuple(wrong)
