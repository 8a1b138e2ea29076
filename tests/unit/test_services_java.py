"""The right Java is found, or what to install is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.services.errors import ServiceError
from infra.services.java import find_java, find_maven


def jdk(folder: Path, version: str, *, compiler: bool = True) -> Path:
    """A folder as a JDK has it, whose `java -version` says what we like."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    if compiler:
        (folder / "bin" / "javac").write_text("")
    return folder


def environ(*folders: Path, **named: Path) -> Mapping[str, str]:
    path = ":".join(str(folder / "bin") for folder in folders)
    return {"PATH": path, **{name: str(folder) for name, folder in named.items()}}


def test_the_named_java_comes_first(tmp_path: Path) -> None:
    """HEADRACE_JAVA over JAVA_HOME over PATH, each only when its version fits."""
    old, fit, new = (jdk(tmp_path / name, name) for name in ("11.0.2", "17.0.15", "25"))
    nowhere = tmp_path / "none"
    assert find_java("x", (17, 17), environ(new, JAVA_HOME=fit), system=nowhere).home == fit
    assert find_java("x", (17, 99), environ(fit, JAVA_HOME=old, HEADRACE_JAVA=new), system=nowhere).home == new
    assert find_java("x", (17, 17), environ(fit, HEADRACE_JAVA=new), system=nowhere).major == 17


def test_a_named_folder_without_a_java_is_refused(tmp_path: Path) -> None:
    """Who mistypes HEADRACE_JAVA is told, and does not get another Java without a word."""
    fit = jdk(tmp_path / "fit", "17.0.15")
    with pytest.raises(ServiceError, match=r"HEADRACE_JAVA: needed a folder whose bin/java runs, came .*/typo; name"):
        find_java("x", (17, 17), environ(fit, HEADRACE_JAVA=tmp_path / "typo"), system=tmp_path)


def test_a_fitting_java_of_the_system_is_found_without_a_word(tmp_path: Path) -> None:
    """With Java 25 on PATH Cassandra starts all the same, when Java 17 is installed."""
    new = jdk(tmp_path / "25", "25.0.1")
    fit = jdk(tmp_path / "jvm" / "java-17", "17.0.15")
    assert find_java("cassandra", (17, 17), environ(new), system=tmp_path / "jvm").home == fit


def test_a_wrong_java_is_named_with_the_remedy(tmp_path: Path) -> None:
    """What was needed, what was found and where, and what to install."""
    new = jdk(tmp_path / "new", "25.0.1")
    with pytest.raises(ServiceError) as error:
        find_java("cassandra", (17, 17), environ(new), system=tmp_path / "none")
    assert str(error.value) == (
        f"cassandra needs Java 17; found 25 in {new}; install one (Debian, Ubuntu: apt-get install "
        "openjdk-17-jdk-headless) or name its folder: HEADRACE_JAVA=/path/to/jdk"
    )


def test_a_missing_java_is_said_plainly(tmp_path: Path) -> None:
    """The registry needs a newer one than the rest; the words say from which version on."""
    with pytest.raises(ServiceError, match="registry needs Java 21 or newer; found no Java; install one"):
        find_java("registry", (21, 99), environ(), system=tmp_path)


def test_a_java_without_a_compiler_does_not_build(tmp_path: Path) -> None:
    """A JRE starts services but cannot compile our two pieces of Java."""
    jre = jdk(tmp_path / "jre", "17.0.15", compiler=False)
    assert find_java("kafka", (17, 99), environ(jre), system=tmp_path / "none").home == jre
    with pytest.raises(ServiceError, match=r"17 in .* \(no compiler\); install"):
        find_java("building", (17, 99), environ(jre), compiler=True, system=tmp_path / "none")


def test_a_missing_maven_is_said_plainly(tmp_path: Path) -> None:
    """No mvn on PATH: what to install."""
    with pytest.raises(ServiceError, match=r"no mvn is on PATH; install it \(Debian, Ubuntu: apt-get install maven\)"):
        find_maven({"PATH": str(tmp_path)})
