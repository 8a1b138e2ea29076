"""Conformance of page parsing: `html_links/cases.jsonl`, pages in the same folder or written by its generate.py."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from schemas.records import BodyRef, Kind, ParseTask
from streams.core.parse import ParsedBody, describe, parse_page
from streams.core.policy import ParseLimits
from streams.core.rules.urls import host_key, normalize, url_id
from tests.conformance.cases import Case, CaseResult, Verdict, answers, run_each

LINK_KINDS = ("a", "area", "iframe", "frame", "svg-a")
GENERATE_S_MAX = 120


def run(directory: Path) -> list[CaseResult]:
    """Read every page of `html_links/cases.jsonl` and compare all that its case expects."""
    folder = directory / "html_links"
    with tempfile.TemporaryDirectory() as written:
        return run_each(folder / "cases.jsonl", partial(_check, folder, Path(written)))


def _check(folder: Path, written: Path, case: Case) -> Verdict:
    parsed = _parse(case, _body(folder, written, case))
    got = describe(parsed)
    wrong_expected: dict[str, object] = {}
    wrong_got: dict[str, object] = {}
    optional = set(case.get("optional_fields", ()))
    for field, expected in case["expected"].items():
        if field in optional:
            continue
        if field == "links":
            verdict = _links_verdict(case, expected, got)
        else:
            value = _value(field, got, case)
            accepted = answers(case, expected, f"also_accepted_{field}")
            verdict = any(_same(field, value, one) for one in accepted), accepted, value
        if not verdict[0]:
            wrong_expected[field], wrong_got[field] = verdict[1], verdict[2]
    return not wrong_expected, wrong_expected or case["expected"], wrong_got or None


def _body(folder: Path, written: Path, case: Case) -> bytes:
    if "generate" not in case:
        return (folder / str(case["file"])).read_bytes()
    name = str(case["generate"])
    subprocess.run(
        [sys.executable, str(folder / "generate.py"), str(written), name],
        check=True,
        capture_output=True,
        timeout=GENERATE_S_MAX,
    )
    return (written / f"{name}.html").read_bytes()


def _parse(case: Case, body: bytes) -> ParsedBody:
    headers = {name.lower(): value for name, value in case.get("headers", {}).items()}
    url = normalize(case["url"])
    assert url is not None, f"the case's url must be one: {case['url']}"
    now_ms = 0
    if "now" in case:
        now_ms = int(datetime.fromisoformat(case["now"].replace("Z", "+00:00")).timestamp() * 1000)
    content_types = _lines(headers.get("content-type"))
    task = ParseTask(
        url_id=url_id(url),
        host_key=host_key(url),
        url=url,
        url_version=1,
        kind=Kind.PAGE,
        content=BodyRef("", 0, 0),
        fetched_ms=now_ms,
        depth=0,
        extractor_version=1,
        content_type=content_types[-1] if content_types else None,
        robots_tags=_lines(headers.get("x-robots-tag")),
        link_headers=_lines(headers.get("link")),
    )
    return parse_page(
        task,
        body,
        limits=ParseLimits(),
        product_token=case.get("user_agent", "Headrace"),
        now_ms=now_ms,
        with_resources="resources" in case["expected"],
    )


def _lines(value: str | list[str] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _links_verdict(case: Case, expected: list[Any], got: dict[str, Any]) -> Verdict:
    links = [link for link in got["links"] if link["kind"] in LINK_KINDS]
    if "expected_count" in case or "min_links" in case:
        # A cap is allowed when it is reported.
        least = case.get("also_accepted_min", case.get("expected_count", 0)) if got["error"] else 0
        least = max(least or case.get("expected_count", 0), case.get("min_links", 0))
        most = case.get("expected_count", len(links))
        return least <= len(links) <= most, f"{least} to {most} links", len(links)
    accepted = answers(case, expected, "also_accepted_links")
    return any(_same_links(case, links, one) for one in accepted), accepted, links


def _same_links(case: Case, links: list[dict[str, Any]], expected: Any) -> bool:
    """As sets of URLs; kinds and rel too where the case gives them and does not only compare URLs."""
    by_url: dict[str, list[dict[str, Any]]] = {}
    for item in expected:
        item = {"url": item} if isinstance(item, str) else item
        by_url.setdefault(item["url"], []).append(item)
    found = {link["url"]: link for link in links}
    optional = set(case.get("optional_urls", ()))
    if (set(found) - optional) != (set(by_url) - optional) or not set(found) <= set(by_url) | optional:
        return False
    if case.get("compare") in ("set", "url"):
        return True
    return all(
        any(all(link[key] == value for key, value in item.items() if key in link) for item in by_url[url])
        for url, link in found.items()
        if url in by_url
    )


def _value(field: str, got: dict[str, Any], case: Case) -> Any:
    """What was found for one expected field. With `canonical_header` asked for, `canonical` means the element's."""
    if field == "canonical" and "canonical_header" in case["expected"]:
        return got["canonical_element"]
    return got[field]


def _same(field: str, value: Any, expected: Any) -> bool:
    if field == "resources":
        return set(value) == set(expected)
    if field in ("head_links", "feeds"):
        return _same_items(value, expected)
    return bool(value == expected)


def _same_items(value: list[Any], expected: list[Any]) -> bool:
    """Lists of URLs, or of objects with `url` and further keys: each expected one is there, and no other URL is."""
    items = [{"url": item} if isinstance(item, str) else item for item in value]
    wanted = [{"url": item} if isinstance(item, str) else item for item in expected]
    if {item["url"] for item in items} != {item["url"] for item in wanted}:
        return False
    return all(any(_has_all(item, want) for item in items) for want in wanted)


def _has_all(item: dict[str, Any], want: dict[str, Any]) -> bool:
    for key, value in want.items():
        given = item.get(key)
        if key == "rel" and isinstance(value, str):
            value = value.split()
        if key in item and given != value and not (given == "" and value is None):
            return False
    return True
