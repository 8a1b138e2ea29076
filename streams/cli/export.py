"""`headrace export`: a crawl's pages, links or CDXJ index as a file for other people's tools."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import msgspec

from connectors.export_cdxj import export_cdxj
from connectors.exports import export_kind, export_links, export_pages
from infra.folder import read_manifest
from streams.cli.shell import Shell
from streams.cli.words import count, size, span
from streams.core.failures import EXIT_DONE, CrawlError, UsageError

EXAMPLES = """
  headrace export news --to pages.parquet        one row a known URL: status, hash, body's place, depth, fetched_at
  headrace export news --to pages.jsonl
  headrace export news --to links.parquet        one row a link: source, target, kind, rel, nofollow
  headrace export news --to crawl.cdxj           an index of the WARC files for pywb and other replay tools
  headrace export news --to ./here.parquet       a path with a slash is taken as it is

A bare name goes into DIR. The file's name says what it holds; it appears when it is whole.
  duckdb -c "select status, count(*) from 'news/pages.parquet' group by 1"
"""

ROW_NAMES = {"pages": "URL", "links": "link", "cdxj": "record"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, metavar="DIR", help="the crawl's folder")
    parser.add_argument("--to", metavar="FILE", help="its name says what it holds: pages.*, links.* or *.cdxj")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON object")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if not arguments.to:
        raise UsageError("export: needed a file to write; headrace export DIR --to pages.parquet")
    kind = export_kind(arguments.to)
    path = arguments.dir / arguments.to if "/" not in arguments.to else Path(arguments.to)
    if read_manifest(arguments.dir) is None:
        raise CrawlError(f"{arguments.dir}: needed a crawl's folder, came one without a crawl; see what --out was")
    if not path.parent.is_dir():
        raise UsageError(f"--to {path}: no folder {path.parent}; make it, or take another path")
    started_s = time.monotonic()
    reader = shell.backend.open_reader(arguments.dir)
    try:
        if kind == "pages":
            rows = export_pages(reader.pages(), path)
        elif kind == "links":
            rows = export_links(
                arguments.dir,
                path,
                position=reader.position(),
                keep=lambda page: reader.is_current(page.url, page.url_version),
            )
        else:
            rows = export_cdxj(arguments.dir, path, position=reader.position())
    finally:
        reader.close()
    took_ms = int((time.monotonic() - started_s) * 1_000)
    bytes_written = path.stat().st_size
    if arguments.json:
        written = {"kind": kind, "path": str(path), "rows": rows, "bytes": bytes_written}
        shell.print(msgspec.json.encode(written).decode())
    else:
        shell.print(f"{path}: {count(rows, ROW_NAMES[kind])}, {size(bytes_written)} in {span(took_ms)}")
    return EXIT_DONE
