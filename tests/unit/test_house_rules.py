"""The rules of this house that a linter does not know, held over every file of the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("schemas", "streams", "connectors", "infra", "tests")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".avsc", ".json", ".txt", ".cql", ".yaml", ".yml", ""}
LINES_MAX = 500
FUNCTION_LINES_MAX = 90  # about 70 is the rule of the house; nothing is so special that it needs half as much again

# The core decides from what it is given. Submodules that import-linter cannot name stand here too.
CORE_FORBIDDEN = {
    *(
        "asyncio",
        "os",
        "io.open",
        "pathlib",
        "random",
        "secrets",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
    ),
    *("multiprocessing", "time", "uuid", "urllib.request", "http", "aiohttp", "rocksdict", "pyarrow", "faust"),
}
SKIPPING = {"skip", "skipif", "xfail", "importorskip", "skipTest"}
# Written in pieces, so that this file does not hold what it forbids.
MACHINE_PATHS = re.compile(
    "|".join(("/wo" + "rk/", "/ro" + "ot/", "/ho" + r"me/\w", "/Us" + r"ers/\w", "/tm" + r"p/\w"))
)


def modules(*packages: str) -> list[Path]:
    """Every Python file of these packages, by path."""
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """The file, parsed once."""
    return ast.parse(path.read_text("utf-8"), str(path))


def name_of(path: Path) -> str:
    """The path from the checkout, for messages."""
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a file imports, wherever in it."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def is_forbidden(dotted: str) -> bool:
    """True when the name, or a package that it lies in, is forbidden to the core."""
    parts = dotted.split(".")
    return any(".".join(parts[:length]) in CORE_FORBIDDEN for length in range(1, len(parts) + 1))


def test_nothing_is_skipped() -> None:
    """A test that skips itself says nothing when it matters: no skip, no xfail, in any spelling."""
    found = [
        f"{name_of(path)}:{node.lineno}: {node.attr}"
        for path in modules("tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr in SKIPPING
    ]
    found += [
        f"{name_of(path)}:{line}: {dotted}"
        for path in modules("tests")
        for line, dotted in imports(path)
        if dotted.rpartition(".")[2] in SKIPPING
    ]
    assert found == []


def test_no_test_sleeps() -> None:
    """A sleep is too short on a slow machine and too long on a fast one: wait for the event itself."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules("tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "sleep"
    ]
    assert found == []


def test_every_test_says_what_it_protects() -> None:
    """A test without its sentence is deleted by the first person whom it hinders."""
    found = [
        f"{name_of(path)}:{node.lineno}: {node.name}"
        for path in modules("tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert found == []


def test_modules_stay_short() -> None:
    """A module beyond 500 lines has become two."""
    long = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in modules(*PACKAGES)}
    assert {name: lines for name, lines in long.items() if lines > LINES_MAX} == {}


def test_functions_stay_short() -> None:
    """A function is read whole or not at all."""
    found = [
        f"{name_of(path)}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in modules(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert found == []


def test_the_core_imports_no_world() -> None:
    """A clock, dice or socket in the core makes a rule that no simulation can replay."""
    files = [*modules("streams/core"), ROOT / "streams" / "topology.py"]
    found = [
        f"{name_of(path)}:{line}: {dotted}"
        for path in files
        for line, dotted in imports(path)
        if is_forbidden(dotted) or dotted.split(".")[0] in ("connectors", "infra")
    ]
    assert found == []


def test_the_core_asks_no_clock_or_file() -> None:
    """The builtins and methods that need no import are closed too: open, input, print, datetime.now, hash()."""
    banned_calls = {"open", "input", "print", "hash"}
    banned_methods = {"now", "utcnow", "today"}
    found = [
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in modules("streams/core")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in banned_calls)
            or (isinstance(node.func, ast.Attribute) and node.func.attr in banned_methods)
        )
    ]
    assert found == []


def test_no_broad_except_without_a_reason() -> None:
    """A fault of ours must be seen: a broad except raises again, or a comment on its line says why it must be broad."""
    found = []
    for path in modules("schemas", "streams", "connectors", "infra"):
        lines = path.read_text("utf-8").splitlines()
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            if broad and not raises and "#" not in lines[node.lineno - 1]:
                found.append(f"{name_of(path)}:{node.lineno}")
    assert found == []


def tracked_texts() -> list[Path]:
    """The text files that belong to the project: its packages and what lies at the top."""
    top = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".git")]
    ours = [path for package in (*PACKAGES, ".ci") for path in (ROOT / package).rglob("*") if path.is_file()]
    return sorted(path for path in (*top, *ours) if path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts)


def test_no_machine_paths() -> None:
    """A path of somebody's machine works on that machine."""
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in tracked_texts()
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("dotted", "forbidden"),
    [
        ("time", True),
        ("time.monotonic", True),
        ("urllib.request.urlopen", True),
        ("urllib.parse.urlsplit", False),
        ("datetime.datetime", False),
    ],
)
def test_the_import_rule_itself(dotted: str, forbidden: bool) -> None:
    """A rule that matches nothing passes for ever: these are what it must and must not find."""
    assert is_forbidden(dotted) is forbidden
