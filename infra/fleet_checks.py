"""What must hold before a worker starts; each check raises one sentence with its remedy, and nothing is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from infra.provision import topics
from infra.provision.kafka_admin import ConfluentAdmin
from infra.provision.steps import Verdict
from infra.settings_fleet import Fleet
from schemas.topics import APP_PREFIX, TOPICS, is_group_of
from streams import topology
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["Readers", "check_data", "check_readers", "check_stages", "check_topics"]

_DATADIR_VARIABLES = ("F_DATADIR", "APP_DATADIR", "FAUST_DATADIR")  # the first is Faust's own --datadir


class Readers(Protocol):
    """What is asked of a cluster about who reads."""

    def readers(self) -> Mapping[str, Iterable[str]]:
        """The groups that read each topic now."""
        ...


def check_stages(fleet: Fleet) -> None:
    """At least one stage, none twice, and a flow in which each topic has one reader. Raises CrawlError."""
    wrong = topology.check()
    assert not wrong, wrong
    if not fleet.stages or len(set(fleet.stages)) < len(fleet.stages):
        raise CrawlError(
            f"worker: needed stages, each once, came {', '.join(fleet.stages) or 'none'}; see fleet.stages and --stage",
            EXIT_FAILED,
        )


def check_data(fleet: Fleet, environ: Mapping[str, str]) -> None:
    """`fleet.data` rules. A folder that Faust was told of would be silently another one. Raises CrawlError."""
    for variable in _DATADIR_VARIABLES:
        told = environ.get(variable)
        if told and Path(told).absolute() != Path(fleet.data).absolute():
            what = "--datadir" if variable == "F_DATADIR" else variable
            raise CrawlError(
                f"worker: needed its folder by the setting fleet.data alone ({fleet.data}), came {what} {told} beside"
                f" it; say HEADRACE_FLEET__DATA={told}, or leave {what} out",
                EXIT_FAILED,
            )


def check_topics(fleet: Fleet, admin: topics.KafkaAdmin | None = None) -> None:
    """Before a worker starts: the topics are there, with as many partitions as are set. Raises CrawlError."""
    for step in topics.plan(admin or ConfluentAdmin(fleet), partitions=fleet.partitions, replication=fleet.replication):
        if step.verdict is Verdict.REFUSED:
            raise CrawlError(f"{step.thing}: {step.detail}; {step.remedy}", EXIT_FAILED)
        if step.verdict is Verdict.MADE:
            raise CrawlError(
                f"{step.thing}: needed it to be there, it is not; headrace provision makes it", EXIT_FAILED
            )


def check_readers(stages: Iterable[str], admin: Readers) -> None:
    """No group but the stage's own reads its topics: two would fetch every lease twice. Raises CrawlError."""
    readers = admin.readers()
    running = set(stages)
    for topic in TOPICS.values():
        if topic.group.value not in running:
            continue
        own = APP_PREFIX + topic.group.value
        strangers = sorted(one for one in readers.get(topic.name, ()) if not is_group_of(one, topic.group))
        if strangers:
            raise CrawlError(
                f"topic {topic.name}: needed {own} to be the one group that reads it, came {' and '.join(strangers)}"
                " beside it; end that reader, or let it read without a group (headrace topics tail does)",
                EXIT_FAILED,
            )
