"""Which Java and which Maven this machine has, and what to install when the right one is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from infra.services.errors import ServiceError

__all__ = ["Java", "find_java", "find_maven"]

_SYSTEM = Path("/usr/lib/jvm")  # where Debian, Ubuntu, Fedora and Temurin's packages lie
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')


class Java(NamedTuple):
    home: Path
    major: int

    @property
    def program(self) -> str:
        return str(self.home / "bin" / "java")

    @property
    def compiler(self) -> Path:
        return self.home / "bin" / "javac"


def find_java(
    who: str,
    span: tuple[int, int],
    environ: Mapping[str, str],
    *,
    compiler: bool = False,
    system: Path = _SYSTEM,
) -> Java:
    """The first Java within `span` (first and last major version): HEADRACE_JAVA, JAVA_HOME, PATH, the system's folder.

    `compiler`: it must be a JDK. Raises `ServiceError` that says for whom, what was found, and what to install.
    """
    found = []
    named = Path(environ["HEADRACE_JAVA"]).resolve() if environ.get("HEADRACE_JAVA") else None
    for home in _homes(environ, system):
        major = _major(home)
        if major is None:
            if home == named:
                raise ServiceError(
                    f"HEADRACE_JAVA: needed a folder whose bin/java runs, came {environ['HEADRACE_JAVA']}; "
                    "name such a folder (/usr/lib/jvm often has some), or unset it"
                )
            continue
        java = Java(home, major)
        if span[0] <= major <= span[1] and (java.compiler.is_file() or not compiler):
            return java
        found.append(f"{major} in {home}{'' if java.compiler.is_file() else ' (no compiler)'}")
    first, last = span
    versions = (
        f"Java {first}" if first == last else f"Java {first} to {last}" if last < 99 else f"Java {first} or newer"
    )
    raise ServiceError(
        f"{who} needs {versions}{' with its compiler, a JDK' if compiler else ''}; found "
        f"{', '.join(found) or 'no Java'}; install one (Debian, Ubuntu: apt-get install openjdk-{first}-jdk-headless) "
        "or name its folder: HEADRACE_JAVA=/path/to/jdk"
    )


def find_maven(environ: Mapping[str, str]) -> str:
    """The `mvn` on PATH."""
    program = shutil.which("mvn", path=environ.get("PATH", ""))
    if program is None:
        raise ServiceError(
            "the services are fetched by Maven, and no mvn is on PATH; install it "
            "(Debian, Ubuntu: apt-get install maven)"
        )
    return program


def _homes(environ: Mapping[str, str], system: Path) -> Iterator[Path]:
    seen = set()
    named = [Path(environ[name]) for name in ("HEADRACE_JAVA", "JAVA_HOME") if environ.get(name)]
    program = shutil.which("java", path=environ.get("PATH", ""))
    if program is not None:
        named.append(Path(program).resolve().parent.parent)
    if system.is_dir():
        named += sorted(path for path in system.iterdir() if path.is_dir())
    for home in named:
        place = home.resolve()
        if place not in seen:
            seen.add(place)
            yield place


def _major(home: Path) -> int | None:
    """The major version, from the program itself; None where none runs."""
    try:
        done = subprocess.run(
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match.group(1)) if match else None
