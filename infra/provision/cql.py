"""`schemas/crawl.cql` read as data: its statements, and the columns and keys of the tables that they make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["CRAWL_CQL", "Table", "statements", "table_of", "tables"]

CRAWL_CQL = Path(__file__).resolve().parents[2] / "schemas" / "crawl.cql"

_CREATE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)\s*\((.*)\)\s*(?:WITH\s.*)?", re.DOTALL)
_PRIMARY_KEY = re.compile(r",\s*PRIMARY KEY\s*\((?:\(([^)]*)\)|([^,()]*))((?:,[^)]*)?)\)\s*$", re.DOTALL)


class Table(msgspec.Struct, frozen=True):
    """A table's shape. `columns` are name to CQL type; keys in their order."""

    name: str
    columns: Mapping[str, str]
    partition_key: tuple[str, ...]
    clustering: tuple[str, ...]
    time_to_live_s: int = 0
    create: str = ""  # the statement; empty for a table as the cluster has it


def tables(text: str) -> tuple[Table, ...]:
    """Every table of a file of CREATE TABLE statements, in order."""
    return tuple(table_of(statement) for statement in statements(text))


def statements(text: str) -> list[str]:
    """The statements without comments and semicolons. No string of ours holds `--` or `;`."""
    bare = "\n".join(line.partition("--")[0].rstrip() for line in text.splitlines())
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


def table_of(statement: str) -> Table:
    """The shape that one of our CREATE TABLE statements asks for. Asserts that it is one."""
    match = _CREATE.fullmatch(statement)
    assert match is not None, f"no CREATE TABLE IF NOT EXISTS: {statement[:60]!r}"
    name, body = match.group(1), _without_options(match.group(2))
    key = _PRIMARY_KEY.search(body)
    columns = _columns(body[: key.start()] if key is not None else body)
    if key is not None:
        partition_key, clustering = _names(key.group(1) or key.group(2)), _names(key.group(3))
    else:
        partition_key, clustering = _names(re.findall(r"(\w+) \w+ PRIMARY KEY", body)[0]), ()
    assert set(partition_key) | set(clustering) <= set(columns), f"{name}: a key that is no column"
    return Table(name, columns, partition_key, clustering, create=statement)


def _without_options(body: str) -> str:
    """The greedy match of the column list also took the options up to their last bracket."""
    depth = 1
    for at, sign in enumerate(body):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return body[:at]
    return body


def _columns(text: str) -> dict[str, str]:
    return {words[0]: words[1] for words in (line.split() for line in text.split(",")) if len(words) >= 2}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
