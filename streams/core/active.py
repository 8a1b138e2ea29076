"""The hosts that are in memory: loaded as they are needed, dropped when they rest and there are too many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from schemas.records import Kind
from streams.core import policy as bounds
from streams.core.hosts import HostState, allow_for_skew, decode_host
from streams.core.rules.urls import host_id
from streams.core.schedule import HANDICAP_MS_MAX
from streams.core.turn import Family, HostSlot, Reads

_IDS_MAX = 65_536


def turn_ms(state: HostState) -> int:
    """When its turn comes while there are more ready hosts than can be asked: a poor URL's comes late."""
    return state.ready_ms + state.rank * HANDICAP_MS_MAX // 0x10000


class Hosts:
    """By host_id. What is dropped is durable: it comes back as it was."""

    def __init__(
        self, reads: Reads, hosts_max: int = bounds.ACTIVE_HOSTS_MAX, *, epoch: int = 0, clock_skew_ms: int = 0
    ) -> None:
        self._reads = reads
        self._epoch, self._clock_skew_ms = epoch, clock_skew_ms
        self._hosts_max = hosts_max
        self._slots: dict[bytes, HostSlot] = {}
        self.loaded_to: Callable[[bytes], bytes | None] | None = None  # how much of it the owner's index has
        self.on_load: Callable[[bytes, HostState], None] | None = None  # what is derived is made anew
        self.on_drop: Callable[[bytes], None] = lambda host_id_: None
        self._unwritten: list[HostSlot] = []
        self._ids: dict[str, bytes] = {}  # host_key → host_id, of some hosts named lately

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, host_id_: bytes) -> bool:
        """Whether it is in memory."""
        return host_id_ in self._slots

    def slot(self, host_id_: bytes, host_key: str = "") -> HostSlot:
        """The host; a new one when it is not known and `host_key` says its name."""
        slot = self._slots.get(host_id_)
        if slot is None:
            slot = self._load(host_id_)
        if slot is None:
            assert host_key, host_id_.hex()
            slot = self._hold(HostSlot(host_id_, HostState(host_key=host_key), new=True))
        assert not host_key or slot.state.host_key == host_key, (host_key, slot.state.host_key)
        return slot

    def named(self, host_key: str) -> HostSlot:
        return self.slot(self.id_of(host_key), host_key)

    def id_of(self, host_key: str) -> bytes:
        """As `host_id`, remembered."""
        found = self._ids.get(host_key)
        if found is None:
            if len(self._ids) >= _IDS_MAX:
                self._ids.clear()
            found = self._ids[host_key] = host_id(host_key)
        return found

    def known(self, host_id_: bytes) -> HostSlot | None:
        """The host if it is in memory or durable; never a new one."""
        slot = self._slots.get(host_id_)
        return self._load(host_id_) if slot is None else slot

    def _load(self, host_id_: bytes) -> HostSlot | None:
        raw = self._reads.get(Family.HOST, host_id_)
        if raw is None:
            return None
        slot = HostSlot(host_id_, decode_host(raw), new=False)
        allow_for_skew(slot.state, self._epoch, self._clock_skew_ms)
        if self.loaded_to is not None:
            slot.loaded_to = self.loaded_to(host_id_)
        for lease in slot.state.in_flight.values():
            if lease.kind is not Kind.ROBOTS:
                slot.rows[lease.url_id] = None
        return self._hold(slot)

    def _hold(self, slot: HostSlot) -> HostSlot:
        self._slots[slot.host_id] = slot
        if self.on_load is not None:
            self.on_load(slot.host_id, slot.state)
        return slot

    def in_memory(self) -> Iterable[HostSlot]:
        return self._slots.values()

    def drop_resting(self) -> None:
        """Called between turns: forget hosts that have nothing in flight, down to the bound; last wanted, first gone.

        One whose counts of URL templates are not written yet stays until `unwritten_templates` was asked for them.
        """
        self._unwritten = []
        excess = len(self._slots) - self._hosts_max
        if excess <= 0:
            return
        # A tenth more than needed, so that the walk past hosts that must stay is not made after every turn.
        wanted = excess + self._hosts_max // 10
        resting: list[bytes] = []
        from_ms = self._wanted_latest_ms(wanted)
        for host_id_, slot in self._slots.items():
            if turn_ms(slot.state) < from_ms or slot.dirty or slot.state.in_flight:
                continue
            if slot.templates_unsaved:
                self._unwritten.append(slot)
            else:
                resting.append(host_id_)
            if len(resting) + len(self._unwritten) >= wanted:
                break
        for host_id_ in resting:
            del self._slots[host_id_]
            self.on_drop(host_id_)

    def _wanted_latest_ms(self, wanted: int) -> int:
        """An instant such that about so many hosts are looked at again only after it: they are the ones to forget."""
        instants = [turn_ms(slot.state) for slot in islice(self._slots.values(), 0, None, len(self._slots) // 512 + 1)]
        instants.sort()
        return instants[-1 - min(wanted * len(instants) // len(self._slots), len(instants) - 1)]

    def unwritten_templates(self) -> list[HostSlot]:
        """The hosts that could not be forgotten; each turn writes what holds them."""
        unwritten, self._unwritten = self._unwritten, []
        return unwritten

    def forget(self) -> None:
        """After a turn that was not committed: what is durable is the truth."""
        self._slots.clear()
        self._unwritten = []
