"""The only place that chooses adapters: a crawl's folder opened for writing (`open_engine`) or reading."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from connectors.control_folder import ControlFolder
from connectors.crawldb_rocksdb import CrawlDb
from connectors.files import Files, StoreFailed
from infra.at_rest import crawl_at_rest
from infra.control import change_host_policies
from infra.folder import DATABASE, PLACES, Folder, read_manifest
from infra.kept import keep, kept
from infra.reader import Reader
from infra.settings import Settings, build, product_token, user_agent_header
from schemas.records import DiscoveredUrl, FetchLogRow
from streams.core.clock import SteadyClock
from streams.core.failures import CrawlError
from streams.core.owner import Owner
from streams.core.policy import EXTRACTOR_VERSION, CrawlPolicy, ParseLimits
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.turn import Family

if TYPE_CHECKING:
    from connectors.parser_pool import ParserPool
    from streams.embedded import Engine

__all__ = ["change_host_policies", "open_engine", "open_reader", "policy_of", "requeue_dead_letters"]

_decode_words = msgspec.msgpack.Decoder(tuple[str, ...]).decode
_decode_position = msgspec.msgpack.Decoder(tuple[tuple[str, int], ...]).decode
_encode = msgspec.msgpack.Encoder().encode


def wall_clock_ms() -> int:
    """UTC since the epoch."""
    return time.time_ns() // 1_000_000


def steady_clock() -> Callable[[], int]:
    """UTC in ms as a crawl needs it: near the wall clock, but no step of that shortens or repeats a delay.

    CLOCK_BOOTTIME goes on while a machine sleeps, so a laptop that wakes up does not lag behind.
    """
    source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def passed_ms() -> int:
        return time.clock_gettime_ns(source) // 1_000_000

    clock = SteadyClock(wall_clock_ms(), passed_ms())
    return lambda: clock.read(wall_clock_ms(), passed_ms())


def open_engine(
    settings: Settings,
    seeds: Sequence[DiscoveredUrl],
    out: Path,
    *,
    refresh: bool = False,
    now: Callable[[], int] | None = None,
    files: Files | None = None,
    seed: int | None = None,
) -> Engine:
    """A crawl in the folder `out`, new or resumed. Raises CrawlError with a sentence for people.

    `seed`: of the jitter, for tests; else the system's randomness. `now`: the clock, for tests; else a steady one.
    """
    now = now or steady_clock()
    folder = Folder(out, now_ms=now())
    try:
        return _assemble(settings, seeds, folder, refresh=refresh, now=now, files=files, seed=seed)
    except StoreFailed as error:
        folder.close()
        raise CrawlError(str(error)) from error
    except BaseException:
        folder.close()
        raise


def _assemble(
    settings: Settings,
    seeds: Sequence[DiscoveredUrl],
    folder: Folder,
    *,
    refresh: bool,
    now: Callable[[], int],
    files: Files | None,
    seed: int | None,
) -> Engine:
    # What only a run needs is loaded by a run: `status` and `explain` start in half the time without web and processes.
    from connectors import fetchlog
    from connectors.segments_local import LocalSegments
    from infra.web import open_web, version
    from streams.embedded import Engine, Limits

    root, crawl = folder.root, settings.crawl
    keep(root, settings)
    db = CrawlDb(root / DATABASE)
    epoch = int.from_bytes(db.meta("epoch") or b"\0", "big") + 1
    kept = _decode_words(db.meta("seeds") or _encode(()))
    scope = scope_of(settings, (*kept, *(one.url for one in seeds)))
    networks = {"networks": _encode(crawl.allow_addresses)}
    grown = not set(crawl.allow_addresses) <= set(_decode_words(db.meta("networks") or _encode(())))
    meta = {"epoch": epoch.to_bytes(8, "big"), "seeds": _encode(scope.seeds)}
    db.commit(meta=meta if grown else meta | networks)
    policy = policy_of(settings)
    jitter = random.Random(seed).random if seed is not None else random.SystemRandom().random
    owner = Owner(db, policy, scope, epoch=epoch, jitter=jitter)
    segments = LocalSegments(
        root,
        crawl_id=folder.manifest.crawl_id,
        epoch=epoch,
        info=(("software", f"Headrace/{version()}"), ("http-header-user-agent", user_agent_header(crawl, version()))),
        segment_bytes_max=settings.store.segment_bytes_max,
        files=files,
    )
    segments.recover(_decode_position(db.meta("segments") or _encode(())))
    workers = crawl.workers or max(1, (os.cpu_count() or 1) - 1)

    def widen(urls: Sequence[str]) -> dict[str, bytes]:
        grown = owner.admission.scope.with_seeds(urls)
        owner.set_scope(grown)
        return {"seeds": _encode(grown.seeds)}

    def write_log(first: int, rows: Sequence[FetchLogRow]) -> None:
        fetchlog.write_segment(fetchlog.rows_path(root, first), rows, files)

    return Engine(
        owner=owner,
        db=db,
        make_web=lambda: open_web(settings, now),
        make_parser=lambda: _parser(settings, workers),
        segments=segments,
        write_log=write_log,
        limits=Limits(
            fetches_max=crawl.fetch_concurrency,
            parses_max=workers * 4,
            pages_max=crawl.pages_max,
            time_ms_max=None if crawl.time_max_s is None else crawl.time_max_s * 1_000,
            wait_ms_max=crawl.wait_max_s * 1_000,
        ),
        seeds=seeds,
        now=now,
        publish=folder.publish,
        on_new_seeds=widen,
        close=folder.close,
        control=ControlFolder(root, files),
        refresh=refresh,
        allowed_anew=networks if grown else None,
        out=str(root),
        places=PLACES,
    )


def _parser(settings: Settings, workers: int) -> ParserPool:
    from connectors.parser_pool import ParserPool

    return ParserPool(workers=workers, limits=parse_limits(settings), product_token=product_token(settings.crawl))


def parse_limits(settings: Settings) -> ParseLimits:
    return ParseLimits(**{name: getattr(settings.parse, name) for name in ParseLimits.__struct_fields__})


def scope_of(settings: Settings, seeds: Sequence[str]) -> Scope:
    crawl = settings.crawl
    return Scope(
        seeds=tuple(dict.fromkeys(seeds)),
        mode=ScopeMode(crawl.scope.value),
        depth_max=crawl.depth_max,
        include=crawl.include,
        exclude=crawl.exclude,
    )


def policy_of(settings: Settings) -> CrawlPolicy:
    """What the owner grants, admits and completes under."""
    return CrawlPolicy(
        politeness=settings.politeness,
        budget=settings.budget,
        duration_ms_max=settings.fetch.duration_ms_max,
        depth_max=settings.crawl.depth_max,
        extractor_version=EXTRACTOR_VERSION,
        traps=settings.traps,
    )


def open_reader(out: Path, settings: Settings | None = None) -> Reader:
    """The folder read only, also while a crawl runs in it. Raises CrawlError.

    `settings`: to judge by; else those that the crawl keeps.
    """
    if not out.is_dir() or read_manifest(out) is None:
        raise CrawlError(f"{out}: needed a crawl's folder, but there is no crawl in it; headrace crawl makes one")
    settings = settings or build(kept(out))
    try:
        return Reader(out, policy_of(settings), lambda seeds: scope_of(settings, seeds))
    except StoreFailed as error:
        raise CrawlError(str(error)) from error


def requeue_dead_letters(
    out: Path, keys: Sequence[str] | Literal["all"], *, now: Callable[[], int] = wall_clock_ms
) -> int:
    """Put URLs that were given up back among those to be fetched, and forget their letters. Returns how many."""
    if not out.is_dir() or read_manifest(out) is None:
        raise CrawlError(f"{out}: needed a crawl's folder, but there is no crawl in it")
    with crawl_at_rest(out, now_ms=now()) as db:
        owner = Owner(db, CrawlPolicy(), Scope(seeds=()), epoch=0, jitter=lambda: 0.0)
        chosen = _chosen_letters(db, keys, out)
        turn = owner.requeue_dead(chosen, now())
        db.commit(turn.writes)
        return len(chosen)


def _chosen_letters(db: CrawlDb, keys: Sequence[str] | Literal["all"], out: Path) -> list[bytes]:
    known = {key.hex() for key, _ in db.scan(Family.DEAD)}
    if keys == "all":
        return [bytes.fromhex(key) for key in sorted(known)]
    for key in keys:
        if key not in known:
            raise CrawlError(
                f"{out}: needed the key of a dead letter, got {key!r}; headrace dead-letters {out} list shows them", 2
            )
    return [bytes.fromhex(key) for key in dict.fromkeys(keys)]
