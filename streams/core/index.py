"""The owner's index: the seen family and the back queues. Both are derived from the URL rows.

Theory of operation. Whoever writes a row writes its entries in the same turn, whatever of the index there is. So an
entry that is there agrees with its row; only entries of rows that nobody has touched since may be missing. An index is
kept where it stands at the very position that the owner's states were recovered to: the shell sees to that, and clears
what stands elsewhere (`clear_index` of the store). One that is not there, or not whole, is loaded from the rows:

- host by host, some rows at a time: a host that comes up for a grant first, then those that links asked about, then all
  others in the order of their keys. A turn reads `INDEX_ROWS_PER_TURN_MAX` rows at most, however large a host is;
- a host is granted from what of it is loaded. It is looked at again and again until it is loaded whole, for a better
  entry may be among the rest; an entry that comes is put into the window exactly if it belongs there;
- for a host that is loaded whole present and absent are both exact. Of any other only present is, so admission reads
  the rows of what it does not find.

| record of Family.INDEX | what                                                                                      |
|------------------------|-------------------------------------------------------------------------------------------|
| `STATE_KEY`            | `IndexState`; not there: nothing is loaded                                                |
| host_id                | how far a host is loaded, ahead of the walk over all hosts: the last url_id, or `_WHOLE`  |

These lie in the commit of the entries that they speak of, so a crash in the midst of it all costs nothing.
"""

from __future__ import annotations

import msgspec

from streams.core import policy as bounds
from streams.core.active import Hosts
from streams.core.rows import HOST_ID_BYTES, URL_ID_BYTES, QueueClass, decode_row, due_ms_of
from streams.core.turn import Family, HostSlot, Reads, Turn

STATE_KEY = b"state"
_WHOLE = b"whole"
_LAST = b"\xff" * URL_ID_BYTES


class IndexState(msgspec.Struct, frozen=True, array_like=True):
    """How far the walk over all hosts is: the last key (host_id ‖ url_id) of those before which all is loaded."""

    whole: bool = False
    after: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(IndexState).decode


def whole_index(reads: Reads) -> bool:
    """Whether the index is known to be whole, as a reader sees it."""
    raw = reads.get(Family.INDEX, STATE_KEY)
    return raw is not None and _decode(raw).whole


class OwnerIndex:
    """Says how much of the index is there, and loads the rest."""

    def __init__(
        self, reads: Reads, hosts: Hosts, rows_max: int = bounds.INDEX_ROWS_PER_TURN_MAX, look_rows: int = 1
    ) -> None:
        """`rows_max`: read in one turn. `look_rows`: so many rows does it cost to ask for a host's at all."""
        self._rows_max, self._look_rows = rows_max, look_rows
        self._reads = reads
        self._hosts = hosts
        raw = reads.get(Family.INDEX, STATE_KEY)
        self._written = None if raw is None else _decode(raw)
        self._state = self._written or IndexState(whole=not reads.rows_after(b"", 1))
        self._wanted: dict[bytes, None] = {}  # hosts that links asked about, in that order
        self._rows_left = rows_max
        hosts.loaded_to = self._loaded_to

    @property
    def loading(self) -> bool:
        """Whether something of it is missing yet."""
        return not self._state.whole

    def partial(self, slot: HostSlot) -> bool:
        """Whether entries of the host may be missing."""
        return slot.loaded_to is not None and not self._passed(slot.host_id)

    def want(self, slot: HostSlot) -> None:
        """Links ask about a host that is loaded in part: it comes before others that nobody asks about."""
        if not self.partial(slot):
            slot.loaded_to = None
        elif len(self._wanted) < bounds.INDEX_WANTED_MAX:
            self._wanted[slot.host_id] = None

    def begin_turn(self) -> None:
        self._rows_left = self._rows_max

    def load(self, turn: Turn, slot: HostSlot) -> None:
        """Load some more of a host that comes up for a grant, as far as the turn has room for."""
        self._load(turn, slot, -(-self._rows_max // bounds.INDEX_HOST_SHARE))

    def step(self, turn: Turn) -> None:
        """What of the turn's room is left goes to hosts that are wanted, then to the walk over all hosts."""
        while self.loading and self._rows_left > 0:
            if self._wanted:
                slot = self._hosts.slot(next(iter(self._wanted)))
                self._load(turn, slot, self._rows_left)
                if not self.partial(slot):
                    self._wanted.pop(slot.host_id, None)
            else:
                self._walk(turn)

    def record(self, turn: Turn) -> None:
        """What changed becomes durable with the entries that were loaded."""
        if self._state != self._written:
            turn.writes.append((Family.INDEX, STATE_KEY, _encode(self._state)))
            self._written = self._state

    def _load(self, turn: Turn, slot: HostSlot, rows_max: int) -> None:
        if not self.partial(slot):
            slot.loaded_to = None
            return
        room = min(rows_max, self._rows_left)
        if room <= 0:
            return
        assert slot.loaded_to is not None
        found = self._reads.rows_after(slot.host_id + slot.loaded_to, room, slot.host_id)
        self._rows_left -= len(found) + self._look_rows
        for key, raw in found:
            self._restore(turn, slot, key, raw)
        if len(found) < room:
            slot.loaded_to = None
            self._wanted.pop(slot.host_id, None)
        else:
            slot.loaded_to = found[-1][0][HOST_ID_BYTES:]
        turn.writes.append((Family.INDEX, slot.host_id, _WHOLE if slot.loaded_to is None else slot.loaded_to))
        turn.touch(slot)

    def _walk(self, turn: Turn) -> None:
        """Go on to the next host, or load more of it."""
        following = self._reads.rows_after(self._state.after, 1)
        if not following:
            self._state = IndexState(whole=True)
            return
        host_id = following[0][0][:HOST_ID_BYTES]
        slot = self._hosts.slot(host_id)
        if self.partial(slot):
            self._load(turn, slot, self._rows_left)
        if not self.partial(slot):
            self._rows_left -= 1
            self._state = IndexState(after=host_id + _LAST)
            turn.writes.append((Family.INDEX, host_id, None))  # the walk's place says it from now on

    def _loaded_to(self, host_id: bytes) -> bytes | None:
        """Of a host that comes into memory: None when it is loaded whole, else the last url_id that is."""
        if self._passed(host_id):
            return None
        mark = self._reads.get(Family.INDEX, host_id)
        return None if mark == _WHOLE else mark or b""

    def _passed(self, host_id: bytes) -> bool:
        """Whether the walk over all hosts is behind it."""
        return self._state.whole or host_id <= self._state.after[:HOST_ID_BYTES]

    def _restore(self, turn: Turn, slot: HostSlot, key: bytes, raw: bytes) -> None:
        """The entries of one row, as this turn sees it."""
        row = turn.rows[key] if key in turn.rows else decode_row(raw)
        if row is None:
            return  # deleted in this turn
        turn.put_seen(key, row)
        if row.place:
            tail = row.place + key[HOST_ID_BYTES:]
            turn.writes.append((Family.QUEUE, slot.host_id + tail, b""))
            if tail[0] == QueueClass.REVISIT:
                slot.state.revisit_ms = min(slot.state.revisit_ms, due_ms_of(tail))
            if key[HOST_ID_BYTES:] not in slot.rows:
                slot.queue.load(tail)
