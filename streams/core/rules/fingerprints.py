"""A 64-bit simhash of a page's words (Charikar 2002; Manku, Jain, Das Sarma 2007): near pages differ in few bits.

The features are shingles of four words, each hashed by xxh3_64 and rolled into one another, weighted by how often they
occur. The value depends on nothing but the text: not on the machine, the process or a library's version. It is a
format: a change of any constant here is a new extractor version.
"""

from __future__ import annotations

import numpy as np
import xxhash

SHINGLE_WORDS = 4
WORDS_MAX = 200_000  # of longer texts the rest does not count
REMEMBERED_WORDS_MAX = 50_000  # some 8 MB
REMEMBERED_CHARS_MAX = 32

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd: a multiplication permutes 64 bits
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)  # the finalizer of SplitMix64 (Steele, Lea, Flood 2014)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LANES = np.uint64(0x0101010101010101)  # the lowest bit of each byte
_BITS_OF_BYTE = np.arange(8, dtype=np.uint64)[:, None]
_LANE_SUM_MAX = 255  # a byte holds no larger count


def simhash(text: str) -> int:
    """The fingerprint of a text, unsigned 64 bits; 0 for a text without words. Case does not count."""
    words = text.lower().split()[:WORDS_MAX]
    if not words:
        return 0
    hashes = np.frombuffer(b"".join(map(_digests.__getitem__, words)), dtype=">u8").astype(np.uint64)
    shingles = _shingles(hashes)
    bits = _bit_counts(shingles) * 2 > len(shingles)
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def distance(a: int, b: int) -> int:
    """Bits in which two fingerprints differ, 0 to 64."""
    return (a ^ b).bit_count()


def near(a: int, b: int, bits_max: int = 3) -> bool:
    """Whether two fingerprints are those of near duplicates (3 of 64 bits: Manku et al., section 2.2)."""
    return distance(a, b) <= bits_max


class _Digests(dict[str, bytes]):
    """xxh3_64 of words, big-endian. The words of one page are mostly those of the pages before it."""

    def __missing__(self, word: str) -> bytes:
        digest = xxhash.xxh3_64_digest(word.encode("utf-8", "surrogatepass"))
        if len(word) <= REMEMBERED_CHARS_MAX:
            if len(self) >= REMEMBERED_WORDS_MAX:
                self.clear()
            self[word] = digest
        return digest


_digests = _Digests()


def _shingles(hashes: np.ndarray) -> np.ndarray:
    """One well mixed hash for each run of SHINGLE_WORDS words, or one for all when there are fewer."""
    size = min(SHINGLE_WORDS, len(hashes))
    rolled = np.zeros(len(hashes) - size + 1, dtype=np.uint64)
    for offset in range(size):
        rolled = rolled * _MULTIPLIER + hashes[offset : offset + len(rolled)]
    rolled ^= rolled >> np.uint64(30)
    rolled *= _MIX_1
    rolled ^= rolled >> np.uint64(27)
    rolled *= _MIX_2
    return rolled ^ (rolled >> np.uint64(31))


def _bit_counts(hashes: np.ndarray) -> np.ndarray:
    """How many hashes have each bit set, least bit first. Eight counts are kept in the bytes of one word."""
    padded = np.zeros(-(-len(hashes) // _LANE_SUM_MAX) * _LANE_SUM_MAX, dtype="<u8")
    padded[: len(hashes)] = hashes
    sums = ((padded >> _BITS_OF_BYTE) & _LANES).reshape(8, -1, _LANE_SUM_MAX).sum(axis=2, dtype=np.uint64)
    counts: np.ndarray = (
        sums.astype("<u8").view(np.uint8).reshape(8, -1, 8).sum(axis=1, dtype=np.int64)
    )  # bit of a byte, byte
    return np.ravel(counts.T)
