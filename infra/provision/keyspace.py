"""The keyspace and the tables of `schemas/crawl.cql`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from infra.provision.cql import CRAWL_CQL, Table, tables
from infra.provision.steps import Step, Verdict, refusal

__all__ = ["CassandraAdmin", "plan"]


class CassandraAdmin(Protocol):
    """What we ask of a cluster. All of it raises `ServiceAway`, or `CrawlError` for a refusal of the cluster."""

    def nodes(self) -> Mapping[str, int]:
        """Nodes of each datacenter, by its name."""
        ...

    def datacenter(self) -> str:
        """The one that is asked first."""
        ...

    def replication(self, keyspace: str) -> Mapping[str, str] | None:
        """The keyspace's replication, `class` without its package; None when there is none of that name."""
        ...

    def tables(self, keyspace: str) -> Mapping[str, Table]: ...

    def execute(self, statement: str, keyspace: str | None = None) -> None: ...


def plan(
    admin: CassandraAdmin, *, keyspace: str, replication: int, datacenters: Sequence[str], cql: str | None = None
) -> Iterator[Step]:
    """What is to be done so that all tables are there. `datacenters`: that hold copies; none named: the one asked.

    `cql`: the tables' statements, for tests; else the file's.
    """
    nodes = admin.nodes()
    chosen = tuple(datacenters) or (admin.datacenter(),)
    for name in chosen:
        if nodes.get(name, 0) < replication:
            known = ", ".join(f"{dc} ({count})" for dc, count in sorted(nodes.items()))
            yield Step(
                f"keyspace {keyspace}",
                Verdict.REFUSED,
                f"needed {replication} nodes in datacenter {name} for {replication} copies, the cluster has: {known}",
                "add nodes, or set fleet.replication (--replication) and fleet.cassandra_datacenters to what there is",
            )
            return
    wanted = {"class": "NetworkTopologyStrategy", **{name: str(replication) for name in chosen}}
    found = admin.replication(keyspace)
    if found is None:
        yield Step(
            f"keyspace {keyspace}",
            Verdict.MADE,
            _words(wanted),
            deed=lambda: admin.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {_map(wanted)}"),
        )
    else:
        yield _compare_keyspace(keyspace, wanted, found)
    there = admin.tables(keyspace) if found is not None else {}
    for table in tables(CRAWL_CQL.read_text("utf-8") if cql is None else cql):
        yield _table(admin, keyspace, table, there.get(table.name))


def _compare_keyspace(keyspace: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> Step:
    thing = f"keyspace {keyspace}"
    if dict(found) == dict(wanted):
        return Step(thing, Verdict.STANDS, _words(found))
    alter = f"ALTER KEYSPACE {keyspace} WITH replication = {_map(wanted)}"
    return refusal(
        thing,
        needed=_words(wanted),
        came=_words(found),
        remedy=f"keep what is there (fleet.replication, fleet.cassandra_datacenters), or: {alter}; and then at once"
        f" nodetool repair --full {keyspace} on every node, for until then new replicas answer that they know no URL",
    )


def _table(admin: CassandraAdmin, keyspace: str, wanted: Table, found: Table | None) -> Step:
    thing = f"table {wanted.name}"
    if found is None:
        return Step(thing, Verdict.MADE, _shape(wanted), deed=lambda: admin.execute(wanted.create, keyspace))
    if (found.partition_key, found.clustering) != (wanted.partition_key, wanted.clustering):
        return refusal(
            thing,
            needed=f"key {_shape(wanted)}",
            came=_shape(found),
            remedy="a key cannot be changed: name another keyspace (fleet.keyspace), or drop the table if its rows"
            " can be lost",
        )
    other = {
        name: kind for name, kind in wanted.columns.items() if name in found.columns and found.columns[name] != kind
    }
    if other:
        return refusal(
            thing,
            needed=", ".join(f"{name} {kind}" for name, kind in other.items()),
            came=", ".join(f"{name} {found.columns[name]}" for name in other),
            remedy="a column's type cannot be changed: name another keyspace (fleet.keyspace), or drop the table if"
            " its rows can be lost",
        )
    if found.time_to_live_s:
        return refusal(
            thing,
            needed="no time to live",
            came=f"default_time_to_live {found.time_to_live_s}",
            remedy="rows that expire are URLs forgotten, and their tombstones beat stamped writes:"
            f" ALTER TABLE {keyspace}.{wanted.name} WITH default_time_to_live = 0, and rebuild what was written since",
        )
    missing = [f"{name} {kind}" for name, kind in wanted.columns.items() if name not in found.columns]
    if missing:
        statement = f"ALTER TABLE {wanted.name} ADD ({', '.join(missing)})"
        return Step(
            thing,
            Verdict.CHANGED,
            f"columns added: {', '.join(missing)}",
            deed=lambda: admin.execute(statement, keyspace),
        )
    return Step(thing, Verdict.STANDS, _shape(wanted))


def _shape(table: Table) -> str:
    return f"(({', '.join(table.partition_key)}){''.join(f', {name}' for name in table.clustering)})"


def _words(replication: Mapping[str, str]) -> str:
    rest = [f"{name} {value}" for name, value in sorted(replication.items()) if name != "class"]
    return f"{replication.get('class', 'no class')}: {', '.join(rest) or 'none'}"


def _map(replication: Mapping[str, str]) -> str:
    """A CQL map. A datacenter's name may hold anything; a quote within a string is written twice."""
    quoted = {key.replace("'", "''"): value.replace("'", "''") for key, value in replication.items()}
    return "{" + ", ".join(f"'{key}': '{value}'" for key, value in quoted.items()) + "}"
