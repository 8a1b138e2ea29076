"""How much of everything a fleet needs: the arithmetic of both profiles, redone from `figures.toml`. Pure.

`size` gives the lines in the order in which one follows from another, each with its arithmetic in words, so that a
person can doubt any single one. Counts are rounded up; rates are at the profile's peak, disks fill at its mean.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from schemas.topics import INNER_TOPICS, TOPICS

__all__ = ["FIGURES", "Figure", "Figures", "Line", "Sizing", "markdown", "read", "size"]

FIGURES = Path(__file__).with_name("figures.toml")
_DAY_S = 86_400
_DAY_MS = 86_400_000
CHANGELOG_SURPLUS = 3  # what compaction has not reached yet, beside what it left


class Figure(msgspec.Struct, frozen=True):
    """An input. `source` begins with measured, given, assumed, or the place in the code."""

    value: float
    unit: str
    source: str


class Figures(msgspec.Struct, frozen=True):
    """The inputs of one profile; `profile["name"]` is a value."""

    name: str
    figures: Mapping[str, Figure]

    def __getitem__(self, name: str) -> float:
        return self.figures[name].value


class Line(msgspec.Struct, frozen=True):
    """One result. `how` is its arithmetic."""

    what: str
    value: float
    unit: str
    how: str


class Sizing(msgspec.Struct, frozen=True):
    """All results of a profile, by the part that they are of."""

    name: str
    parts: Mapping[str, Sequence[Line]]

    def value(self, part: str, what: str) -> float:
        """One result. Asserts that there is one of that name."""
        found = [line.value for line in self.parts[part] if line.what == what]
        assert len(found) == 1, f"{part}: {what}"
        return found[0]


def read(text: str) -> dict[str, Figures]:
    """The profiles of a `figures.toml`, by name. Later figures of a profile win over the common ones."""
    document = tomllib.loads(text)
    common = msgspec.convert(document["figures"], dict[str, Figure])
    profiles = msgspec.convert(document["profiles"], dict[str, dict[str, Figure]])
    return {name: Figures(name, common | own) for name, own in profiles.items()}


def size(given: Figures) -> Sizing:
    """All of it."""
    parts = {
        "load": _load(given),
        "kafka": _kafka(given),
        "cassandra": _cassandra(given),
        "owner": _owner(given),
        "fetch": _fetch(given),
        "parse": _parse(given),
        "route": _route(given),
        "store": _store(given),
        "index": _index(given),
    }
    parts["machines"] = _machines(given, parts)
    return Sizing(given.name, parts)


def markdown(sizing: Sizing) -> str:
    """The results as tables, a part each."""
    blocks = []
    for part, lines in sizing.parts.items():
        rows = [f"| {line.what} | {show(line.value, line.unit)} | {line.how} |" for line in lines]
        blocks.append("\n".join([f"| {part} | {sizing.name} | how |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks)


def show(value: float, unit: str) -> str:
    """A number as people read it: three digits, and a prefix for large ones with a unit of bytes."""
    if unit.startswith("B"):
        for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if value >= scale:
                return f"{_digits(value / scale)} {prefix}{unit}"
    return f"{_digits(value)}{'' if unit.startswith('/') or not unit else ' '}{unit}"


def _digits(value: float) -> str:
    for word, scale in (("billion", 1e9), ("million", 1e6)):
        if value >= scale * 0.9995:  # what three digits round up to it
            return f"{_digits(value / scale)} {word}"
    if value >= 99.95 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _count(number: float) -> int:
    """Whole things, rounded up; what is but a rounding error above a whole is that whole."""
    return math.ceil(number - 1e-9)


# --- what comes in ------------------------------------------------------------------------------------------------


def _load(f: Figures) -> list[Line]:
    peak, links = f["fetches_peak"], f["links_per_page"] * f["links_asked_share"]
    return [
        Line("fetches a day", f["fetches_mean"] * _DAY_S, "", f"{show(f['fetches_mean'], '/s')} x 86,400 s"),
        Line("links checked at peak", peak * links, "/s", f"{show(peak, '/s')} x {links:.0f} links a page"),
        Line(
            "bodies at peak",
            peak * f["body_bytes"],
            "B/s",
            f"{show(peak, '/s')} x {show(f['body_bytes'], 'B')}, were none compressed on its way",
        ),
        Line(
            "bodies a day at most",
            f["fetches_mean"] * _DAY_S * f["body_bytes"],
            "B",
            f"{show(f['fetches_mean'], '/s')} x 86,400 s x {show(f['body_bytes'], 'B')}",
        ),
    ]


# --- kafka --------------------------------------------------------------------------------------------------------


def bytes_per_fetch(f: Figures) -> dict[str, float]:
    """Bytes that one fetch puts on each topic that grows with the load, compressed as they lie on the wire."""
    new = f["new_urls"] / f["fetches_mean"]
    return {
        "fetch-leases": f["lease_bytes"],
        "fetch-results": f["result_bytes"],
        "stored-results": f["stored_bytes"],
        "parse-tasks": f["task_bytes"],
        "parsed-pages": f["page_bytes"],
        "discovered-urls": f["links_per_page"] * f["links_asked_share"] * f["link_bytes"],
        "index-events": f["index_share"] * f["document_bytes"],
        "changelog": f["host_states_per_fetch"] * f["host_state_bytes"] + (1 + new) * f["redo_row_bytes"],
    }


def _kafka(f: Figures) -> list[Line]:
    each = bytes_per_fetch(f)
    total, copies, mean = sum(each.values()), f["replication"], f["fetches_mean"]
    kept_days = {name: (TOPICS[name].retention_ms or 0) / _DAY_MS for name in each if name in TOPICS}
    kept = sum(each[name] * days for name, days in kept_days.items()) * mean * _DAY_S
    changelog = CHANGELOG_SURPLUS * each["changelog"] * mean * _DAY_S  # compacted once a day at the latest
    disk = (kept + changelog) * copies
    at_peak = total * f["fetches_peak"]
    same = sum(topic.co_partitioned for topic in (*TOPICS.values(), *INNER_TOPICS.values()))
    partitions = same * f["partitions"] * copies
    by_disk = disk / (f["broker_disk_bytes"] * f["disk_fill"])
    commits = min(f["partitions"] * 1_000 / f["group_ms"], 3 * f["fetches_peak"])
    cores = at_peak * copies / f["kafka_core_bytes"] + commits * copies / f["commits_core"]
    by_cpu = cores / (f["broker_cores"] * f["utilization"])
    by_count = partitions / f["broker_partitions"]
    words = ", ".join(f"{name} {show(count, 'B')}" for name, count in each.items())
    return [
        Line("bytes a fetch", total, "B", words),
        Line("written at peak, first copies", at_peak, "B/s", f"{show(f['fetches_peak'], '/s')} x {show(total, 'B')}"),
        Line(
            "disk",
            disk,
            "B",
            f"{copies:.0f} x ({show(kept, 'B')} by each topic's retention + {show(changelog, 'B')} of changelog,"
            f" {CHANGELOG_SURPLUS} days' worth)",
        ),
        Line("partitions with copies", partitions, "", f"{same} topics x {f['partitions']:,.0f} x {copies:.0f}"),
        Line(
            "commits",
            commits,
            "/s",
            f"{f['partitions']:,.0f} partitions, one each {f['group_ms']:.0f} ms",
        ),
        Line(
            "brokers",
            max(copies, _count(max(by_disk, by_cpu, by_count))) + 1,
            "",
            f"the largest of {by_disk:.1f} by disk, {by_cpu:.1f} by CPU, {by_count:.1f} by partitions, and one more",
        ),
    ]


# --- cassandra ----------------------------------------------------------------------------------------------------


def _cassandra(f: Figures) -> list[Line]:
    copies, peak = f["replication"], f["fetches_peak"]
    new_at_peak = f["new_urls"] * peak / f["fetches_mean"]
    writes, reads = peak + new_at_peak, peak
    disk = f["known_urls"] * f["row_disk_bytes"] * copies
    # A quorum read asks two of three, and the digest of the second costs about as much.
    asked = copies // 2 + 1
    cores = writes * copies / f["cassandra_core_writes"] + reads * asked / f["cassandra_core_reads"]
    by_disk = disk / (f["node_disk_bytes"] * f["disk_fill"])
    by_cpu = cores / (f["node_cores"] * f["utilization"])
    return [
        Line(
            "rows written at peak", writes, "/s", f"{show(peak, '/s')} completed + {show(new_at_peak, '/s')} admitted"
        ),
        Line("rows read at peak", reads, "/s", "one a completion; the seen test asks the owner's own index"),
        Line(
            "cores at work",
            cores,
            "",
            f"writes x {copies:.0f} / {show(f['cassandra_core_writes'], '/s')} a core + reads x {asked:.0f} /"
            f" {show(f['cassandra_core_reads'], '/s')}",
        ),
        Line(
            "disk",
            disk,
            "B",
            f"{show(f['known_urls'], 'URLs')} x {show(f['row_disk_bytes'], 'B')} x {copies:.0f}",
        ),
        Line(
            "nodes",
            max(copies, _count(max(by_disk, by_cpu))) + 1,
            "",
            f"the larger of {by_disk:.1f} by disk and {by_cpu:.1f} by CPU, and one more",
        ),
    ]


# --- workers ------------------------------------------------------------------------------------------------------


def _owner(f: Figures) -> list[Line]:
    peak, links = f["fetches_peak"], f["fetches_peak"] * f["links_per_page"] * f["links_asked_share"]
    new = f["new_urls"] * peak / f["fetches_mean"]
    link_us = f["owner_link_us"] + f["decode_link_us"]
    pairs, seen, admitted = peak * f["owner_pair_us"], links * link_us, new * f["owner_admit_us"]
    rows = (peak + new) * f["row_write_us"] + peak * f["row_read_us"]
    cores = (pairs + seen + admitted + rows) / 1e6
    workers = _count(cores / f["utilization"])
    index = f["known_urls"] * f["index_entry_bytes"]
    return [
        Line(
            "cores at work",
            cores,
            "",
            f"{pairs / 1e6:.1f} grants and completions, {seen / 1e6:.1f} seen tests with their decoding,"
            f" {admitted / 1e6:.1f} admissions, {rows / 1e6:.1f} rows",
        ),
        Line("workers", workers, "", f"one core each, {f['utilization']:.0%} busy"),
        Line("partitions a worker", f["partitions"] / workers, "", f"{f['partitions']:,.0f} / {workers}"),
        Line(
            "disk a worker",
            2 * index / workers,
            "B",
            f"{show(f['known_urls'], 'URLs')} x {show(f['index_entry_bytes'], 'B')} / {workers}, twice while rebuilt",
        ),
    ]


def _fetch(f: Figures) -> list[Line]:
    peak = f["fetches_peak"]
    page_us = f["fetch_us"] + f["fetch_us_per_kb"] * f["body_bytes"] / 1e3 + f["handshake_share"] * f["handshake_us"]
    cores, flying = peak * page_us / 1e6, peak * f["fetch_s"]
    by_cpu, by_connections = cores / f["utilization"], flying / (f["fetch_connections"] * f["utilization"])
    workers = _count(max(by_cpu, by_connections))
    return [
        Line(
            "CPU a fetch",
            page_us,
            "us",
            f"{f['fetch_us']:.0f} + {f['body_bytes'] / 1e3:,.0f} kB x {f['fetch_us_per_kb']} +"
            f" {f['handshake_share']} x {f['handshake_us']:,.0f} for TLS",
        ),
        Line("cores at work", cores, "", f"{show(peak, '/s')} x {page_us:,.0f} us"),
        Line("requests in flight", flying, "", f"{show(peak, '/s')} x {f['fetch_s']} s"),
        Line("workers", workers, "", f"the larger of {by_cpu:.1f} by CPU and {by_connections:.1f} by connections"),
        Line(
            "memory a worker",
            1e9 + flying / workers * f["body_bytes"],
            "B",
            "1 GB for itself, its upload and store backlog, and a body for each request in flight",
        ),
        Line(
            "network",
            peak * f["body_bytes"],
            "B/s",
            f"in; {_count(peak * f['body_bytes'] / (f['nic_bytes'] * f['utilization']))} network cards of"
            f" {show(f['nic_bytes'], 'B/s')}, half used; out to the store a part of it",
        ),
    ]


def _parse(f: Figures) -> list[Line]:
    page_us = f["parse_us_per_kb"] * f["parsed_bytes"] / 1e3
    pages = f["fetches_peak"] * f["unique_share"]
    cores = pages * page_us / 1e6
    return [
        Line("CPU a page", page_us, "us", f"{f['parsed_bytes'] / 1e3:,.0f} kB x {f['parse_us_per_kb']:.0f}"),
        Line("pages parsed at peak", pages, "/s", f"{show(f['fetches_peak'], '/s')} x {f['unique_share']}"),
        Line("cores at work", cores, "", f"{show(pages, '/s')} x {page_us:,.0f} us"),
        Line(
            "workers", _count(cores / f["utilization"] / 8), "", f"of 8 parser processes, {f['utilization']:.0%} busy"
        ),
    ]


def _route(f: Figures) -> list[Line]:
    pages = f["fetches_peak"] * f["unique_share"]
    links = pages * f["links_per_page"] * f["links_asked_share"]
    cores = (pages * f["route_page_us"] + links * f["route_link_us"]) / 1e6
    return [
        Line(
            "cores at work",
            cores,
            "",
            f"{show(pages, '/s')} x {f['route_page_us']:.0f} us + {show(links, '/s')} links x {f['route_link_us']} us",
        ),
        Line("workers", _count(cores / f["utilization"]), "", f"one core each, {f['utilization']:.0%} busy"),
    ]


# --- store and index ----------------------------------------------------------------------------------------------


def _store(f: Figures) -> list[Line]:
    bodies = f["fetches_mean"] * _DAY_S * f["unique_share"]
    day = bodies * f["body_bytes"] * f["compressed_share"]
    parts = day / f["part_bytes"]
    return [
        Line(
            "segments a day",
            day,
            "B",
            f"{show(bodies, 'new bodies')} x {show(f['body_bytes'], 'B')} x {f['compressed_share']} compressed",
        ),
        Line("kept", day * f["days"], "B", f"{f['days']:.0f} days"),
        Line("uploads", parts / _DAY_S, "/s", f"parts of {show(f['part_bytes'], 'B')}"),
        Line("uploads, were each page an object", bodies / _DAY_S, "/s", f"{bodies / parts:,.0f} times as many"),
        Line("ranged reads", bodies / _DAY_S, "/s", "one a page parsed; a parser beside its segment saves them"),
    ]


def _index(f: Figures) -> list[Line]:
    peak = f["fetches_peak"] * f["index_share"]
    tasks = _count(peak / f["sink_task_documents"])
    return [
        Line("documents at peak", peak, "/s", f"{show(f['fetches_peak'], '/s')} x {f['index_share']}"),
        Line("sink tasks", tasks, "", f"of {show(f['sink_task_documents'], '/s')} each"),
        Line(
            "primary shards",
            _count(f["known_urls"] / f["shard_documents"]),
            "",
            f"{show(f['known_urls'], 'URLs')} / {show(f['shard_documents'], 'documents')}, were every URL a document",
        ),
    ]


def _machines(f: Figures, parts: Mapping[str, Sequence[Line]]) -> list[Line]:
    def of(part: str, what: str) -> float:
        return next(line.value for line in parts[part] if line.what == what)

    cores = {stage: of(stage, "workers") for stage in ("owner", "fetch", "route")} | {
        "parse": of("parse", "workers") * 8
    }
    by_cores = sum(cores.values()) / f["machine_cores"]
    by_network = of("fetch", "network") / (f["nic_bytes"] * f["utilization"])
    words = " + ".join(f"{count:.0f} {stage}" for stage, count in cores.items())
    return [
        Line(
            "for workers",
            _count(max(by_cores, by_network)) + 1,
            "",
            f"of {f['machine_cores']:.0f} cores: the larger of {by_cores:.1f} ({words}) and {by_network:.1f} by"
            " network, and one more",
        ),
        Line(
            "for Kafka",
            of("kafka", "brokers"),
            "",
            f"of {f['broker_cores']:.0f} cores, {show(f['broker_disk_bytes'], 'B')}",
        ),
        Line(
            "for Cassandra",
            of("cassandra", "nodes"),
            "",
            f"of {f['node_cores']:.0f} cores, {show(f['node_disk_bytes'], 'B')}",
        ),
    ]
