"""Where a partition is at home, and with it each of its hosts: the one region whose owners may take it. It is data.

Theory of operation. A fleet of several regions has a group of owners in each, and every group has every partition
assigned. Which of them owns it is said by one record a partition, the same in all regions, and changed by
compare-and-set alone. Every change raises its epoch, so numbers of ownership rise over all regions, and none comes
twice:

| (epoch n, home R)              | becomes    | and                                                           |
|--------------------------------|------------|---------------------------------------------------------------|
| nothing yet, taken in R        | (1, R)     | it owns from epoch 1 on                                       |
| taken by a worker of R         | (n + 1, R) | it owns from epoch n + 1 on                                   |
| taken by one of another region | unchanged  | it stands by, and follows                                     |
| moved to S                     | (n + 1, S) | n + 1 is nobody's; the owner goes on until one of S fences it |

The move comes before the fence: between the two the old region's owner is the only one, as before, and what it commits
is what the new one adopts. Its delays, leases, robots rules and budgets come with the changelog, so a move is a
takeover like any other. Were the epoch taken without a look at the home in the same compare-and-set, a worker of the
old region that had looked before the move would take it back.
"""

from __future__ import annotations

from typing import NamedTuple


class Home(NamedTuple):
    """The record of one partition."""

    epoch: int  # the last one
    region: str  # of that epoch: there it is at home


def taken(home: Home | None, region: str) -> Home | None:
    """What the record becomes as a worker of `region` takes the partition; None: it is at home elsewhere."""
    if home is None:
        return Home(1, region)
    return Home(home.epoch + 1, region) if home.region == region else None


def overtaken(home: Home | None, region: str, epoch: int) -> bool:
    """Whether the owner of `region` that took this epoch should let go: a later number of its own region is there.

    Another took it, or the home went away and came back: then whoever took it meanwhile may be gone, and an owner that
    has nothing to commit would not learn that it was fenced. While the home is elsewhere it goes on, as said above.
    """
    return home is not None and home.region == region and home.epoch > epoch


def moved(home: Home | None, region: str) -> Home:
    """What the record becomes as an operator says where the home is from now on."""
    return Home(1 if home is None else home.epoch + 1, region)
