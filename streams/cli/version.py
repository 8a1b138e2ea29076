"""`headrace version`: this version and those of what it stands on, for a report of a fault."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

from infra.web import version
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE

EXAMPLES = """
  headrace version
"""

STANDS_ON = ("aiohttp", "uvloop", "rocksdict", "selectolax", "lxml", "ada-url", "isal", "pyarrow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    shell.print(f"headrace {version()}")
    shell.print(f"  Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    shell.print("  " + ", ".join(f"{name} {metadata.version(name)}" for name in STANDS_ON))
    return EXIT_DONE
