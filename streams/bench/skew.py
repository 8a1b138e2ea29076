"""How evenly a key space falls on the partitions, found by sampling: nobody can make ten billion keys.

Hosts are drawn from a Zipf law of sizes with a cap. The large ones, which make the skew, are placed one by one by
`partition_for`; of the small ones a sample is placed, which says how even the hash is (`chi2_per_df` near 1), and the
mass of all of them is spread with the noise of as many hosts.
"""

from __future__ import annotations

import msgspec
import numpy as np

from schemas.topics import PARTITIONS, partition_for
from streams.bench.population import Population

KEYS = 10_000_000_000
_LARGE = 20_000
_SAMPLED = 200_000
SIZES_MAX = (1_000_000, 10_000_000)


class Skew(msgspec.Struct, frozen=True):
    """Loads are against the mean of all partitions."""

    keys: int
    hosts: int
    host_urls_max: int
    partitions: int
    hosts_sampled: int
    chi2_per_df: float  # of the sampled hosts' counts by partition
    largest_host_share_of_mean: float
    load_max: float
    load_p99: float
    load_min: float


def measure_skew(
    host_urls_max: int, *, keys: int = KEYS, partitions: int = PARTITIONS, hosts: int = 100_000_000, seed: int = 1
) -> Skew:
    """Sizes go with 1/rank up to the cap, scaled so that all hosts together have `keys` URLs."""
    names = Population(_LARGE + _SAMPLED, 2 * (_LARGE + _SAMPLED), seed=seed)
    ranks = np.arange(1, _LARGE + 1)
    scale = _scale(keys, hosts, host_urls_max)
    large = np.minimum(scale / ranks, host_urls_max)
    places = np.fromiter((partition_for(names.host_key(host), partitions) for host in range(_LARGE)), np.int64)
    placed = np.bincount(places, weights=large, minlength=partitions)
    sampled = np.bincount(
        np.fromiter((partition_for(names.host_key(_LARGE + host), partitions) for host in range(_SAMPLED)), np.int64),
        minlength=partitions,
    )
    mean = _SAMPLED / partitions
    chi2 = float(((sampled - mean) ** 2 / mean).sum() / (partitions - 1))
    rest = keys - float(large.sum())
    squares = float(scale**2 * (1 / _LARGE - 1 / hosts))  # the integral of the squared sizes of all small hosts
    noise = np.random.default_rng(seed).normal(0, np.sqrt(squares / partitions), partitions)
    load = (placed + rest / partitions + noise) * partitions / keys
    return Skew(
        keys=keys,
        hosts=hosts,
        host_urls_max=host_urls_max,
        partitions=partitions,
        hosts_sampled=_SAMPLED,
        chi2_per_df=chi2,
        largest_host_share_of_mean=float(large[0] * partitions / keys),
        load_max=float(load.max()),
        load_p99=float(np.quantile(load, 0.99)),
        load_min=float(load.min()),
    )


def _scale(keys: int, hosts: int, cap: int) -> float:
    """c of min(c / rank, cap), by bisection on the sum: c * (ln hosts - ln of the capped ones) + these at the cap."""
    low, high = 1.0, float(keys)
    for _ in range(200):
        middle = (low + high) / 2
        capped = max(1.0, middle / cap)
        total = middle * (np.log(hosts) - np.log(capped)) + capped * cap
        low, high = (middle, high) if total < keys else (low, middle)
    return low
