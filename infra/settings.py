"""The settings of a crawl: typed, from defaults, a TOML file, the environment and flags, in that order; later wins.

Theory of operation: every source is turned into `Given` values (a dotted name, a raw value, and where it stood), each
is looked up in the one table of fields and read by that field's type, and only then are the structs built. So an error
can always say where the value stood, what was needed and what came; an unknown name is refused, never ignored.

A name that carries a unit may also be written without it: `delay_ms = 1000`, `delay_ms = "1s"` and `delay = "1s"` are
the same. Under the name without a unit a bare number counts seconds or bytes (`delay = 1.5`).
"""

from __future__ import annotations

import difflib
import enum
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from infra import settings_fleet, units
from infra.services import catalog
from infra.settings_fleet import Fleet
from infra.settings_values import (
    ENTRY_CHECKS,
    TEXT_CHECKS,
    Given,
    SettingsError,
    nearest,
    split_server,
    user_agent_parts,
)
from infra.units import Unit
from streams.core.policy import (
    ROBOTS_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    BudgetPolicy,
    FetchLimits,
    ParseLimits,
    Politeness,
    TrapLimits,
)

__all__ = [
    "Crawl",
    "Dns",
    "Fleet",
    "Given",
    "Row",
    "Scope",
    "Settings",
    "SettingsError",
    "Store",
    "build",
    "contact_of",
    "from_environment",
    "from_file",
    "load",
    "product_token",
    "rows",
    "split_server",
    "user_agent_header",
]

ENVIRONMENT_PREFIX = "HEADRACE_"
ENVIRONMENT_OTHERS = frozenset(  # the launchers', no settings of a crawl
    f"HEADRACE_{name}" for name in ("VENV", "PYTHON", "CACHE", "SERVICES", "PORTS", "JAVA")
)
FILE_NAME = "headrace.toml"
NUMBER_MAX = 1 << 53  # what every JSON reader still holds exactly


class Scope(enum.Enum):
    """Which of the URLs that a crawl finds belong to it, measured against its seeds."""

    HOST = "host"  # scheme, host and port of a seed
    DOMAIN = "domain"  # a seed's registrable domain, by the public suffix list
    PREFIX = "prefix"  # a seed's URL up to its last slash
    ANY = "any"


class Crawl(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is crawled, by whom, and how far."""

    user_agent: str = "Headrace"  # product token, or `Token/1.0 (+contact)`
    contact: str = ""  # a URL or mail address, shown to every site
    scope: Scope = Scope.HOST
    depth_max: int | None = None  # links from a seed
    pages_max: int | None = None
    time_max_s: int | None = None
    wait_max_s: int = 1_200  # how long a crawl with nothing else to do lingers for retries
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    out: str = "crawl"
    allow_addresses: tuple[str, ...] = ()  # networks that are fetched from although they are not public
    workers: int = 0  # parser processes; 0: one a CPU
    fetch_concurrency: int = 256  # requests in flight over all hosts


class Store(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How bodies and the fetch log are laid down."""

    segment_bytes_max: int = SEGMENT_BYTES_MAX


class Dns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How names become addresses."""

    servers: tuple[str, ...] = ()  # ADDR or ADDR:PORT, in rotation; empty: the system's
    resolve: tuple[str, ...] = ()  # NAME=ADDR, asked before any server


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them, a struct a section of the file."""

    crawl: Crawl = Crawl()
    politeness: Politeness = Politeness()
    budget: BudgetPolicy = BudgetPolicy()
    fetch: FetchLimits = FetchLimits()
    parse: ParseLimits = ParseLimits()
    traps: TrapLimits = TrapLimits()
    store: Store = Store()
    dns: Dns = Dns()
    fleet: Fleet = Fleet()


class Row(msgspec.Struct, frozen=True):
    """One setting: its place, its type and default. The meanings are in `infra.settings_help`."""

    section: str
    key: str
    type: object  # int, bool, str, an enum, or tuple for a list of strings
    optional: bool
    default: object
    unit: Unit

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


def load(
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Iterable[Given] = (),
    kept: Iterable[Given] = (),
) -> Settings:
    """The settings from all sources. Raises `SettingsError` for the first value that cannot stand.

    `kept`: what a resumed crawl's folder keeps of its earlier runs (`infra.kept`); all else wins over it.
    `HEADRACE_PORTS` moves the defaults of the fleet's addresses, as it moves the services; all else wins over it, too.
    `config`: a TOML file that must exist when named. `environ`: `os.environ` by default. `flags`: in order, a later one
    replaces an earlier one of the same setting. A flag's value may be text in any form that the file takes.
    """
    environ = os.environ if environ is None else environ
    given = [*_moved(environ), *kept]
    if config is not None:
        given += from_file(config)
    given += from_environment(environ)
    given += flags
    return build(given)


def build(given: Iterable[Given]) -> Settings:
    """The defaults with each given value laid over them, in order."""
    sections: dict[str, dict[str, object]] = {}
    for one in given:
        row, bare = _row_of(one)
        sections.setdefault(row.section, {})[row.key] = _read(row, bare, one)
    built = {
        section: msgspec.structs.replace(getattr(Settings(), section), **values) for section, values in sections.items()
    }
    return msgspec.structs.replace(Settings(), **built)


def from_file(path: Path) -> list[Given]:
    """Every key of a TOML file. Only sections stand at its top."""
    try:
        text = path.read_bytes().decode("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(str(path), "cannot be read", needed="a readable TOML file", came=error.strerror) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(str(path), "is not TOML", needed="TOML 1.0 in UTF-8", came=str(error)) from error
    given = []
    for section, table in document.items():
        where = f"{path} [{section}]"
        if section not in _SECTIONS:
            raise SettingsError(where, "no such section", remedy=nearest(section, _SECTIONS))
        if not isinstance(table, dict):
            raise SettingsError(where, "is a section", needed=f"[{section}] with keys below it", came=table)
        given += [Given(f"{section}.{key}", value, f"{where} {key}") for key, value in table.items()]
    return given


def from_environment(environ: Mapping[str, str]) -> list[Given]:
    """Every `HEADRACE_SECTION__KEY`. A list is written with commas, or as a JSON list when an entry holds one."""
    given = []
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_OTHERS:
            continue
        section, separator, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if not separator:
            raise SettingsError(variable, "no such setting", remedy=_nearest_variable(variable))
        given.append(Given(f"{section}.{key}", environ[variable], variable))
    return given


def rows() -> tuple[Row, ...]:
    """All settings in the order of their sections and fields."""
    return _ROWS


def product_token(crawl: Crawl) -> str:
    """The name that robots.txt groups are matched against (RFC 9309 section 2.2.1): `MyBot` of `MyBot/1.0 (+mail)`."""
    return user_agent_parts(crawl.user_agent)[0]


def contact_of(crawl: Crawl) -> str:
    """Where a site's operator finds the person who crawls; empty when nobody said."""
    return crawl.contact or user_agent_parts(crawl.user_agent)[2]


def user_agent_header(crawl: Crawl, version: str) -> str:
    """The User-Agent line: product, version and contact. `version` is ours, used when the user named none."""
    token, own_version, _ = user_agent_parts(crawl.user_agent)
    contact = contact_of(crawl)
    return f"{token}/{own_version or version}" + (f" (+{contact})" if contact else "")


def _moved(environ: Mapping[str, str]) -> list[Given]:
    """Where the services of this machine are, when `HEADRACE_PORTS` moved them from the defaults."""
    if not environ.get("HEADRACE_PORTS"):
        return []
    at = catalog.endpoints(environ)
    names = {"s3_endpoint": "s3", **{name: name for name in ("kafka", "cassandra", "opensearch", "connect")}}
    return [Given(f"fleet.{key}", at[name], "HEADRACE_PORTS") for key, name in names.items()]


# --- reading one value --------------------------------------------------------------------------------------------


def _nearest_variable(variable: str) -> str:
    """For a name without a section: the setting of that key, or else the variable that looks most like it."""
    key = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    here = [row for row in rows() if key in (row.key, units.without_unit(row.key))]
    known = [f"{ENVIRONMENT_PREFIX}{row.section}__{row.key}".upper() for row in here or rows()]
    return nearest(variable, known if here else [*known, *sorted(ENVIRONMENT_OTHERS)])


def _row_of(one: Given) -> tuple[Row, Unit | None]:
    """The setting that is meant, and what a bare number counts under the name that was used."""
    row = _BY_NAME.get(one.name)
    if row is not None:
        return row, None
    row = _BY_FRIENDLY_NAME.get(one.name)
    if row is not None:
        return row, Unit.BYTES if row.unit is Unit.BYTES else Unit.S
    section, _, key = one.name.partition(".")
    if section not in _SECTIONS:
        raise SettingsError(one.where, f'no section "{section}"', remedy=nearest(section, _SECTIONS))
    here = {name.partition(".")[2]: name for name in (*_BY_NAME, *_BY_FRIENDLY_NAME) if name.startswith(section + ".")}
    near = difflib.get_close_matches(key, here, n=1, cutoff=0.6)
    if near:
        remedy = f'did you mean "{near[0]}"?'
    else:
        elsewhere = [name for name in _BY_NAME if name.partition(".")[2] == key]
        remedy = f'did you mean "{elsewhere[0]}"?' if elsewhere else nearest(one.name, [*_BY_NAME])
    raise SettingsError(one.where, f'no setting "{key}" in [{section}]', remedy=remedy)


def _read(row: Row, bare: Unit | None, one: Given) -> object:
    value = one.value
    if row.optional and (value is None or (isinstance(value, str) and value.strip().lower() == "none")):
        return None
    if row.type is int:
        return _read_number(row, bare, one)
    if row.type is bool:
        return _read_bool(one)
    if row.type is tuple:
        return _read_list(row, one)
    if isinstance(row.type, type) and issubclass(row.type, enum.Enum):
        return _read_enum(row.type, one)
    if not isinstance(value, str) or not value.isprintable():
        raise SettingsError(one.where, "not a text", needed="a text of printable characters in quotes", came=value)
    check = _TEXT_CHECKS.get(row.key)
    if check is not None:
        check(value, one)
    return value


def _read_number(row: Row, bare: Unit | None, one: Given) -> int:
    value, count = one.value, None
    if isinstance(value, str) or (isinstance(value, float) and row.unit is not Unit.NONE and bare is not None):
        count = units.parse(str(value), row.unit, bare=bare)
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value if bare is None else units.parse(str(value), row.unit, bare=bare)
    if count is None:
        raise SettingsError(one.where, "not a number", needed=units.needed(bare or row.unit), came=value)
    least, most = _RANGES.get(row.name, (1, NUMBER_MAX))
    if not least <= count <= most:
        needed = f"at least {units.show(least, row.unit)}" if count < least else f"at most {units.show(most, row.unit)}"
        raise SettingsError(one.where, "out of range", needed=needed, came=value)
    return count


def _read_bool(one: Given) -> bool:
    if isinstance(one.value, bool):
        return one.value
    word = one.value.strip().lower() if isinstance(one.value, str) else ""
    if word in ("true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise SettingsError(one.where, "not a truth value", needed="true or false", came=one.value)


def _read_enum(kind: type[enum.Enum], one: Given) -> enum.Enum:
    known = [str(member.value) for member in kind]
    if isinstance(one.value, kind):
        return one.value
    if isinstance(one.value, str) and one.value.lower() in known:
        return kind(one.value.lower())
    remedy = nearest(one.value, known) if isinstance(one.value, str) else ""
    raise SettingsError(one.where, "no such choice", needed=f"one of {', '.join(known)}", came=one.value, remedy=remedy)


def _read_list(row: Row, one: Given) -> tuple[str, ...]:
    value = one.value
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = msgspec.json.decode(value, type=list[str])
            except msgspec.DecodeError as error:
                raise SettingsError(
                    one.where, "not a list", needed='a JSON list such as ["a", "b"]', came=value
                ) from error
        else:
            value = [entry.strip() for entry in value.split(",") if entry.strip()]
    if not isinstance(value, (list, tuple)) or not all(isinstance(entry, str) for entry in value):
        raise SettingsError(one.where, "not a list of texts", needed='a list such as ["a", "b"]', came=value)
    check = _ENTRY_CHECKS.get(row.name)
    if check is not None:
        for entry in value:
            check(entry, one)
    return tuple(value)


_RANGES = {  # least, most; any other number is at least 1
    "crawl.depth_max": (0, NUMBER_MAX),
    "crawl.wait_max_s": (0, NUMBER_MAX),
    "crawl.workers": (0, 1_024),
    "crawl.fetch_concurrency": (1, 65_536),
    "politeness.delay_ms": (0, NUMBER_MAX),
    "politeness.concurrency": (1, 1_024),
    "politeness.address_concurrency": (1, 1_024),
    "politeness.address_delay_ms": (0, NUMBER_MAX),
    "politeness.domain_concurrency": (1, 1_024),
    "politeness.domain_delay_ms": (0, NUMBER_MAX),
    "budget.new_per_day": (0, NUMBER_MAX),
    "budget.revisit_per_day": (0, NUMBER_MAX),
    "budget.retry_per_day": (0, NUMBER_MAX),
    "fetch.codings_max": (0, 8),
    "fetch.robots_bytes_max": (ROBOTS_BYTES_MAX, NUMBER_MAX),  # RFC 9309 section 2.5: at least 500 KiB
    **settings_fleet.RANGES,
}
_TEXT_CHECKS = TEXT_CHECKS | settings_fleet.TEXT_CHECKS
_ENTRY_CHECKS = ENTRY_CHECKS | settings_fleet.ENTRY_CHECKS


def _rows_of(section: str, struct: type[msgspec.Struct]) -> Iterable[Row]:
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        kind: object = hints[field.name]
        optional = isinstance(kind, types.UnionType)
        if isinstance(kind, types.UnionType):
            kind = next(member for member in kind.__args__ if member is not types.NoneType)
        kind = tuple if typing.get_origin(kind) is tuple else kind
        yield Row(section, field.name, kind, optional, field.default, units.unit_of(field.name))


_SECTIONS = tuple(field.name for field in msgspec.structs.fields(Settings))
_ROWS = tuple(row for section in _SECTIONS for row in _rows_of(section, type(getattr(Settings(), section))))
_BY_NAME = {row.name: row for row in _ROWS}
_BY_FRIENDLY_NAME = {f"{row.section}.{units.without_unit(row.key)}": row for row in _ROWS if row.unit is not Unit.NONE}
