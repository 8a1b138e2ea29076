"""`headrace size`: brokers, nodes, workers, disk and network of a fleet, with the arithmetic of each."""

from __future__ import annotations

import argparse

import msgspec

from infra.production import sizing
from infra.production.sizing import Figures, Sizing
from infra.settings_values import nearest
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, UsageError

EXAMPLES = """
  headrace size                                        1 billion fetches a day, 10 billion URLs known
  headrace size corpus                                 10 billion URLs in five days, 2 MB each
  headrace size --set fetches_mean=500 --set fetches_peak=1000 --set known_urls=200e6 --set new_urls=100
  headrace size --figures                              what it reckons with, and where each figure is from
  headrace size --json | jq .value

Profiles: refresh (default), corpus. infra/production/README.md has both, with what they rest on.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", default="refresh", metavar="PROFILE", help="refresh (default) or corpus")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a figure of your own")
    parser.add_argument("--figures", action="store_true", help="show the figures, not what follows from them")
    parser.add_argument("--markdown", action="store_true", help="as tables for a page")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    profiles = sizing.read(sizing.FIGURES.read_text("utf-8"))
    if arguments.profile not in profiles:
        raise UsageError(f'size: no profile "{arguments.profile}"; known: {", ".join(profiles)}')
    given = _changed(profiles[arguments.profile], arguments.set)
    if arguments.figures:
        _show_figures(given, shell, as_json=arguments.json)
        return EXIT_DONE
    sized = sizing.size(given)
    if arguments.markdown:
        shell.print(sizing.markdown(sized))
    elif arguments.json:
        for part, lines in sized.parts.items():
            for line in lines:
                fields = {"part": part, **{name: getattr(line, name) for name in line.__struct_fields__}}
                shell.print(msgspec.json.encode(fields).decode())
    else:
        _show(sized, shell)
    return EXIT_DONE


def _changed(given: Figures, settings: list[str]) -> Figures:
    figures = dict(given.figures)
    for text in settings:
        name, _, number = text.partition("=")
        if name not in figures:
            raise UsageError(f'size: --set: no figure "{name}"; {nearest(name, figures)}')
        try:
            value = float(number.replace("_", ""))
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            raise UsageError(f'size: --set {name}: needed a number above 0, came "{number}"')
        figures[name] = msgspec.structs.replace(figures[name], value=value, source="given: --set")
    return Figures(given.name, figures)


def _show(sized: Sizing, shell: Shell) -> None:
    for number, (part, lines) in enumerate(sized.parts.items()):
        if number:
            shell.print()
        shell.print(part)
        for line in lines:
            shell.print(f"  {line.what:<33} {sizing.show(line.value, line.unit):>15}   {line.how}")


def _show_figures(given: Figures, shell: Shell, *, as_json: bool) -> None:
    for name, figure in given.figures.items():
        if as_json:
            fields = {name_: getattr(figure, name_) for name_ in figure.__struct_fields__}
            shell.print(msgspec.json.encode({"name": name, **fields}).decode())
        else:
            shell.print(f"{name:<22} {sizing.show(figure.value, figure.unit):>17}   {figure.source}")
