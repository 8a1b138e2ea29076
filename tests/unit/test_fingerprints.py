"""The fingerprint: what it must tell apart, and that it never changes."""

from __future__ import annotations

import random

import numpy as np
from simhash import Simhash

from streams.core.rules.fingerprints import _bit_counts, _shingles, distance, near, simhash

VOCABULARY = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "l", "m", "nd")]


def page(seed: int, words: int) -> list[str]:
    """Words of a made-up page, often ones more often, as in a language."""
    chance = random.Random(seed)
    return [VOCABULARY[int(len(VOCABULARY) * chance.random() ** 2)] for _ in range(words)]


def edited(words: list[str], seed: int, edits: int) -> list[str]:
    """The page with some words replaced: a date, a counter, a name."""
    chance = random.Random(seed)
    words = list(words)
    for _ in range(edits):
        words[chance.randrange(len(words))] = f"edit{chance.randrange(1000)}"
    return words


def reference(words: list[str]) -> int:
    """The simhash package's value with its own MD5 features, for the same shingles of four words."""
    return int(Simhash([" ".join(words[i : i + 4]) for i in range(len(words) - 3)]).value)


def test_the_value_is_a_format() -> None:
    """Stored fingerprints are compared with new ones for years: the function may not drift."""
    assert simhash("") == 0
    assert simhash(" \n ") == 0
    assert simhash("one") == 0x38B56E62B6BACA1C
    assert simhash("The quick brown fox jumps over the lazy dog") == 0x1C400006483B6823
    assert simhash("the  QUICK brown\nfox jumps over the lazy dog") == 0x1C400006483B6823
    assert simhash(" ".join(page(1, 5000))) == 0x4D013893D34ED44A


def test_bits_are_counted_exactly() -> None:
    """The counts by lanes of bytes equal those of a plain loop, also beyond 255 and 510 hashes."""
    for length in (1, 3, 254, 255, 256, 1000):
        hashes = _shingles(np.arange(length + 3, dtype=np.uint64))
        plain = [sum(int(value) >> bit & 1 for value in hashes) for bit in range(64)]
        assert _bit_counts(hashes).tolist() == plain
    assert _bit_counts(np.full(1000, 2**64 - 1, dtype=np.uint64)).tolist() == [1000] * 64


def test_near_pages_are_near_and_others_far_as_with_the_reference() -> None:
    """Edited and foreign pages separate at least as well as with the simhash package on the same shingles."""
    near_ours, far_ours, near_reference, far_reference = [], [], [], []
    pages = [page(seed, 1500) for seed in range(30)]
    for seed, words in enumerate(pages):
        other, changed = pages[(seed + 1) % len(pages)], edited(words, seed, 3)
        near_ours.append(distance(simhash(" ".join(words)), simhash(" ".join(changed))))
        far_ours.append(distance(simhash(" ".join(words)), simhash(" ".join(other))))
        near_reference.append(distance(reference(words), reference(changed)))
        far_reference.append(distance(reference(words), reference(other)))
    assert sum(near_ours) <= sum(near_reference) + 15  # half a bit a page: chance
    assert sum(far_ours) >= sum(far_reference) - 60
    assert max(near_ours) < min(far_ours)


def test_distance_counts_bits() -> None:
    """Nearness is three bits of 64 by default, inclusive."""
    assert distance(0b1011, 0b0001) == 2
    assert near(0, 0b111)
    assert not near(0, 0b1111)
    assert near(0, 2**64 - 1, bits_max=64)
