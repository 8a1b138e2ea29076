"""`headrace host`: an operator's word on a host, applied live to a running crawl and durable for a stopped one."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from infra import units
from infra.units import Unit
from schemas.records import HostPolicy
from streams.cli.arguments import positive
from streams.cli.fleet.clients import add_fleet, words_of
from streams.cli.shell import Shell
from streams.cli.words import printable
from streams.core.failures import EXIT_DONE, EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from streams.core.host_policy import Change, Standing

EXAMPLES = """
  headrace host news example.org --delay 5s --concurrency 1     from now on
  headrace host news example.org --delay 0 --until 2026-12-24   an exception; then the crawl's policy holds again
  headrace host news '*.example.org' --pause                    the name and all below it; --resume lets them go on
  headrace host news '*' --block '/calendar/' --block '[?&]session='
  headrace host news https://example.org --delete               granted no more; what was never fetched is forgotten
  headrace host news example.org                                what holds, and every change so far
  headrace host news --list
  headrace host --fleet example.org --pause                     the same words for a fleet: leave the folder out

HOST is a name (by http and https, at any port), name:port, scheme://name, *.name or *. The nearer word wins,
value by value; blocked patterns add up. A pattern is a regular expression, searched in the whole URL.
"""

WAIT_S = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", nargs="?", metavar="DIR", help="the crawl's folder, running or not; none with --fleet")
    parser.add_argument("host", nargs="?", metavar="HOST", help="a name, scheme://name, *.name, or * for all")
    state = parser.add_mutually_exclusive_group()
    state.add_argument("--pause", action="store_true", help="no request any more; its URLs wait")
    state.add_argument("--resume", action="store_true", help="undo --pause and --delete")
    state.add_argument(
        "--delete",
        action="store_true",
        help="granted no more; what was never fetched is forgotten; documents leave the index, stored pages stay",
    )
    parser.add_argument("--delay", metavar="SPAN", help="from an answer to the next request: 5s, 500ms, 2 (seconds)")
    parser.add_argument("--concurrency", type=positive, metavar="N", help="requests at once")
    parser.add_argument("--budget", type=int, metavar="N", help="requests a day (UTC)")
    parser.add_argument("--block", action="append", default=[], metavar="PATTERN", help="fetch no URL that matches")
    parser.add_argument("--unblock", action="append", default=[], metavar="PATTERN", help="undo that --block")
    parser.add_argument("--reset", action="store_true", help="forget all earlier words on HOST")
    parser.add_argument(
        "--until",
        metavar="DATE",
        help="the values are an exception that ends then (UTC), or after a span: 3d; now ends one",
    )
    parser.add_argument("--show", action="store_true", help="what holds and every change so far (the default)")
    parser.add_argument("--list", action="store_true", help="all hosts with words of their own")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_fleet(parser, verb=True)


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    folder, host = words_of(arguments, "host")
    if folder is None and not arguments.fleet:
        raise UsageError("host: needed the crawl's folder, or --fleet; headrace host --help shows the forms")
    where = None if folder is None else Path(folder)
    if arguments.list:
        return _list(where, arguments, shell)
    if host is None:
        raise UsageError("host: needed a HOST, or --list; headrace host --help shows the forms")
    policy = policy_of(host, arguments, shell.now_ms())
    if policy is None:
        return _show(where, arguments, _key(host), shell)
    if arguments.show:
        raise UsageError("host: --show changes nothing; leave it out, or the changes")
    if where is None:
        from streams.cli.fleet.host import say

        return _tell([say(policy, arguments, shell)], arguments, shell)
    applied = shell.backend.change_host_policies(where, [policy], wait_s=WAIT_S, now_ms=shell.now_ms)
    if applied is None:
        shell.complain(
            f"the crawl in {where} has not come to it within {WAIT_S:.0f} s; the change is kept in"
            f" {where}/control and holds as soon as the crawl goes on or is started again"
        )
        return EXIT_FAILED
    return _tell(applied, arguments, shell)


def policy_of(host: str, arguments: argparse.Namespace, now_ms: int) -> HostPolicy | None:
    """The change that is asked for; None when nothing is. Raises UsageError."""
    from streams.core.host_policy import problem

    key = _key(host)
    paused = True if arguments.pause else False if arguments.resume else None
    deleted = True if arguments.delete else False if arguments.resume else None
    policy = HostPolicy(
        key,
        0,
        delay_ms=None if arguments.delay is None else _span_ms("--delay", arguments.delay),
        concurrency=arguments.concurrency,
        budget_per_day=arguments.budget,
        paused=paused,
        deleted=deleted,
        block=tuple(arguments.block),
        unblock=tuple(arguments.unblock),
        reset=arguments.reset,
    )
    if arguments.until is None:
        return None if policy == HostPolicy(key, 0) else _checked(policy, problem(policy))
    until_ms = until(arguments.until, now_ms)
    if policy == HostPolicy(key, 0) and until_ms > now_ms:
        raise UsageError("host --until: needed what is to hold until then, such as --delay 5s; came the date alone")
    if arguments.delete:
        raise UsageError("host --delete: what is forgotten does not come back on a date; --pause --until does that")
    return _checked(msgspec.structs.replace(policy, until_ms=until_ms), problem(policy))


def until(text: str, now_ms: int) -> int:
    """`2026-12-24` (0:00 UTC), `2026-12-24T18:00`, `3d` from now, or `now`. Raises UsageError."""
    if text.strip().lower() == "now":
        return now_ms
    span_ms = units.parse(text, Unit.MS)
    if span_ms is not None and not text.strip().isdigit():
        return now_ms + span_ms
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f'--until: needed a date such as 2026-12-24, a span such as 3d, or now, came "{text}"'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    at_ms = int(moment.timestamp() * 1_000)
    if at_ms <= now_ms:
        raise UsageError(f'--until: needed a date to come, came "{text}"; --until now ends an exception')
    return at_ms


def _checked(policy: HostPolicy, problem: str | None) -> HostPolicy:
    if problem is not None:
        raise UsageError(f"host: {problem}")
    return policy


def _key(text: str) -> str:
    from streams.core.host_policy import key_of

    key = key_of(text)
    if key is None:
        raise UsageError(
            f'host: needed a host such as example.org, *.example.org, https://example.org or *, came "{text}"'
        )
    return key


def _span_ms(flag: str, text: str) -> int:
    span_ms = units.parse(text, Unit.MS, bare=Unit.S)
    if span_ms is None:
        raise UsageError(f'{flag}: needed a span such as 5s or 500ms, came "{text}"')
    return span_ms


def _tell(applied: Sequence[Change], arguments: argparse.Namespace, shell: Shell) -> int:
    from streams.core.explain_policy import describe_change

    for change in applied:
        if change.error:
            shell.complain(f"host {change.policy.host_key}: {change.error}")
            return EXIT_FAILED
        if arguments.json:
            shell.print(msgspec.json.encode(_as_json(change)).decode())
        else:
            shell.print(printable(describe_change(change)))
    if arguments.delete and not arguments.json:
        index = "its documents leave the index, " if arguments.fleet else ""
        shell.print(f"its queue is dropped bit by bit, {index}its stored pages stay; --resume lets it be found anew")
    return EXIT_DONE


def _show(folder: Path | None, arguments: argparse.Namespace, key: str, shell: Shell) -> int:
    """What holds, and the history that led to it: of the key, and of all that are about the same host."""
    from streams.core.explain_policy import describe_change
    from streams.core.host_policy import about

    standings, changes = _read(folder, key, arguments, shell)
    shown = [change for change in changes if about(change.policy.host_key, key)]
    if arguments.json:
        for change in shown:
            shell.print(msgspec.json.encode(_as_json(change)).decode())
        return EXIT_DONE
    shell.print(key)
    for line in _standing_lines([one for one in standings if about(one.key, key)]) or [
        "  the crawl's own policy holds"
    ]:
        shell.print(line)
    shell.print("changes:")
    for change in shown:
        shell.print(f"  {printable(describe_change(change))}")
    return EXIT_DONE


def _read(
    folder: Path | None, key: str | None, arguments: argparse.Namespace, shell: Shell
) -> tuple[Sequence[Standing], Sequence[Change]]:
    """What holds, by key, and all changes: of a folder, or of the fleet."""
    if folder is None:
        from streams.cli.fleet.host import said

        return said(key, arguments, shell)
    reader = shell.backend.open_reader(folder)
    try:
        return reader.policy_standings(), reader.policy_changes()
    finally:
        reader.close()


def _list(folder: Path | None, arguments: argparse.Namespace, shell: Shell) -> int:
    standings, _ = _read(folder, None, arguments, shell)
    if arguments.json:
        for standing in standings:
            shell.print(msgspec.json.encode(_standing_as_json(standing)).decode())
    else:
        for line in _standing_lines(standings) or ["no host has words of its own"]:
            shell.print(line)
    return EXIT_DONE


def _standing_lines(standings: Sequence[Standing]) -> list[str]:
    from streams.core.explain_policy import explain_words

    lines = []
    for standing in standings:
        lines += [
            f"  {label:<9}  {printable(sentence)}"
            for label, sentence in explain_words([standing], standing.version)
            if label != "policy"
        ]
    return lines


def _as_json(change: Change) -> dict[str, object]:
    return {
        **msgspec.to_builtins(change.policy),
        "applied_ms": change.applied_ms,
        "error": change.error,
        "politeness": None if change.politeness is None else msgspec.to_builtins(change.politeness),
    }


def _standing_as_json(standing: Standing) -> dict[str, object]:
    fields = ("key", "version", "until_ms")
    return {
        **{name: getattr(standing, name) for name in fields if name != "until_ms" or standing.exception is not None},
        "lasting": {name: getattr(standing.lasting, name) for name in standing.lasting.__struct_fields__},
        "exception": None
        if standing.exception is None
        else {name: getattr(standing.exception, name) for name in standing.exception.__struct_fields__},
    }
