"""A parser process: `python -m connectors.parser_worker PRODUCT_TOKEN LIMITS_JSON RECORDS`, a socket as standard input.

It parses one record after another and answers each. The limits are the kernel's, for a parser in C hears no signal
handler: address space by RLIMIT_AS, CPU time by an interval timer whose signal ends the process. So a bomb costs its
own record, and the pool, which knows what was being parsed, starts another worker. What the process inherits is its
socket and standard error; it lowers its priority, offers itself first to the out-of-memory killer, leaves no core, and
ends when the socket does.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Protocol

import msgspec
from selectolax.lexbor import SelectolaxError

from connectors.parser_frames import (
    HEADER,
    failed_page,
    hello_frame,
    parse_header,
    read_task,
    response_frame,
)
from connectors.ports import ParseOutput
from schemas.records import Kind, ParsedPage, ParseTask
from streams.core.memo import Memo
from streams.core.parse import parse_page
from streams.core.policy import ParseLimits
from streams.core.rules.sitemaps import read
from streams.core.store import parsed_records

LINKS_REMEMBERED_MAX = 50_000  # in each of the memo's two halves; some 12 MB
RECORDS_MAX = 50_000  # then the worker retires: whatever leaks in a parser written in C is bounded
NICENESS = 5
OPEN_FILES_MAX = 32
READ_BUFFER_BYTES = 256 * 1024
PARSE_MEMORY = "parse_memory"

Parse = Callable[[ParseTask, bytes], ParseOutput]


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def main(arguments: list[str]) -> None:
    """Serve until the pool closes the socket."""
    product_token, limits_json, records = arguments
    limits = msgspec.json.decode(limits_json.encode(), type=ParseLimits)
    serve(lambda task, body: parse(task, body, limits, product_token), limits, records=records == "1")


def parse(task: ParseTask, body: bytes, limits: ParseLimits, product_token: str) -> ParseOutput:
    """What one body gives, by the kind it was fetched as."""
    if task.kind is Kind.SITEMAP:
        return ParseOutput(parse_sitemap(task, body, limits))
    # The moment of the fetch, not ours: a body parsed again later gives the same.
    parsed = parse_page(task, body, limits=limits, product_token=product_token, now_ms=task.fetched_ms)
    return ParseOutput(parsed.page, parsed.text.encode("utf-8", "replace"))


def parse_sitemap(task: ParseTask, body: bytes, limits: ParseLimits) -> ParsedPage:
    """A sitemap's or feed's entries: pages, then the sitemaps that an index names. `error` when it is none."""
    sitemap = read(
        body,
        url=task.url,
        content_type=task.content_type,
        limits=limits,
        trusted_hosts=frozenset(task.trusted_hosts),
    )
    error = sitemap.errors[-1] if sitemap.type in ("invalid", "refused") else ""
    return msgspec.structs.replace(
        failed_page(task, error), entries=sitemap.entries + sitemap.children, sitemap_type=sitemap.type
    )


def with_records(output: ParseOutput) -> ParseOutput:
    """The output with what the store is to append made and compressed here, in place of the text."""
    records = parsed_records(output.page, output.text)
    return ParseOutput(output.page, b"", records.data, records.text_record_bytes)


def without_known_links(page: ParsedPage, memo: Memo) -> ParsedPage:
    """The page without links that this process named before, as near to a seed and free to be followed.

    The owner has seen them or is gone, and this process with it. Most links of real pages are such, and each costs the
    owner a record, a route and a look-up.
    """
    if not page.follow or not page.links:
        return page
    depth = page.depth + 1
    links = tuple(link for link in page.links if link.nofollow or not memo.knows(link.url, depth))
    return msgspec.structs.replace(page, links=links, links_omitted=len(page.links) - len(links))


def serve(parse_one: Parse, limits: ParseLimits, *, records: bool, records_max: int = RECORDS_MAX) -> None:
    """Answer requests from standard input, a stream socket, until it ends or `records_max` are done."""
    # The pool's terminal is not ours: the first Ctrl-C drains the crawl, and that needs parsers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with socket.socket(fileno=os.dup(0)) as stream, stream.makefile("rb", READ_BUFFER_BYTES) as requests:
        _confine(limits)
        try:
            stream.sendall(hello_frame)
            memo, generation = Memo(LINKS_REMEMBERED_MAX), 0
            for number in range(1, records_max + 1):
                request = _read_request(requests)
                if request is None:
                    return
                task, body, now = request
                if now != generation:
                    memo.forget()
                    generation = now
                output = _answer(task, body, parse_one, limits, records=records)
                if records:  # they hold all links; what goes to the owner need not
                    output = msgspec.structs.replace(output, page=without_known_links(output.page, memo))
                retiring = number == records_max or output.page.error == PARSE_MEMORY
                stream.sendall(response_frame(output, retiring=retiring))
                if retiring:
                    return
        except (BrokenPipeError, ConnectionResetError):
            return  # the pool is gone


def _answer(task: ParseTask, body: bytes, parse_one: Parse, limits: ParseLimits, *, records: bool) -> ParseOutput:
    """The answer to one request, made within its CPU time. Out of memory is an answer too."""
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_ms_max / 1000)
    try:
        output = parse_one(task, body)
        return with_records(output) if records else output
    except (MemoryError, SelectolaxError):  # lexbor's only error: it was given no memory
        return ParseOutput(failed_page(task, PARSE_MEMORY))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _read_request(requests: _Readable) -> tuple[ParseTask, bytes, int] | None:
    """The next request: task, body, generation; None at the end of the stream, be it in the midst of one."""
    data = requests.read(HEADER.size)
    if len(data) < HEADER.size:
        return None
    header = parse_header(data)
    head = requests.read(header.first)
    body = requests.read(header.second)
    if len(head) < header.first or len(body) < header.second:
        return None
    return read_task(head), body, header.flags


def _confine(limits: ParseLimits) -> None:
    """Give up what a parser does not need. Called once everything is imported: memory counts from here."""
    gc.collect()
    gc.freeze()
    os.nice(NICENESS)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    if sys.platform == "linux":
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
        with open("/proc/self/statm") as statm:
            own_bytes = int(statm.read().split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, own_bytes + limits.memory_bytes_max)


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


if __name__ == "__main__":
    main(sys.argv[1:])
