"""The real site that the end-to-end tests crawl: Debian's HTML documentation of PostgreSQL 15, about 1,170 pages.

`find()` says where it lies. `python -m infra.docsite` fetches it when it lies nowhere, into the folder `build`, as any
user and without installing anything: apt downloads the package with lists of its own, and dpkg-deb unpacks it there.
(An installed package is not enough on every machine: container images tell dpkg to leave out /usr/share/doc.)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "postgresql-doc-15"
PAGES_MIN = 1_000
BUILD = Path(__file__).resolve().parent.parent / "build" / "docsite"
CANDIDATES = (
    Path("/usr/share/doc") / PACKAGE / "html",
    BUILD / "site" / "usr" / "share" / "doc" / PACKAGE / "html",
)


class DocsiteError(Exception):
    """Why there is no site, and what to do."""


def find() -> Path | None:
    """The folder of the HTML pages, `index.html` among them; None when it lies nowhere on this machine."""
    return next((folder for folder in CANDIDATES if _is_whole(folder)), None)


def ensure() -> Path:
    """`find`, after fetching the package when that is needed. Raises `DocsiteError`."""
    found = find()
    if found is not None:
        return found
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise DocsiteError(f"{tool} is not here. {_remedy()}")
    print(f"headrace: fetching {PACKAGE} for the end-to-end tests, once", file=sys.stderr, flush=True)
    shutil.rmtree(BUILD, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "unpacked"):
        (BUILD / folder).mkdir(parents=True)
    options = [
        f"-oDir::State::lists={BUILD / 'lists'}",
        f"-oDir::Cache={BUILD / 'cache'}",
        "-oAPT::Sandbox::User=",
        "-oAPT::Update::Post-Invoke=",
        "-oAPT::Update::Post-Invoke-Success=",
        "-qq",
    ]
    _run(["apt-get", *options, "update"])
    _run(["apt-get", *options, "download", PACKAGE])
    packages = sorted(BUILD.glob("*.deb"))
    if not packages:
        raise DocsiteError(f"apt-get downloaded nothing. {_remedy()}")
    _run(["dpkg-deb", "-x", str(packages[0]), str(BUILD / "unpacked")])
    (BUILD / "unpacked").rename(BUILD / "site")
    for left in (BUILD / "lists", BUILD / "cache"):
        shutil.rmtree(left)
    found = find()
    if found is None:
        raise DocsiteError(f"the package holds no whole site. {_remedy()}")
    return found


def _is_whole(folder: Path) -> bool:
    return (folder / "index.html").is_file() and sum(1 for _ in folder.glob("*.html")) >= PAGES_MIN


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=BUILD, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise DocsiteError(f"`{command[0]} ... {command[-1]}` ended with {done.returncode}. {_remedy()}")


def _remedy() -> str:
    return (
        f"The end-to-end tests need Debian's package {PACKAGE} (Debian 12: apt-get install {PACKAGE}), "
        f"its HTML pages in {CANDIDATES[0]} or {CANDIDATES[1]}"
    )


def main() -> int:
    """Fetch the site when it is missing; the exit code is 0 when it lies there."""
    try:
        folder = ensure()
    except DocsiteError as error:
        print(f"headrace: no documentation site: {error}", file=sys.stderr)
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
