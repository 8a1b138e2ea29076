"""The verbs of `headrace`: one module each, imported only when its verb is called, so that help costs nothing.

A verb's module has `EXAMPLES` (shown by its help), `add_arguments(parser)` and `run(arguments, shell) -> exit code`.
A new verb is a module and a line of `VERBS`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, CrawlError, UsageError

__all__ = ["VERBS", "Verb", "main"]


class Verb(NamedTuple):
    """A word of the command line. `form` is what follows it in the table.

    `fleet` says that it needs the fleet's packages, which `infra/headrace` then sets up.
    """

    name: str
    module: str
    form: str
    summary: str
    fleet: bool = False


VERBS = (
    Verb("crawl", "streams.cli.crawl", "SEEDS... [--out DIR]", "fetch, politely, everything that the seeds lead to"),
    Verb("status", "streams.cli.status", "DIR|--fleet", "how a crawl stands, also while it runs"),
    Verb("explain", "streams.cli.explain", "DIR|--fleet URL|HOST", "why a URL or a host is, or is not, being fetched"),
    Verb(
        "host",
        "streams.cli.host",
        "DIR|--fleet HOST [--pause ...]",
        "an operator's word on a host: delay, pause, block, delete",
    ),
    Verb("export", "streams.cli.export", "DIR --to FILE", "pages or links as Parquet or JSON Lines, or a CDXJ index"),
    Verb("dead-letters", "streams.cli.dead_letters", "DIR|--fleet", "list, show or requeue what was given up"),
    Verb("check", "streams.cli.check", "robots|url|page|sitemap", "what Headrace makes of one input"),
    Verb("demo", "streams.cli.demo", "", "crawl a small web that it serves itself: half a minute, no network"),
    Verb("bench", "streams.cli.bench", "frontier|seen", "what the frontier and the seen test cost on this machine"),
    Verb(
        "simulate", "streams.cli.simulate", "[--seeds N]", "crawl a made-up web in virtual time, with faults everywhere"
    ),
    Verb(
        "services",
        "streams.cli.services",
        "up|down|status|logs [NAME...]",
        "the fleet's servers on this machine: Kafka, Cassandra, S3, Connect, OpenSearch",
        fleet=True,
    ),
    Verb(
        "provision",
        "streams.cli.provision",
        "[--only PART,...]",
        "make topics, tables, bucket, index and connector for a fleet",
        fleet=True,
    ),
    Verb(
        "worker",
        "streams.cli.worker",
        "[--stage S...] [--config FILE]",
        "a fleet's worker: owner, fetch, parse and route, or some of them",
        fleet=True,
    ),
    Verb(
        "seeds", "streams.cli.fleet.seeds", "FILE|-|URL...", "URLs into a fleet, acknowledged and counted", fleet=True
    ),
    Verb(
        "sitemap",
        "streams.cli.fleet.sitemap",
        "URL|FILE...",
        "what a sitemap or feed names, into a fleet",
        fleet=True,
    ),
    Verb(
        "replay",
        "streams.cli.fleet.replay",
        "--fleet [HOST...]",
        "stored bodies read anew by today's extractor; nothing is fetched",
        fleet=True,
    ),
    Verb(
        "topics",
        "streams.cli.fleet.topics",
        "list|tail TOPIC",
        "a fleet's topics, and their records as people read them",
        fleet=True,
    ),
    Verb(
        "home",
        "streams.cli.fleet.home",
        "[PARTITION|HOST...] [--to REGION]",
        "the region whose workers own a partition, and a move to another",
        fleet=True,
    ),
    Verb("size", "streams.cli.size", "[PROFILE]", "what a fleet of a given load needs, with the arithmetic"),
    Verb("settings", "streams.cli.settings_table", "", "every setting with its default and meaning"),
    Verb("version", "streams.cli.version", "", "this version and those of what it stands on"),
)


def main(argv: Sequence[str] | None = None, shell: Shell | None = None) -> int:
    """Run one command and return its exit code. Bad input is one line on stderr, never a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    shell = shell or Shell()
    try:
        code = _dispatch(words, shell)
        shell.out.flush()
        return code
    except CrawlError as error:
        shell.complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output went away (`| head`). Python would complain once more as it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except KeyboardInterrupt:
        shell.complain("stopped")
        return EXIT_INTERRUPTED
    except OSError as error:
        # What a verb foresaw, it said itself with the remedy; here the system's own words must do.
        place = f"{error.filename}: " if error.filename else ""
        with contextlib.suppress(OSError):  # of a terminal that is gone, stderr is gone, too
            shell.complain(f"{place}{error.strerror or error}")
        return EXIT_FAILED


def _dispatch(words: list[str], shell: Shell) -> int:
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        print(_table(), file=shell.out)
        return EXIT_DONE
    if words[0] in ("-V", "--version"):
        words = ["version"]
    if words[0] == "help":
        words = [*words[1:], "--help"]
    verb = _verb(words[0])
    module = importlib.import_module(verb.module)
    from streams.cli.arguments import Parser

    parser = Parser(verb.name, verb.summary, module.EXAMPLES, shell)
    module.add_arguments(parser)
    arguments = parser.parse(words[1:])
    return EXIT_DONE if arguments is None else int(module.run(arguments, shell))


def _verb(word: str) -> Verb:
    for verb in VERBS:
        if verb.name == word:
            return verb
    import difflib

    if "://" in word or word.startswith("www."):
        raise UsageError(f'"{word}" is no verb; to crawl it: headrace crawl {word}')
    near = difflib.get_close_matches(word, [verb.name for verb in VERBS], n=1, cutoff=0.5)
    hint = f'did you mean "headrace {near[0]}"?' if near else "headrace --help lists them"
    raise UsageError(f'no verb "{word}"; {hint}')


def _table() -> str:
    width = max(len(f"{verb.name} {verb.form}") for verb in VERBS) + 2
    rows = "\n".join(f"  {f'{verb.name} {verb.form}':<{width}}{verb.summary}" for verb in VERBS)
    return f"""headrace: a polite web crawler

{rows}

  headrace demo                                  see it work, without a network
  headrace crawl https://example.org --pages 500 --user-agent "MyBot/1.0 (+https://example.org/bot)"
  headrace VERB --help                           a verb's options, with examples"""
