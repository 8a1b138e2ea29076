"""Which URLs belong to a crawl: drawn from its seeds, its depth and the operator's patterns.

A `Scope` is plain data, so that a crawl's folder keeps it and a resumed crawl has the same one. It is checked when it
is made or decoded. Looking up costs the same for ten thousand seeds as for one.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property

import msgspec

from streams.core.policy import URL_BYTES_MAX
from streams.core.rules import urls
from streams.core.rules.patterns import compile_patterns


class ScopeMode(enum.Enum):
    """How far from its seeds a crawl goes."""

    HOST = "host"  # the seeds' hosts and ports, by http and https alike: a site's move to https does not end its crawl
    DOMAIN = "domain"  # the seeds' registrable domains, with every host below them, at any port
    PREFIX = "prefix"  # the seeds' directories, by http and https alike
    ANY = "any"


_WIDTH = {ScopeMode.PREFIX: 0, ScopeMode.HOST: 1, ScopeMode.DOMAIN: 2, ScopeMode.ANY: 3}
"""Of the same seeds, each admits what those before it admit."""


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What may be admitted. `seeds` are normal forms and always in scope themselves.

    Patterns are Python regular expressions, searched anywhere in the whole URL. An exclusion beats an inclusion; with
    `include` empty all is included. Raises ValueError (`PatternError` for a pattern) when made with what cannot be.
    """

    seeds: tuple[str, ...]
    mode: ScopeMode = ScopeMode.HOST
    depth_max: int | None = None  # links from a seed; None: no limit
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.depth_max is not None and self.depth_max < 0:
            raise ValueError(f"depth_max: a number of links from a seed, 0 or more, got {self.depth_max}")
        for seed in self.seeds:
            if not seed.startswith(("http://", "https://")) or seed.find("/", 8) < 0:
                raise ValueError(f"seeds: a seed must be a normalized http or https URL, got {seed!r}")
        _ = self._index  # compiles the patterns: a wrong one fails here, not at the first link

    def admits(self, url: str, host_key: str, depth: int) -> str | None:
        """None when `url` (a normal form, with its host_key) belongs to the crawl, or the reason why not.

        Reasons: out_of_scope, too_deep, excluded, not_included.
        """
        index = self._index
        if url in index.seeds:
            return None
        if not index.within(url, host_key):
            return "out_of_scope"
        if self.depth_max is not None and depth > self.depth_max:
            return "too_deep"
        if not index.include and not index.exclude:
            return None
        assert len(url) <= URL_BYTES_MAX, f"a normal form has at most {URL_BYTES_MAX} bytes, got {len(url)}"
        if any(pattern.search(url) for pattern in index.exclude):
            return "excluded"
        if index.include and not any(pattern.search(url) for pattern in index.include):
            return "not_included"
        return None

    def may_admit_more_than(self, other: Scope) -> bool:
        """False only when `other` surely admits all that this scope admits, but for seeds themselves."""
        if _WIDTH[self.mode] > _WIDTH[other.mode]:
            return True
        # In a scope of the same mode or a wider one, what a seed brings in is in if the seed is.
        for seed in self._index.seeds - other._index.seeds:
            if not other._index.within(seed, urls.host_key(seed)):
                return True
        if other.depth_max is not None and (self.depth_max is None or self.depth_max > other.depth_max):
            return True
        if other.include and (not self.include or not set(self.include) <= set(other.include)):
            return True
        return not set(other.exclude) <= set(self.exclude)

    def covers_host(self, host_key: str) -> bool:
        """Whether any URL of the host may belong to the crawl, by the mode alone."""
        return self._index.covers_host(host_key)

    def with_seeds(self, seeds: Iterable[str]) -> Scope:
        """The scope that these seeds (normal forms) belong to as well."""
        return msgspec.structs.replace(self, seeds=tuple(dict.fromkeys((*self.seeds, *seeds))))

    @cached_property
    def _index(self) -> _Index:
        return _Index(self)


class _Index:
    """The look-up form of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.seeds = frozenset(scope.seeds)
        self.include: tuple[re.Pattern[str], ...] = compile_patterns(scope.include, name="include")
        self.exclude: tuple[re.Pattern[str], ...] = compile_patterns(scope.exclude, name="exclude")
        self._mode = scope.mode
        self._authorities: frozenset[str] = frozenset()
        self._domains: frozenset[str] = frozenset()
        self._directories: dict[str, list[str]] = {}
        match scope.mode:
            case ScopeMode.HOST:
                self._authorities = frozenset(_authority(urls.host_key(seed)) for seed in scope.seeds)
            case ScopeMode.DOMAIN:
                self._domains = frozenset(_domain(urls.host_key(seed)) for seed in scope.seeds)
            case ScopeMode.PREFIX:
                self._directories = _directories(scope.seeds)
            case ScopeMode.ANY:
                pass

    def covers_host(self, host_key: str) -> bool:
        if self._mode is ScopeMode.PREFIX:
            return _authority(host_key) in self._directories
        return self.within(host_key + "/", host_key)

    def within(self, url: str, host_key: str) -> bool:
        """Whether the mode lets `url` in."""
        match self._mode:
            case ScopeMode.HOST:
                return _authority(host_key) in self._authorities
            case ScopeMode.DOMAIN:
                return _domain(host_key) in self._domains
            case ScopeMode.PREFIX:
                return self._below_a_seed(url, host_key)
            case ScopeMode.ANY:
                return True

    def _below_a_seed(self, url: str, host_key: str) -> bool:
        directories = self._directories.get(_authority(host_key))
        if directories is None:
            return False
        path = url[len(host_key) :]
        # None of the directories begins with another, so only the last one that sorts before `path` can begin it.
        place = bisect_right(directories, path)
        return place > 0 and path.startswith(directories[place - 1])


def _authority(host_key: str) -> str:
    return host_key.partition("://")[2]


def _domain(host_key: str) -> str:
    return urls.registrable_domain(urls.host_name(host_key))


def _directories(seeds: Iterable[str]) -> dict[str, list[str]]:
    """By authority the seeds' directories, `/` at both ends, sorted, none of them below another."""
    found: dict[str, set[str]] = {}
    for seed in seeds:
        path = urls.path_and_query(seed).partition("?")[0]
        found.setdefault(_authority(urls.host_key(seed)), set()).add(path[: path.rindex("/") + 1])
    outermost: dict[str, list[str]] = {}
    for authority, directories in found.items():
        kept = outermost[authority] = []
        for directory in sorted(directories):
            if not kept or not directory.startswith(kept[-1]):
                kept.append(directory)
    return outermost
