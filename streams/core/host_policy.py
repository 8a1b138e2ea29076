"""An operator's words on hosts: versioned, kept for ever, and what follows from them for one host.

Theory of operation. A word is about a key: a host (`https://example.org`), a name (`example.org`: by http and https at
any port, or with a port at that one), a name with all below it (`*.example.org`), or all (`*`). For each key there is
what lasts and, over it, at most one exception with a date. For a host the words of all keys that match it are laid over
one another, the nearest on top, value by value; blocked patterns add up. What comes of it is the host's `Override`,
which is all that the frontier looks at.

| a change                 | what lasts               | the exception                                             |
|--------------------------|--------------------------|-----------------------------------------------------------|
| values                   | takes them               | loses those values: the newest word on a value counts     |
| values, until a date     | unchanged                | takes them, ends at that date                             |
| until a date that passed | unchanged                | ends                                                      |
| the date passes          | unchanged                | ends                                                      |
| reset                    | forgotten, then as above | forgotten, then as above                                  |

Every change has a number (`policy_version`) that rises over the whole crawl, an exception's end and another
configuration of the crawl as well; a lease carries the highest number of the words on its host. All changes are kept:
who was fetched under which number says what held.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from schemas.records import HostPolicy
from streams.core.hosts import NEVER_MS, HostState, Override
from streams.core.policy import POLICIES_MAX, SCOPE_PATTERNS_MAX, Politeness
from streams.core.rules.patterns import PatternError, compile_patterns
from streams.core.rules.urls import host_key, host_name, normalize

ALL = "*"
_CHANGE_KEY, _STANDING_KEY = b"c", b"s"  # of Family.POLICY: version → Change, key → Standing
_COMPILED_MAX = 10_000


class Word(msgspec.Struct, frozen=True, array_like=True):
    """Values for a host; None where nothing is said."""

    delay_ms: int | None = None
    concurrency: int | None = None
    budget_per_day: int | None = None
    blocked_patterns: tuple[str, ...] | None = None
    paused: bool | None = None
    deleted: bool | None = None


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """What is said of one key now."""

    key: str
    version: int = 0
    lasting: Word = Word()
    exception: Word | None = None
    until_ms: int = NEVER_MS  # of the exception

    def word(self) -> Word:
        """The exception over what lasts."""
        return self.lasting if self.exception is None else _over(self.lasting, self.exception)


class Change(msgspec.Struct, frozen=True, array_like=True):
    """One entry of the history. `error`: why it was refused; it changed nothing then."""

    policy: HostPolicy  # numbered
    applied_ms: int
    error: str = ""
    politeness: Politeness | None = None  # the crawl's own, when it is what changed


encode = msgspec.msgpack.Encoder().encode
decode_change = msgspec.msgpack.Decoder(Change).decode
decode_standing = msgspec.msgpack.Decoder(Standing).decode


class Policies:
    """All words of one owner, in memory. `changes` are those that are not yet written."""

    def __init__(self, records: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """From what is durable: (key, value) of Family.POLICY."""
        self.version = 0  # of the last change
        self.base_version = 0  # of the crawl's own configuration
        self.politeness: Politeness | None = None
        self.standings: dict[str, Standing] = {}
        self._requests: set[str] = set()
        self._unwritten: list[tuple[bytes, bytes]] = []
        for key, value in records:
            if key[:1] == _CHANGE_KEY:
                self._remember(decode_change(value))
            else:
                standing = decode_standing(value)
                self.standings[standing.key] = standing
        self._find_next_end()

    # --- what follows ---------------------------------------------------------------------------------------------

    def apply_to(self, host: HostState) -> bool:
        """Set the host's override and policy_version to what holds now. False when nothing changed."""
        version, override = self.base_version, None
        if self.standings:
            matching = self.matching(host.host_key)
            if matching:
                version = max(version, *(standing.version for standing in matching))
                override = _override(matching)
        if host.policy_version == version and host.override == override:
            return False
        host.policy_version, host.override = version, override
        return True

    def override(self, host_key_: str) -> Override | None:
        """What an operator set for the host; None: nothing, the crawl's policy holds."""
        return _override(self.matching(host_key_)) if self.standings else None

    def matching(self, host_key_: str) -> list[Standing]:
        """The words on a host, the nearest last."""
        standings = self.standings
        return [standings[key] for key in _keys_of(host_key_) if key in standings]

    # --- changes --------------------------------------------------------------------------------------------------

    def configure(self, politeness: Politeness, now_ms: int) -> bool:
        """The crawl's own politeness, as it is configured for this run. True when it is another than before."""
        if politeness == self.politeness:
            return False
        self._record(Change(HostPolicy("", self.version + 1), now_ms, politeness=politeness))
        return True

    def change(self, policy: HostPolicy, now_ms: int) -> Change | None:
        """Apply an operator's change; it is numbered here unless it is already. None: it was applied before."""
        key = policy.host_key
        standing = self.standings.get(key, Standing(key))
        if policy.request_id and policy.request_id in self._requests:
            return None
        # A change with an id of its own is known by that. Its number may lie below the key's all the same: an
        # exception's end is counted there, too.
        if policy.policy_version and not policy.request_id and policy.policy_version <= standing.version:
            return None
        version = max(self.version + 1, policy.policy_version)
        policy = msgspec.structs.replace(policy, policy_version=version)
        error = problem(policy) or ""
        if not error and key not in self.standings and len(self.standings) >= POLICIES_MAX:
            error = f"{len(self.standings)} keys have words of their own, and no more are held"
        if not error:
            after = _after(standing, policy, now_ms)
            error = _pattern_problem(after) or ""
            if not error:
                self.standings[key] = after
                self._unwritten.append((_STANDING_KEY + key.encode(), encode(after)))
        change = Change(policy, now_ms, error)
        self._record(change)
        self._find_next_end()
        return change

    def end_exceptions(self, now_ms: int) -> list[Change]:
        """The exceptions whose date has passed end, each by a change of its own."""
        if now_ms < self.next_end_ms:
            return []
        ended = [standing for standing in self.standings.values() if standing.until_ms <= now_ms]
        changes = (self.change(HostPolicy(one.key, 0, until_ms=one.until_ms), now_ms) for one in ended)
        return [change for change in changes if change is not None]

    def take_unwritten(self) -> list[tuple[bytes, bytes]]:
        """(key, value) of Family.POLICY that must become durable with what was decided from them."""
        unwritten, self._unwritten = self._unwritten, []
        return unwritten

    def _record(self, change: Change) -> None:
        self._remember(change)
        self._unwritten.append((_CHANGE_KEY + change.policy.policy_version.to_bytes(8, "big"), encode(change)))

    def _remember(self, change: Change) -> None:
        self.version = max(self.version, change.policy.policy_version)
        if change.policy.request_id:
            self._requests.add(change.policy.request_id)
        if change.politeness is not None and change.policy.policy_version > self.base_version:
            self.base_version, self.politeness = change.policy.policy_version, change.politeness

    def _find_next_end(self) -> None:
        self.next_end_ms = min((standing.until_ms for standing in self.standings.values()), default=NEVER_MS)


def history(records: Iterable[tuple[bytes, bytes]]) -> list[Change]:
    """All changes, the oldest first, from what is durable."""
    return [decode_change(value) for key, value in records if key[:1] == _CHANGE_KEY]


def matches(key: str, host_key_: str) -> bool:
    """Whether a word on `key` is about that host."""
    return key in _keys_of(host_key_)


def about(key: str, other: str) -> bool:
    """Whether a word on `key` is about the host, or some of the hosts, that `other` names. "" is the crawl itself."""
    if key in ("", other):
        return True
    if is_host(other):
        return matches(key, other)
    name = other.removeprefix("*.")
    return other != ALL and (
        matches(key, f"http://{name}") if other == name else key in _keys_of(f"http://{name}")[:-2]
    )


def is_host(key: str) -> bool:
    """Whether the key names one host alone."""
    return "://" in key


def key_of(text: str) -> str | None:
    """The key that a person means: a host_key, a name, `*.name` or `*`, in normal form; else None."""
    text = text.strip()
    if text == ALL:
        return ALL
    below = text.startswith("*.")
    name = text[2:] if below else text
    url = normalize(name if "://" in name else "http://" + name)
    if url is None or url != host_key(url) + "/" or "*" in url:
        return None
    if "://" in name:
        return None if below else host_key(url)
    authority = host_key(url).partition("://")[2]
    if below:
        return None if re.search(r":\d+$", authority) else "*." + authority
    return authority


def problem(policy: HostPolicy) -> str | None:
    """What is wrong with a change, in words; None when nothing is."""
    if key_of(policy.host_key) != policy.host_key:
        return f"needed a host, a name, *.name or *, came {policy.host_key!r}"
    for name, least in (("delay_ms", 0), ("concurrency", 1), ("budget_per_day", 0)):
        value = getattr(policy, name)
        if value is not None and value < least:
            return f"{name}: needed {least} or more, came {value}"
    try:
        compile_patterns((*(policy.blocked_patterns or ()), *policy.block), name="blocked patterns")
    except PatternError as error:
        return str(error)
    return None


class Blocked:
    """Whether an operator's patterns block a URL. Patterns are compiled once, beside the durable state."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, ...], tuple[re.Pattern[str], ...]] = {}

    def allows(self, host: HostState, url: str) -> bool:
        override = host.override
        if override is None or not override.blocked_patterns:
            return True
        return self.by(override.blocked_patterns, url) is None

    def by(self, patterns: tuple[str, ...], url: str) -> str | None:
        """The pattern that blocks the URL; None when none does."""
        compiled = self._compiled.get(patterns)
        if compiled is None:
            if len(self._compiled) >= _COMPILED_MAX:
                self._compiled.clear()
            compiled = self._compiled[patterns] = tuple(re.compile(pattern) for pattern in patterns)
        return next((pattern.pattern for pattern in compiled if pattern.search(url)), None)


# --- below --------------------------------------------------------------------------------------------------------


def _keys_of(host_key_: str) -> list[str]:
    """All keys that match a host, the farthest first."""
    authority = host_key_.partition("://")[2]
    name = host_name(host_key_)
    labels = name.split(".")
    keys = [ALL, *("*." + ".".join(labels[at:]) for at in range(len(labels) - 1, -1, -1)), name]
    return [*keys, host_key_] if authority == name else [*keys, authority, host_key_]


def _after(standing: Standing, policy: HostPolicy, now_ms: int) -> Standing:
    """The table of this module."""
    if policy.reset:
        standing = Standing(standing.key)
    lasting, exception, until_ms = standing.lasting, standing.exception, standing.until_ms
    if policy.until_ms is None:
        said = _said(policy, standing.word())
        lasting = _over(lasting, said)
        if exception is not None:
            exception = _without(exception, said)
            if exception == Word():
                exception = None
    elif policy.until_ms > now_ms:
        exception = _over(exception or Word(), _said(policy, standing.word()))
        until_ms = policy.until_ms
    else:
        exception = None
    if exception is None:
        until_ms = NEVER_MS
    return Standing(standing.key, policy.policy_version, lasting, exception, until_ms)


def _said(policy: HostPolicy, now: Word) -> Word:
    """The values of a change; patterns that are added or taken away refer to those that hold now."""
    blocked = policy.blocked_patterns
    if policy.block or policy.unblock:
        kept = blocked if blocked is not None else now.blocked_patterns or ()
        added = tuple(dict.fromkeys((*kept, *policy.block)))
        blocked = tuple(pattern for pattern in added if pattern not in policy.unblock)
    return Word(policy.delay_ms, policy.concurrency, policy.budget_per_day, blocked, policy.paused, policy.deleted)


def _over(below: Word, above: Word) -> Word:
    said = {name: value for name in Word.__struct_fields__ if (value := getattr(above, name)) is not None}
    return msgspec.structs.replace(below, **said) if said else below


def _without(word: Word, said: Word) -> Word:
    return msgspec.structs.replace(
        word, **{name: None for name in Word.__struct_fields__ if getattr(said, name) is not None}
    )


def _pattern_problem(standing: Standing) -> str | None:
    patterns = standing.word().blocked_patterns or ()
    if len(patterns) <= SCOPE_PATTERNS_MAX:
        return None
    return f"at most {SCOPE_PATTERNS_MAX} blocked patterns, came {len(patterns)}; join some with |"


def _override(matching: Sequence[Standing]) -> Override | None:
    word, blocked, until_ms = Word(), dict[str, None](), NEVER_MS
    for standing in matching:
        said = standing.word()
        word = _over(word, said)
        blocked |= dict.fromkeys(said.blocked_patterns or ())
        until_ms = min(until_ms, standing.until_ms)
    override = Override(
        delay_ms=word.delay_ms,
        concurrency=word.concurrency,
        budget_per_day=word.budget_per_day,
        blocked_patterns=tuple(blocked),
        paused=bool(word.paused),
        deleted=bool(word.deleted),
        until_ms=None if until_ms == NEVER_MS else until_ms,
    )
    return None if override == Override() else override
