"""Conformance of sitemap reading: `sitemaps/cases.jsonl`, with the large files that the folder's generator writes.

Each case is read in a process of its own when it bounds memory, so that the peak measured is that case's alone.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from schemas.records import SitemapEntry
from streams.core.policy import ParseLimits
from streams.core.rules.sitemaps import Sitemap, read
from streams.core.rules.urls import normalize
from tests.conformance.cases import Case, CaseResult, Verdict, load_cases, run_each

GENERATE_SECONDS_MAX = 120
SYNONYMS = {"entity_expansion": {"entity_expansion", "entity", "external_entity"}}


def run(directory: Path) -> list[CaseResult]:
    """Judge every case of `directory`/sitemaps."""
    folder = directory / "sitemaps"
    cases = load_cases(folder / "cases.jsonl")
    names = [case["generate"] for case in cases if "generate" in case]
    with tempfile.TemporaryDirectory(prefix="headrace-sitemaps-") as made:
        if names:
            subprocess.run(
                [sys.executable, str(folder / "generate.py"), made, *names],
                check=True,
                timeout=GENERATE_SECONDS_MAX,
                stdout=subprocess.DEVNULL,
            )
        return run_each(folder / "cases.jsonl", lambda case: _check(case, folder, Path(made)))


def _check(case: Case, folder: Path, made: Path) -> Verdict:
    path = made / case["generate"] if "generate" in case else folder / case["file"]
    content_type = case.get("content_type") or (case.get("headers") or {}).get("content-type")
    memory_mb: float | None = None
    if "max_memory_mb" in case:
        sitemap, memory_mb = _read_apart(path, case["url"], content_type)
    else:
        sitemap = _read(path, case["url"], content_type)
    expected = case["expected"]
    got = {
        "type": sitemap.type,
        "urls": [_shown(entry) for entry in sitemap.entries],
        "children": [_shown(entry) for entry in sitemap.children],
        "errors": list(sitemap.errors),
    }
    wrong = [name for name, right in _questions(case, sitemap) if not right]
    if memory_mb is not None and memory_mb > case["max_memory_mb"]:
        wrong.append(f"memory of {memory_mb:.0f} MB")
    if len(sitemap.entries) > 100:
        got["urls"] = [f"{len(sitemap.entries)} URLs"]
    return not wrong, expected, got | ({"wrong": wrong} if wrong else {})


def _questions(case: Case, sitemap: Sitemap) -> list[tuple[str, bool]]:
    """What a case asks, and whether the answer is right."""
    expected = case["expected"]
    also_urls = case.get("also_accepted_urls", [])
    locs = [entry.url for entry in sitemap.entries]
    first_choice = _urls_right(case, sitemap)
    # Another accepted list of URLs stands for another reading of the whole: its type and errors are not compared.
    other_choice = not first_choice and locs in also_urls
    rejected = {normalize(url) or url for url in case.get("rejected", [])}
    asked = [
        ("urls", first_choice or other_choice),
        ("rejected", rejected.isdisjoint(locs) and rejected.isdisjoint(entry.url for entry in sitemap.children)),
    ]
    if other_choice:
        return asked
    reported = set(sitemap.errors)
    errors = expected.get("errors", [])
    return [
        *asked,
        ("type", sitemap.type == expected["type"]),
        ("children", _entries_right(case, sitemap.children, expected.get("children", []))),
        ("errors", all(reported & SYNONYMS.get(code, {code}) for code in errors) and (bool(errors) or not reported)),
        ("extensions", "extensions" not in expected or _extensions(sitemap) == _instants(expected["extensions"])),
    ]


def _urls_right(case: Case, sitemap: Sitemap) -> bool:
    if "expected_count" in case.get("expected", {}) or "expected_count" in case:
        count = case.get("expected_count", case["expected"].get("expected_count"))
        also = case.get("also_accepted_count", [])
        also = also if isinstance(also, list) else [also]
        entries = sitemap.entries
        numbered = all(entry.url == f"http://www.example.com/u{n}" for n, entry in enumerate(entries))
        return numbered and len(entries) in (count, *also)
    return _entries_right(case, sitemap.entries, case["expected"].get("urls", []))


def _entries_right(case: Case, entries: tuple[SitemapEntry, ...], wanted: list[Case]) -> bool:
    """Same URLs in the same order (unless `compare` is set), each with its instant or one of the lenient ones."""
    got = [(entry.url, entry.lastmod_ms) for entry in entries]
    want = [(item["loc"], _ms(item.get("lastmod")), item) for item in wanted]
    if case.get("compare") == "set":
        got.sort(key=lambda pair: pair[0])
        want.sort(key=lambda triple: triple[0])
    if [pair[0] for pair in got] != [triple[0] for triple in want]:
        return False
    return all(
        pair[1] == triple[1] or _lenient(case, triple[2], pair[1]) for pair, triple in zip(got, want, strict=True)
    )


def _lenient(case: Case, item: Case, lastmod_ms: int | None) -> bool:
    lenient = item.get("lenient_lastmod", case.get("lenient_lastmod", case["expected"].get("lenient_lastmod")))
    if isinstance(lenient, dict):
        lenient = lenient.get(item["loc"])
    if lenient is None:
        return False
    return lastmod_ms in [_ms(value) for value in (lenient if isinstance(lenient, list) else [lenient])]


def _extensions(sitemap: Sitemap) -> Case:
    """All extensions of a sitemap, flat, as a case writes them."""
    found: Case = {"images": [], "videos": [], "alternates": {}, "news_date": None}
    for one in sitemap.extensions:
        found["images"] += one.images
        found["videos"] += one.videos
        found["alternates"].update(one.alternates)
        found["news_date"] = one.news_ms if one.news_ms is not None else found["news_date"]
    return found


def _instants(extensions: Case) -> Case:
    return {"images": [], "videos": [], "alternates": {}} | extensions | {"news_date": _ms(extensions.get("news_date"))}


def _ms(instant: str | None) -> int | None:
    if instant is None:
        return None
    when = datetime.fromisoformat(instant)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return round(when.timestamp() * 1000)


def _shown(entry: SitemapEntry) -> str | list[object]:
    return entry.url if entry.lastmod_ms is None else [entry.url, entry.lastmod_ms]


def _read(path: Path, url: str, content_type: str | None) -> Sitemap:
    return read(path.read_bytes(), url=url, content_type=content_type, limits=ParseLimits(), extensions=True)


def _read_apart(path: Path, url: str, content_type: str | None) -> tuple[Sitemap, float]:
    """Read in a fresh process; also its peak resident memory in MB (10**6 bytes)."""
    command = [sys.executable, "-m", "tests.conformance.run_sitemaps", str(path), url, content_type or ""]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    peak_kb, _, answer = done.stdout.partition(b" ")
    return msgspec.json.decode(answer, type=Sitemap), int(peak_kb) * 1024 / 1e6


if __name__ == "__main__":
    # ru_maxrss of a child begins with what its parent held when it forked; VmHWM is the new program's own.
    own = _read(Path(sys.argv[1]), sys.argv[2], sys.argv[3] or None)
    encoded = msgspec.json.encode(own)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path("/proc/self/status")
    if status.is_file():
        peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    sys.stdout.buffer.write(str(peak).encode() + b" " + encoded)
