"""The settings that a crawl was begun with, kept in its folder as a settings file that people can read and edit.

A resumed run goes by them unless it is told otherwise, and `explain` judges by them: `crawl --out DIR` alone goes on as
the crawl began. They stand below every other source; what a run is told anew is kept from then on.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path

import msgspec

from infra import settings_fleet
from infra.folder import write_whole
from infra.settings import Given, Settings, from_file, rows
from streams.core.failures import CrawlError

__all__ = ["KEPT", "keep", "kept", "kept_settings"]

KEPT = "settings.toml"
_OF_ONE_RUN = frozenset({"crawl.out", "crawl.pages_max", "crawl.time_max_s"})
"""Where the folder is, and when a run ends: not of the crawl. The fleet's section is not either, and holds secrets."""


def kept(root: Path) -> list[Given]:
    """What the folder keeps, in the form of any other source; nothing when it keeps none. Raises SettingsError."""
    path = root / KEPT
    return from_file(path) if path.exists() else []


def keep(root: Path, settings: Settings) -> None:
    """Write what differs from the defaults, whole and synced. Only by the process that holds the folder.

    Raises CrawlError when it cannot be written.
    """
    lines = ["# What this crawl goes by. A later run's own file, environment and options win, and are kept here."]
    section = ""
    for name, value in kept_settings(settings):
        here, _, key = name.partition(".")
        if here != section:
            lines += ["", f"[{here}]"]
            section = here
        lines.append(f"{key} = {value}")
    data = ("\n".join(lines) + "\n").encode()
    try:
        if (root / KEPT).exists() and (root / KEPT).read_bytes() == data:
            return
        write_whole(root / KEPT, data, sync=True)
    except OSError as error:
        raise CrawlError(
            f"{root}: needed to write {KEPT}, got: {error.strerror}; make room on that disk, or name another folder"
            " with --out"
        ) from error


def kept_settings(settings: Settings) -> Iterator[tuple[str, str]]:
    """(dotted name, value as TOML) of each setting that is not its default, in the order of the file's sections."""
    for row in rows():
        value = getattr(getattr(settings, row.section), row.key)
        if value != row.default and row.name not in _OF_ONE_RUN and row.section != settings_fleet.SECTION:
            yield row.name, _toml(value)


def _toml(value: object) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")  # DEL is the one that JSON leaves as it is
