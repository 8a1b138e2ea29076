"""`headrace host --fleet`: an operator's word said to every owner that it is about, and what was said so far."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from infra.settings_fleet import Fleet
from schemas.records import HostPolicy
from streams.cli.fleet.clients import fleet_of, open_reader, partitions_of
from streams.cli.shell import Shell
from streams.cli.words import count
from streams.core.host_policy import Change, Standing, is_host

if TYPE_CHECKING:
    from connectors.policy_ledger import PolicyLedger

__all__ = ["said", "say"]

TOPIC = "host-policies"


def say(policy: HostPolicy, arguments: argparse.Namespace, shell: Shell) -> Change:
    """Send the change. It is durable when this returns, and owners hear of it within a moment."""
    fleet = fleet_of(arguments, shell)
    with _ledger(fleet, shell) as (ledger, partitions):
        sent = ledger.say(policy)
    where = "its owner" if is_host(policy.host_key) else f"the owners of all {count(partitions, 'partition')}"
    shell.say(f"said to {where}, by {TOPIC} at {','.join(fleet.kafka)}; running workers apply it at once")
    return Change(sent, shell.now_ms())


def said(key: str | None, arguments: argparse.Namespace, shell: Shell) -> tuple[Sequence[Standing], Sequence[Change]]:
    """What holds now, by key, and every change so far: of the host, or of all where the key names several or none."""
    from connectors.policy_ledger import folded

    with _ledger(fleet_of(arguments, shell), shell) as (ledger, _):
        words = ledger.words(key if key is not None and is_host(key) else None)
        if ledger.unreadable:
            shell.say(
                f"{count(ledger.unreadable, 'message')} of {TOPIC} cannot be read and went to the dead letters;"
                f" headrace topics tail {TOPIC} shows why"
            )
    policies, changes = folded(words, shell.now_ms())
    return [policies.standings[one] for one in sorted(policies.standings)], changes


@contextlib.contextmanager
def _ledger(fleet: Fleet, shell: Shell) -> Iterator[tuple[PolicyLedger, int]]:
    from connectors.policy_ledger import PolicyLedger

    partitions = partitions_of(TOPIC, fleet, shell)
    reader = open_reader(fleet, shell)
    try:
        yield (
            PolicyLedger(
                reader,
                partitions,
                address=",".join(fleet.kafka),
                now_ms=shell.now_ms,
                open_transactions=lambda: shell.fleet.transactions(fleet, lambda why: None),
            ),
            partitions,
        )
    finally:
        reader.close()
