"""The outside judge: a server's access log against the policies of its hosts. It knows nothing of the crawler.

    python -m tests.support.judge LOG POLICIES

prints the breaches and exits with 1 when there are any. LOG is JSON Lines as `tests.support.judge_site` writes them (or
any server: the fields are those of `Line`), POLICIES one JSON object (`Policies`).

Delays, connections and Retry-After are judged by `tests.support.access_log_oracle`. What robots.txt allows changes
while a crawl runs, so it is judged here, against the answer that was the last one when a path was asked:
- robots_not_first: nothing had been answered to a request for the host's robots.txt, wherever it redirects to;
- robots_unreachable: all its answers were 5xx, 429 or broken off: nothing at all may be asked;
- robots_expired: the answer was older than it may serve, and no later try had failed;
- disallowed: the answer's rules forbid the path;
- address_too_early, address_at_once: hosts of one address share a limit, where the policies say so.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests.support.access_log_oracle import (
    ROBOTS_LIFETIME_MS,
    ROBOTS_PATH,
    Breach,
    Expected,
    Request,
)
from tests.support.access_log_oracle import judge as judge_manners


class Line(Request, frozen=True):
    """One request. `rules` names which of the policy's rules an answered robots.txt carried."""

    rules: str = ""


class HostPolicy(msgspec.Struct, frozen=True):
    """What one host may expect."""

    address: str = ""
    delay_ms: float = 1_000  # the crawler's own, or the host's Crawl-delay if that is longer
    concurrency: int = 1
    rules: dict[str, tuple[str, ...]] = {}  # by name: the prefixes of paths that are forbidden
    robots_lifetime_ms: float = ROBOTS_LIFETIME_MS
    robots_via: tuple[tuple[str, str], ...] = ()  # (host, path) of each hop that its robots.txt redirects to


class Policies(msgspec.Struct, frozen=True):
    """`lease_ms`: how long after it was granted a request may begin, so by how much an expired answer may be late."""

    hosts: dict[str, HostPolicy]
    address_delay_ms: dict[str, float] = {}
    lease_ms: float = 2_000


class _Copy(msgspec.Struct, frozen=True):
    """An answer to a request for robots.txt. `rules` None: it means that nothing may be asked."""

    at_ms: float
    rules: tuple[str, ...] | None


def judge(lines: Sequence[Line], policies: Policies) -> list[Breach]:
    """All breaches in the order of time. A host that the policies do not name is judged by the defaults."""
    hosts = policies.hosts
    manners = {
        name: Expected(delay_ms=policy.delay_ms, concurrency=policy.concurrency, robots=False)
        for name, policy in hosts.items()
    }
    breaches = judge_manners(lines, lambda host: manners.get(host, Expected(robots=False)))
    by_host: defaultdict[str, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.start_ms):
        by_host[line.host].append(line)
    hops = {hop for policy in hosts.values() for hop in policy.robots_via}
    for host, asked in by_host.items():
        breaches += _robots(host, asked, by_host, policies, hops)
    breaches += _addresses(by_host, policies)
    return sorted(breaches, key=lambda breach: breach.at_ms)


def _robots(
    host: str,
    asked: Sequence[Line],
    by_host: dict[str, list[Line]],
    policies: Policies,
    hops: set[tuple[str, str]],
) -> Iterable[Breach]:
    policy = policies.hosts.get(host, HostPolicy())
    answers = sorted(_answers(asked, by_host, policy), key=lambda copy: copy.at_ms)
    for line in asked:
        if line.path == ROBOTS_PATH or (host, line.path) in hops:
            continue
        known = [copy for copy in answers if copy.at_ms <= line.start_ms]
        good = [copy for copy in known if copy.rules is not None]
        if not good:
            kind = "robots_unreachable" if known else "robots_not_first"
            yield Breach(kind, host, line.start_ms, f"{line.path} was asked before robots.txt had been answered well")
            continue
        copy = good[-1]
        assert copy.rules is not None
        failed_since = any(later.rules is None for later in known if later.at_ms > copy.at_ms)
        lifetime_ms = ROBOTS_LIFETIME_MS if failed_since else policy.robots_lifetime_ms
        age_ms = line.start_ms - copy.at_ms
        if age_ms > lifetime_ms + policies.lease_ms:
            detail = (
                f"{line.path} was asked under a robots.txt of {age_ms / 1e3:.0f} s, good for {lifetime_ms / 1e3:.0f} s"
            )
            yield Breach("robots_expired", host, line.start_ms, detail)
        forbidden = [prefix for prefix in copy.rules if line.path.startswith(prefix)]
        if forbidden:
            detail = f"{line.path} is under {forbidden[0]}, which robots.txt disallows"
            yield Breach("disallowed", host, line.start_ms, detail)


def _answers(asked: Sequence[Line], by_host: dict[str, list[Line]], policy: HostPolicy) -> Iterable[_Copy]:
    """Every answer to the host's robots.txt, its redirects followed in the log of the hosts that they lead to."""
    for line in asked:
        if line.path != ROBOTS_PATH:
            continue
        if not (300 <= line.status < 400 and line.end_ms is not None and policy.robots_via):
            yield _copy(line, policy)
            continue
        host, path = policy.robots_via[-1]
        # One fetch may answer several hosts that are redirected to it, so it may have begun before this redirect came.
        hops = [hop for hop in by_host.get(host, ()) if hop.path == path]
        later = [hop for hop in hops if (hop.end_ms or hop.start_ms) >= line.end_ms]
        if later:
            yield _copy(later[0], policy)


def _copy(line: Line, policy: HostPolicy) -> _Copy:
    """RFC 9309 section 2.3.1: 2xx are rules, other 4xx than 429 allow all, everything else forbids all."""
    if line.end_ms is None:
        return _Copy(line.start_ms, None)
    if 200 <= line.status < 300:
        return _Copy(line.end_ms, policy.rules[line.rules])
    if 400 <= line.status < 500 and line.status != 429:
        return _Copy(line.end_ms, ())
    return _Copy(line.end_ms, None)


def _addresses(by_host: dict[str, list[Line]], policies: Policies) -> Iterable[Breach]:
    """Hosts that share an address and its limit are judged as one."""
    for address, delay_ms in policies.address_delay_ms.items():
        names = [name for name, policy in policies.hosts.items() if policy.address == address]
        lines = [msgspec.structs.replace(line, host=address) for name in names for line in by_host.get(name, ())]
        expected = Expected(delay_ms=delay_ms, concurrency=1, robots=False)
        for breach in judge_manners(lines, lambda host, expected=expected: expected):  # type: ignore[misc]
            if breach.kind == "too_early":
                yield msgspec.structs.replace(breach, kind="address_too_early")
            elif breach.kind == "too_many_connections" and "requests at once" in breach.detail:
                yield msgspec.structs.replace(breach, kind="address_at_once")


def read_lines(path: Path) -> list[Line]:
    """The log; a last line that was torn when its server was killed is left out."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return [msgspec.json.decode(line, type=Line) for line in whole.splitlines() if line]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.judge")
    parser.add_argument("log", type=Path)
    parser.add_argument("policies", type=Path)
    arguments = parser.parse_args()
    lines = read_lines(arguments.log)
    breaches = judge(lines, msgspec.json.decode(arguments.policies.read_bytes(), type=Policies))
    for breach in breaches:
        print(f"{breach.at_ms / 1e3:.3f} {breach.host} {breach.kind}: {breach.detail}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(breach.kind for breach in breaches).items())
    print(f"{len(lines)} requests, {len({line.host for line in lines})} hosts, {kinds or 'no breach'}")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
