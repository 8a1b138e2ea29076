"""What each setting means, for `headrace settings` and the documentation. A test holds this table to the structs."""

from __future__ import annotations

import enum

import msgspec

from infra import settings, settings_fleet, units
from infra.units import Unit


class Described(msgspec.Struct, frozen=True):
    """One line of the table. `default` is written as the file takes it."""

    name: str
    default: str
    unit: str
    meaning: str
    variable: str


def describe() -> tuple[Described, ...]:
    """Every setting in the order of the file's sections."""
    return tuple(
        Described(
            name=row.name,
            default=_show(row),
            unit=row.unit.value,
            meaning=MEANINGS[row.name],
            variable=f"{settings.ENVIRONMENT_PREFIX}{row.section}__{row.key}".upper(),
        )
        for row in settings.rows()
    )


def _show(row: settings.Row) -> str:
    default = row.default
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int):
        shown = units.show(default, row.unit)
        return shown if row.unit is Unit.NONE else f'"{shown}"'
    if isinstance(default, enum.Enum):
        return f'"{default.value}"'
    if isinstance(default, tuple):
        return "[" + ", ".join(f'"{entry}"' for entry in default) + "]"
    return f'"{default}"'


MEANINGS = {
    "crawl.user_agent": "product token that robots.txt groups are matched against; may carry version and contact",
    "crawl.contact": "URL or mail address of the person who crawls, sent with every request",
    "crawl.scope": "which URLs belong to the crawl: those of a seed's host, domain, path prefix, or any",
    "crawl.depth_max": "links from a seed that are still followed",
    "crawl.pages_max": "the crawl ends after this many pages",
    "crawl.time_max_s": "the crawl ends after this time and can be resumed",
    "crawl.wait_max_s": "how long a crawl with nothing else to do waits for retries",
    "crawl.include": "patterns: where given, only URLs that match one are fetched",
    "crawl.exclude": "patterns: URLs that match one are not fetched",
    "crawl.out": "folder of the crawl; one that holds a crawl is resumed",
    "crawl.allow_addresses": "networks that are fetched from although they are private or loopback",
    "crawl.workers": "parser processes; 0 is one a CPU",
    "crawl.fetch_concurrency": "requests in flight over all hosts",
    "politeness.delay_ms": "from the receipt of a result to the next request to the same host",
    "politeness.concurrency": "requests in flight to one host",
    "politeness.budget_per_day": "requests to one host in a day (UTC)",
    "politeness.address_concurrency": "requests in flight to all hosts of one IP address together",
    "politeness.address_delay_ms": "from the receipt of a result to the next request to any host of that IP address",
    "politeness.domain_concurrency": "requests in flight to all hosts of one registrable domain together",
    "politeness.domain_delay_ms": "from the receipt of a result to the next request to any host of that domain",
    "politeness.respect_robots": "obey robots.txt; turn off only for a site that is yours",
    "fetch.header_bytes_max": "all header lines of an answer together",
    "fetch.header_lines_max": "header lines of an answer",
    "fetch.header_line_bytes_max": "one header line",
    "fetch.body_bytes_max": "body after decoding; a Content-Length above it is refused before the body",
    "fetch.wire_bytes_max": "body as received",
    "fetch.decode_ratio_max": "decoded bytes for each byte received, looked at from 1 MiB on",
    "fetch.codings_max": "layers of Content-Encoding",
    "fetch.connect_ms_max": "opening a connection, TLS included",
    "fetch.idle_ms_max": "silence between two reads",
    "fetch.duration_ms_max": "the whole request, from connect to the last byte",
    "fetch.robots_bytes_max": "of a robots.txt that is parsed; RFC 9309 asks for 500 KiB at least",
    "parse.body_bytes_max": "of a longer page only this much is parsed",
    "parse.cpu_ms_max": "CPU time for one body",
    "parse.memory_bytes_max": "memory of a parser process above its own start",
    "parse.attributes_per_tag_max": "a page with more on one tag is not parsed",
    "parse.links_max": "links taken from one page",
    "parse.text_bytes_max": "text taken from one page",
    "parse.title_chars_max": "characters of a title",
    "parse.sitemap_bytes_max": "of a sitemap, decompressed",
    "parse.sitemap_urls_max": "URLs of one sitemap",
    "budget.new_per_day": "requests for new URLs in a day (UTC), over all hosts",
    "budget.revisit_per_day": "requests for known URLs in a day (UTC), over all hosts",
    "budget.retry_per_day": "requests for URLs that failed before in a day (UTC), over all hosts",
    "traps.template_urls_max": "URLs of one template (numbers, dates, ids taken out) of a host before it is paused",
    "traps.endless_template_urls_max": "the same for templates that have no end by shape: calendars, sessions, loops",
    "traps.sample_every": "of a paused template one URL in so many is fetched all the same",
    "store.segment_bytes_max": "a WARC segment is sealed at this size",
    "dns.servers": "DNS servers in rotation, ADDR or ADDR:PORT; none given: the system's",
    "dns.resolve": "names with a fixed address, NAME=ADDR",
    **settings_fleet.MEANINGS,
}
