"""Why a URL or a host is, or is not, being fetched, from what an owner holds: a folder, or one partition's store.

Whoever asks brings the store (`streams.core.turn.Reads`): the reader of a folder its secondary, a fleet's owner the
store of the host's partition. Only committed state is read, so the answer is one that holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.records import DiscoveredUrl, Source
from streams.core.admit import Admission, decode_templates
from streams.core.budget import BUDGET_KEY, Budget, decode_spent
from streams.core.explain import Sentence, explain_host, explain_scope, explain_unknown, explain_url
from streams.core.explain_policy import explain_block, explain_budget, explain_groups, explain_pattern, explain_words
from streams.core.failures import UsageError
from streams.core.host_policy import Policies
from streams.core.hosts import HostState, decode_host
from streams.core.memo import Memo
from streams.core.permits import decode_host_permits
from streams.core.policy import CrawlPolicy
from streams.core.rows import UrlRow, decode_row
from streams.core.rules.robots import RobotsRules
from streams.core.rules.scope import Scope
from streams.core.rules.traps import TemplateCounts
from streams.core.rules.urls import host_id, host_key, host_name, normalize, url_id
from streams.core.sharing import HOST_KEY
from streams.core.turn import Family, Reads

__all__ = ["Explainer"]


class Explainer:
    """Explains one store as it stands when it is asked."""

    def __init__(
        self,
        db: Reads,
        policy: CrawlPolicy,
        scope: Scope,
        policies: Policies | None = None,
        *,
        other_ports: bool = True,
    ) -> None:
        """`policies`: the operators' words that hold; None: those stored. `other_ports`: look for an unknown name among
        all hosts, which costs a decoding of each.
        """
        self._db, self._policy, self._scope, self._other_ports = db, policy, scope, other_ports
        self.policies = policies if policies is not None else Policies(db.scan(Family.POLICY))

    def explain(self, url_or_host: str, now_ms: int) -> list[Sentence]:
        """(label, sentence), the decisive one first. Raises UsageError for what is neither a URL nor a host."""
        text = url_or_host.strip()
        if "://" in text:
            url = normalize(text)
            if url is None:
                raise UsageError(f"explain: needed a URL or a host, got {text!r}; try https://example.org/page")
            key = host_key(url)
            if text == key and self.row(url) is None and self._host(key) is not None:  # no path: the host is meant
                return self._explain_host([key], text, now_ms)
            return self._explain_url(url, now_ms)
        bare = normalize("http://" + text)
        if bare is None:
            raise UsageError(f"explain: needed a URL or a host, got {text!r}; try example.org")
        authority = host_key(bare).partition("://")[2]
        if bare != host_key(bare) + "/":
            return self._explain_url(self._known_twin(bare), now_ms)
        keys = [f"https://{authority}", f"http://{authority}"]
        if self._other_ports and not any(self._host(key) for key in keys):
            keys = [host.host_key for host in self._hosts() if host_name(host.host_key) == authority]  # on other ports
        return self._explain_host(keys, text, now_ms)

    def _known_twin(self, http_url: str) -> str:
        https_url = "https" + http_url[4:]
        return https_url if self.row(https_url) is not None else http_url

    def _explain_host(self, keys: list[str], named: str, now_ms: int) -> list[Sentence]:
        sentences: list[Sentence] = []
        for key in keys:
            host = self._host(key)
            if host is not None:
                sentences += explain_host(host, now_ms, self._policy)
                sentences += explain_words(self.policies.matching(key), host.policy_version)
                sentences += self._shared(key, now_ms)
        return sentences or [("now", f"{named}: the crawl does not know this host")]

    def _shared(self, key: str, now_ms: int) -> list[Sentence]:
        """What the host shares with others: the limits of its groups, and the crawl's daily budget."""
        raw = self._db.get(Family.GROUP, HOST_KEY + host_id(key))
        permits = None if raw is None else decode_host_permits(raw)
        spent = self._db.get(Family.OWNER, BUDGET_KEY)
        budget = Budget(self._policy.budget, None if spent is None else decode_spent(spent))
        return explain_groups(permits, now_ms) + explain_budget(budget, now_ms)

    def _explain_url(self, url: str, now_ms: int) -> list[Sentence]:
        row, host = self.row(url), self._host(host_key(url))
        admission = Admission(self._db, self._policy, self._scope, Memo(1))
        pattern = explain_pattern(url, self._templates(host), self._policy.traps)
        if row is None or host is None:
            found = DiscoveredUrl(url=url, host_key=host_key(url), source=Source.LINK, discovered_ms=now_ms, depth=1)
            reason = admission.refusal(found)
            rules = None if host is None else self._rules(host)
            sentences = explain_unknown(url, reason, host, rules, now_ms, depth_max=self._scope.depth_max)
            return sentences + pattern + self._host_words(host, now_ms)
        in_flight = any(lease.url_id == url_id(url) for lease in host.in_flight.values())
        sentences = explain_block(host, url) + explain_scope(admission.leaves_out(host.host_key, row))
        sentences += explain_url(row, in_flight, host, self._rules(host), now_ms, self._policy)
        return sentences + pattern + self._host_words(host, now_ms)

    def _templates(self, host: HostState | None) -> TemplateCounts:
        raw = None if host is None else self._db.get(Family.TEMPLATES, host_id(host.host_key))
        return TemplateCounts() if raw is None else decode_templates(raw)

    def _host_words(self, host: HostState | None, now_ms: int) -> list[Sentence]:
        """What there is to say of the host of a URL, below the URL's own sentences."""
        if host is None:
            return []
        words = {"now": "host", "robots": "robots.txt"}
        return [(words.get(label, label), text) for label, text in explain_host(host, now_ms, self._policy)]

    def _rules(self, host: HostState) -> RobotsRules | None:
        raw = self._db.get(Family.RULES, host_id(host.host_key))
        return None if raw is None else RobotsRules.decode(raw)

    def row(self, url: str) -> UrlRow | None:
        raw = self._db.get(Family.URL, host_id(host_key(url)) + url_id(url))
        return None if raw is None else decode_row(raw)

    def _host(self, key: str) -> HostState | None:
        raw = self._db.get(Family.HOST, host_id(key))
        if raw is None:
            return None
        host = decode_host(raw)
        self.policies.apply_to(host)  # of a host at rest, its state may not know of the last words yet
        return host

    def _hosts(self) -> Iterator[HostState]:
        for _, raw in self._db.scan(Family.HOST):
            yield decode_host(raw)
