"""A made web of any size that is never held: host `i` and its URL `n` are computed, the same for the same seed.

URLs have the lengths and the words of real ones (80 bytes in the mean) and differ as real ones do, so that a store can
compress them no better. The number of a URL is spread over its words by a bijection: no two URLs of a host are equal.
Hosts differ in size: half of them have one share of URLs, a quarter two, an eighth three, and so on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from schemas.records import DiscoveredUrl, Source
from streams.core.rules.urls import url_id

PRIORITIES = (200, 128, 40)  # hints; which one a URL has can be read off its last character
PRIORITY_NAMES = ("high", "middle", "low")
HOT_BATCH_URLS = 50
_WORDS = 1 << 13
_MASK = (1 << 64) - 1
_ROUNDS_MAX = 16
_ENDINGS = ("com", "org", "net", "de", "io", "co.uk", "edu", "fr")
_ONSETS = (
    *"bcdfghjklmnprstvwz",
    "br",
    "ch",
    "cl",
    "cr",
    "dr",
    "fl",
    "gr",
    "pl",
    "pr",
    "sh",
    "sl",
    "st",
    "str",
    "th",
    "tr",
)
_VOWELS = (*"aeiouaeio", "ai", "ea", "ou", "io")
_CODAS = ("", "", *"nrstlm", "nd", "ck", "st")


class Population:
    """Hosts `first` to `first + hosts - 1`; the very first one of them is hot if `hot_urls` is not 0."""

    def __init__(self, hosts: int, urls: int, hot_urls: int = 0, *, seed: int = 1, first: int = 0) -> None:
        """`urls`: in all, the hot host's among them."""
        assert hosts > (1 if hot_urls else 0), hosts
        assert urls - hot_urls >= hosts, (urls, hot_urls, hosts)
        self.hosts, self.urls, self.hot_urls, self.first = hosts, urls, hot_urls, first
        self._salt = random.Random(seed).getrandbits(64)
        self._words = _words(random.Random(seed ^ 0x5EED))
        self._share = max(1, (urls - hot_urls) // hosts // 2)  # URLs of a host that come together

    def host_key(self, host: int) -> str:
        mixed = _mixed(self._salt ^ host << 32 ^ 0xFFFF_FFFF)
        words = self._words
        name = words[mixed & 0x1FFF] + words[mixed >> 13 & 0x1FFF]
        return f"https://{'www.' if mixed >> 40 & 1 else ''}{name}-{host}.{_ENDINGS[mixed >> 41 & 7]}"

    def host_of(self, host_key: str) -> int:
        """The host's number less `first`: its place in an array of all hosts."""
        at = host_key.rindex("-") + 1
        return int(host_key[at : host_key.index(".", at)]) - self.first

    def url(self, host: int, host_key: str, number: int) -> str:
        mixed = _mixed(self._salt ^ host << 32 ^ number)
        words = self._words
        return (
            f"{host_key}/{words[mixed & 15]}/{words[mixed >> 4 & 0x1FFF]}-{words[mixed >> 17 & 0x1FFF]}"
            f"-{words[mixed >> 30 & 0x1FFF]}-{words[mixed >> 43 & 0x1FFF]}/{mixed >> 56}"
        )

    def batch(self, host: int, start: int, count: int, now_ms: int) -> list[DiscoveredUrl]:
        """URLs `start` to `start + count - 1` of a host, as links of one page."""
        key = self.host_key(host)
        urls = [self.url(host, key, number) for number in range(start, start + count)]
        parent = url_id(f"{key}/{start}")
        depth = 1 + start % 5
        return [
            DiscoveredUrl(url, key, Source.LINK, now_ms, parent, depth, 0, PRIORITIES[priority_class(url)])
            for url in urls
        ]

    def plan(self) -> Iterator[tuple[int, int, int]]:
        """(host, number of its first URL, URLs) of all batches, hosts in a scattered order, the hot host all along."""
        cold = self.urls - self.hot_urls
        hot_left, cold_left, hot_at = self.hot_urls, cold, 0
        for host, start, count in self._cold_plan(cold):
            cold_left -= count
            while hot_left and hot_left * cold > self.hot_urls * cold_left:
                batch = min(HOT_BATCH_URLS, hot_left)
                yield self.first, hot_at, batch
                hot_at, hot_left = hot_at + batch, hot_left - batch
            yield host, start, count

    def _cold_plan(self, left: int) -> Iterator[tuple[int, int, int]]:
        skip = 1 if self.hot_urls else 0
        hosts = self.hosts - skip
        stride = _stride(hosts)
        number = 0
        for turn in range(1 << 30):
            for step in range(hosts):
                place = (step * stride + turn * 7_919) % hosts
                host = self.first + skip + place
                if 0 < turn < _ROUNDS_MAX and _mixed(self._salt + place) & ((1 << turn) - 1):
                    continue
                count = min(self._share, left)
                yield host, number, count
                left -= count
                if not left:
                    return
            number += self._share


def priority_class(url: str) -> int:
    """Index into PRIORITIES: of ten URLs two are high, three middle, five low."""
    return (0, 0, 1, 1, 1, 2, 2, 2, 2, 2)[ord(url[-1]) - 48]


def _mixed(key: int) -> int:
    """A bijection of 64 bits that spreads neighbours (the finish of splitmix64)."""
    key &= _MASK
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    key = (key ^ key >> 27) * 0x94D049BB133111EB & _MASK
    return key ^ key >> 31


def _stride(count: int) -> int:
    """A step that visits all of `count` places before it comes back, in a scattered order."""
    stride = max(1, int(count * 0.618_033_988_75))
    while math.gcd(stride, count) != 1:
        stride += 1
    return stride


def _words(dice: random.Random) -> tuple[str, ...]:
    """Words that can be said, all different, 4 to 12 letters."""
    found: dict[str, None] = {}
    while len(found) < _WORDS:
        syllables = dice.choice((2, 2, 2, 3, 3))
        word = "".join(dice.choice(_ONSETS) + dice.choice(_VOWELS) for _ in range(syllables)) + dice.choice(_CODAS)
        found[word[:12]] = None
    return tuple(found)
