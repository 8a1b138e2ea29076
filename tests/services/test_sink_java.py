"""The sink's own Java tests, run by Maven: they cover what a real index will not do on request."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
TESTS_MIN = 70  # fewer would mean that a class of them was not found


def _maven(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    maven = shutil.which("mvn")
    assert maven, "the sink is built by Maven: needed mvn on PATH; install it (Debian, Ubuntu: apt-get install maven)"
    pom = ROOT / "connectors" / "sink" / "pom.xml"
    return subprocess.run(
        [maven, "-B", "-ntp", *words, "-f", str(pom), f"-Dbuild.folder={folder}", "package"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_sink_is_built_and_tested(tmp_path: Path) -> None:
    """Every Java test passes, without a warning of the compiler, and the jar holds our classes and nothing else."""
    run = _maven(tmp_path / "offline", "-o")  # what was fetched once serves; the network is asked only for the rest
    folder = tmp_path / "offline"
    if run.returncode != 0 and not re.search(r"Tests run: \d+, ", run.stdout):
        folder = tmp_path / "online"
        run = _maven(folder)
    assert run.returncode == 0, run.stdout[-6_000:] + run.stderr[-2_000:]
    totals = re.findall(r"Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)$", run.stdout, re.MULTILINE)
    count, *others = map(int, totals[-1])
    assert count >= TESTS_MIN
    assert others == [0, 0, 0]
    with ZipFile(folder / "headrace-sink.jar") as jar:
        names = [name for name in jar.namelist() if not name.endswith("/")]
    ours = "META-INF/services/org.apache.kafka.connect.sink.SinkConnector"
    foreign = [name for name in names if not name.startswith("io/headrace/sink/")]
    assert sorted(foreign) == ["META-INF/MANIFEST.MF", ours]
