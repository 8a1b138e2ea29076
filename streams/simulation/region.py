"""A region of the fleet: its group of owners, its workers' disks and its fetchers.

Each region's group has the partition assigned, to one of its workers at a time, and takes it over only where it is at
home (`streams.core.homes`). A takeover goes in the order of `streams.fleet.owner`, and may end, or stand still while
another begins, between any two of its steps: the fence; the changelog to its end; the epoch; the redo of the last
transaction's rows, with the stamp that they had; then the owner's first transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streams.core import homes
from streams.core import policy as bounds
from streams.simulation.disk import Disk
from streams.simulation.fetch_group import FetchGroup
from streams.simulation.fetchers import SESSION_MS
from streams.simulation.owner_process import Setting

if TYPE_CHECKING:
    from streams.simulation.fleet_owner import Fleet, FleetProcess

REGIONS = ("north", "south")
LOOK_MS = 10 * bounds.SECOND_MS  # a group that does not own the partition looks at its home this often
_WORKERS = 3


class Region:
    """One of them."""

    def __init__(self, name: str, fleet: Fleet, setting: Setting) -> None:
        self.name = name
        self._fleet, self._setting = fleet, setting
        self._loop, self._faults = setting.loop, setting.faults
        self._random = setting.loop.random(f"region {name}")
        self.fetchers = FetchGroup(setting, name, fleet.partition.leases[name], fleet.finished)
        self._disks = [Disk() for _ in range(_WORKERS)]
        self._disk = self._disks[0]
        self._assigned: Takeover | FleetProcess | None = None  # who has the partition of this group

    def start(self) -> None:
        self._look()

    def _look(self) -> None:
        """Take the partition over if it is at home here and nobody here has it, or who has it was overtaken."""
        one = self._assigned
        if one is not None and not isinstance(one, Takeover) and one.overtaken():
            self._loop.note("", f"{self.name}: lets go of what was moved and moved back")
            one.let_go()
            self._assigned = None
        if self._assigned is None and homes.taken(self._fleet.partition.home, self.name) is not None:
            self._disk = disk = self._next_disk()
            self._assigned = disk.process = takeover = Takeover(self, self._fleet, self._setting, disk)
            takeover.begin()
        self._loop.after(LOOK_MS, self._look)

    def _next_disk(self) -> Disk:
        """Of the worker on which the next owner runs: the last one again if that is gone, or another."""
        free = [disk for disk in self._disks if disk.free()]
        if not free:  # all stand still: one more joins
            self._disks.append(Disk())
            return self._disks[-1]
        if self._disk in free and not self._faults.hit("index_elsewhere"):
            return self._disk
        return self._random.choice([disk for disk in free if disk is not self._disk] or free)

    def owns(self, process: FleetProcess, takeover: Takeover) -> None:
        """The takeover came to its end. One that stood still for long has lost its assignment already."""
        if self._assigned is takeover:
            self._assigned = process

    def lost(self, one: Takeover | FleetProcess, why: str) -> None:
        """It is gone, or taken for gone: after a session the group gives the partition to another."""
        self._loop.note("", f"{self.name}: {why}")
        if self._assigned is one:
            self._loop.after(SESSION_MS + self._random.randrange(3_000), self._forget, one)

    def _forget(self, one: Takeover | FleetProcess) -> None:
        if self._assigned is one:
            self._assigned = None


class Takeover:
    """One try of one worker."""

    def __init__(self, region: Region, fleet: Fleet, setting: Setting, disk: Disk) -> None:
        self.alive = True
        self._region, self._fleet, self._setting, self._disk = region, fleet, setting, disk
        self._loop, self._faults = setting.loop, setting.faults
        self._random = setting.loop.random(f"takeover {fleet.partition.producer} {region.name}")
        self._producer = self._epoch = 0

    def begin(self) -> None:
        self._producer = self._fleet.fence(self._region.name)
        self._then(self._catch_up)

    def _catch_up(self) -> None:
        self._disk.follow(self._fleet.partition.log)
        self._then(self._take_epoch)

    def _take_epoch(self) -> None:
        partition = self._fleet.partition
        home = homes.taken(partition.home, self._region.name)
        if home is None:
            self._end("is not at home any more")
            return
        partition.home = home
        self._epoch = home.epoch
        self._then(self._redo)

    def _redo(self) -> None:
        partition, disk = self._fleet.partition, self._disk
        redo = disk.redo()
        partition.write_rows(redo, disk.stamp)
        if self._faults.hit("row_write_repeated"):
            partition.write_rows(redo, disk.stamp)
        self._then(self._own)

    def _own(self) -> None:
        disk = self._disk
        index = disk.settle_index(disk.redo())
        if index != "new":
            self._faults.count("index_behind" if index == "cleared" else f"index_{index}")
        process = self._fleet.process(self._region, disk, self._epoch, self._producer)
        disk.process = process
        self.alive = False
        self._region.owns(process, self)
        process.start()

    def _then(self, step: Callable[[], None]) -> None:
        if self._faults.hit("fleet_crash_in_takeover"):
            self._end("crash in a takeover")
            return
        wait_ms = self._random.randrange(1, 50)
        if self._faults.hit("takeover_slow"):
            self._region.lost(self, "a takeover stands still")
            wait_ms = SESSION_MS + self._random.randrange(4_000, 40_000)
        self._loop.after(wait_ms, step)

    def _end(self, why: str) -> None:
        self.alive = False
        self._region.lost(self, why)


def other(name: str) -> str:
    """The region to move to."""
    return REGIONS[1 - REGIONS.index(name)]
