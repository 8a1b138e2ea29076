"""The rules of one robots.txt for our user agent: parsed and matched by RFC 9309.

A file is read as octets: UTF-8 is the norm, but a stray Latin-1 letter spoils no more than its own line. Lines end with
CR, LF or CRLF and nothing else (2.2). From all groups that name our product token, or else from all that name `*`, the
rules are merged into one list (2.2.1); the rest of the file is forgotten.

How a rule and a URL are compared is in `robots_match`.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import msgspec

from streams.core import policy
from streams.core.rules import urls
from streams.core.rules.robots_match import Index, Rule, canonical_path, canonical_pattern

_AGENT, _ALLOW, _DISALLOW, _SITEMAP, _DELAY = range(5)

# The RFC's names, and the misspellings that google/robotstxt, Protego or crawler-commons read as these.
_FIELDS = {
    b"user-agent": _AGENT,
    b"useragent": _AGENT,
    b"user agent": _AGENT,
    b"useg-agent": _AGENT,
    b"ser-agent": _AGENT,
    b"allow": _ALLOW,
    b"disallow": _DISALLOW,
    b"dissallow": _DISALLOW,
    b"dissalow": _DISALLOW,
    b"disalow": _DISALLOW,
    b"diasllow": _DISALLOW,
    b"disallaw": _DISALLOW,
    b"desallow": _DISALLOW,
    b"dssalow": _DISALLOW,
    b"dsallow": _DISALLOW,
    b"sitemap": _SITEMAP,
    b"sitemaps": _SITEMAP,
    b"site-map": _SITEMAP,
    b"crawl-delay": _DELAY,
    b"crawl delay": _DELAY,
    b"crawldelay": _DELAY,
}
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\x0b\x0c\x00"  # around a field or value; not str.strip's list, which has octets of UTF-8 letters in it
_LINE_END = re.compile(rb"\r\n|\n|\r")
_TOKEN = re.compile(r"[^\x00-\x20*/,;:()<>@\[\]?={}\"\\]*")
_TAG = re.compile(rb"<[^<>]*>")
_DELAY_VALUE = re.compile(rb"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")


class RobotsRules(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """What one file says to us. `RobotsRules()` allows everything."""

    rules: tuple[Rule, ...] = ()  # in file order, no pattern twice with the same meaning
    crawl_delay_ms: int | None = None  # None when none is asked; the greatest when several are
    sitemaps: tuple[str, ...] = ()  # normal form, file order, no repeats; not part of `encode`
    has_groups: bool = False  # some user-agent line stands in the file, be it for another crawler

    def allows(self, url: str) -> bool:
        """Whether we may ask for `url` (normal form; other forms are compared as well as they can be)."""
        rule = self._index.decide(canonical_path(url))
        return rule is None or rule.allow

    def deciding_rule(self, url: str) -> str:
        """The rule that settles `url`, as `Disallow: /private/ (line 12)`; "" when none does and it is allowed."""
        rule = self._index.decide(canonical_path(url))
        return "" if rule is None else str(rule)

    def encode(self) -> bytes:
        """Compact bytes for `RobotsAnswer.rules`. Without the sitemaps, which travel beside them in the answer."""
        return _encoder.encode((self.rules, self.crawl_delay_ms, (), self.has_groups))

    @staticmethod
    def decode(data: bytes) -> RobotsRules:
        """The inverse of `encode`. Raises msgspec.DecodeError on bytes that `encode` never made."""
        return _decoder.decode(data)

    @cached_property
    def _index(self) -> Index:
        return Index(self.rules)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RobotsRules)


def parse(body: bytes, product_token: str, *, base_url: str | None = None, truncated: bool = False) -> RobotsRules:
    """The rules of `body` for the crawler that calls itself `product_token` (what follows a "/" is ignored).

    `base_url` is where the file was fetched, for sitemaps named by a relative reference (sitemaps.org wants absolute
    ones); without it they are dropped. `truncated` says that the body was cut, so that its last line is no line.
    Any bytes are a file: what is no record is passed over.
    """
    reader = _Reader(_token(product_token), base_url)
    for number, line in enumerate(_LINE_END.split(_text(body, truncated)), start=1):
        record = _record(line)
        if record is not None:
            reader.read(number, *record)
    return reader.rules()


def describe(rules: RobotsRules, url: str) -> dict[str, Any]:
    """What `headrace check robots` prints: the verdict for `url` and why, the delay in seconds, the sitemaps."""
    return {
        "url": url,
        "allowed": rules.allows(url),
        "rule": rules.deciding_rule(url) or "none matches",
        "rules": len(rules.rules),
        "crawl_delay_s": None if rules.crawl_delay_ms is None else rules.crawl_delay_ms / policy.SECOND_MS,
        "sitemaps": list(rules.sitemaps),
    }


# --- reading ------------------------------------------------------------------------------------------------------


class _Group:
    """The merged rules of all groups for one name. `named` while it is among the user-agent lines last read."""

    def __init__(self) -> None:
        self.found = False
        self.named = False  # Allow and Disallow lines go here
        self.named_for_delay = False
        self.delay_ms: int | None = None
        self.rules: dict[tuple[str, bool], Rule] = {}


class _Reader:
    """The state between two lines: which groups the next record belongs to."""

    def __init__(self, token: str, base_url: str | None) -> None:
        self._token = token
        self._base_url = base_url
        self._ours = _Group()
        self._everybody = _Group()
        self._has_groups = False
        self._after_rule = False  # the next user-agent line begins a new group
        self._after_delay = False
        self._sitemaps: dict[str, None] = {}
        self._sitemap_bytes = 0

    def read(self, number: int, field: int, value: bytes) -> None:
        if field == _AGENT:
            self._name(value)
        elif field == _SITEMAP:
            self._sitemap(value)
        elif field == _DELAY:
            self._delay(value)
        else:
            self._rule(number, field == _ALLOW, value)

    def rules(self) -> RobotsRules:
        """2.2.1: our own group if there is one, else everybody's, else nothing is asked of us."""
        group = self._ours if self._ours.found else self._everybody
        rules = tuple(group.rules.values())
        return RobotsRules(rules, group.delay_ms, tuple(self._sitemaps), self._has_groups)

    def _name(self, value: bytes) -> None:
        self._has_groups = True
        ours, everybody = self._ours, self._everybody
        if self._after_rule:
            ours.named = everybody.named = False
        if self._after_rule or self._after_delay:
            ours.named_for_delay = everybody.named_for_delay = False
        self._after_rule = self._after_delay = False
        # "One, Two" is no product token, but its author meant both.
        for name in value.decode("utf-8", "replace").split(","):
            name = name.strip()
            if name == "*" or (name[:1] == "*" and name[1:2].isspace()):
                group = everybody
            elif self._token and _token(name) == self._token:
                group = ours
            else:
                continue
            group.found = group.named = group.named_for_delay = True

    def _rule(self, number: int, allow: bool, value: bytes) -> None:
        self._after_rule = True  # an empty rule ends the list of names as any other
        groups = [group for group in (self._ours, self._everybody) if group.named]
        if not groups or not value.startswith((b"/", b"*")):
            return  # 2.2.2: outside a group, empty, or no path: it matches nothing
        rule = Rule(canonical_pattern(value), allow, number)
        for group in groups:
            group.rules.setdefault((rule.pattern, allow), rule)

    def _delay(self, value: bytes) -> None:
        """An extension: the RFC has no word on it. It never ends a group's list of names for the rules that follow
        (2.2.4), yet binds only those named so far, as `User-agent: a`, `Crawl-delay: 9`, `User-agent: b` is meant."""
        self._after_delay = True
        delay_ms = _delay_ms(value)
        for group in (self._ours, self._everybody):
            if group.named_for_delay and delay_ms is not None:
                group.delay_ms = max(group.delay_ms or 0, delay_ms)

    def _sitemap(self, value: bytes) -> None:
        """Belongs to no group and ends none (2.2.4)."""
        if not value or len(self._sitemaps) >= policy.ROBOTS_SITEMAPS_MAX:
            return
        url = urls.normalize(value.decode("utf-8", "replace"), self._base_url)
        if url is None or self._sitemap_bytes + len(url) > policy.ROBOTS_SITEMAPS_BYTES_MAX:
            return
        self._sitemap_bytes += len(url)
        self._sitemaps[url] = None


def _text(body: bytes, truncated: bool) -> bytes:
    """The octets to read: no more than ROBOTS_BYTES_MAX, of these only whole lines, as UTF-8 without its mark."""
    if len(body) > policy.ROBOTS_BYTES_MAX:
        truncated = body[policy.ROBOTS_BYTES_MAX : policy.ROBOTS_BYTES_MAX + 1] not in (b"\n", b"\r")
        body = body[: policy.ROBOTS_BYTES_MAX]
    if truncated:  # a cut "Disallow: /private/" must not be read as "Disallow: /"
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return body.decode("utf-16", "replace").encode("utf-8", "replace")
    start = 0
    while start < len(_BOM) and body[start : start + 1] == _BOM[start : start + 1]:
        start += 1  # google/robotstxt passes over the beginning of a mark, too
    text = body[start:]
    if text.lstrip(_BLANK + b"\r\n").startswith(b"<"):
        # Rules inside an HTML page: `Disallow: /x<br>` means /x. A tag at the start of a line stays and spoils it.
        text = _LINE_END.sub(b"\n", text)
        text = b"\n".join(line[:1] + _TAG.sub(b"", line[1:]) for line in text.split(b"\n"))
    return text


def _record(line: bytes) -> tuple[int, bytes] | None:
    """The field and value of one line, or None when it holds no record that we know."""
    text = line.partition(b"#")[0].strip(_BLANK)
    if not text:
        return None
    name, colon, value = text.partition(b":")
    field = _FIELDS.get(name.rstrip(_BLANK).lower())
    if field is not None and colon:
        return field, value.strip(_BLANK)
    # "Disallow /x": all the parsers that we know of read the missing colon into exactly two words.
    words = text.split()
    field = _FIELDS.get(words[0].lower()) if len(words) == 2 else None
    return None if field is None else (field, words[1])


def _token(name: str) -> str:
    """2.2.1: names are compared without case. Versions and remarks behind the token (`foo/1.2`) do not count."""
    match = _TOKEN.match(name.strip())
    assert match is not None
    return match[0].lower()


def _delay_ms(value: bytes) -> int | None:
    """Seconds, decimals allowed. None for what is no number, and so for `nan`, `inf` and negative ones."""
    if not _DELAY_VALUE.fullmatch(value):
        return None
    seconds = float(value)
    if seconds * policy.SECOND_MS >= policy.CRAWL_DELAY_MS_MAX:
        return policy.CRAWL_DELAY_MS_MAX
    return max(round(seconds * policy.SECOND_MS), 1 if seconds else 0)
