"""What goes wrong, how often, and how often it did. Each seed has some kinds of faults and not others ("swarm"):
faults hide one another when all come at once.
"""

from __future__ import annotations

from random import Random

# kind → (odds at each opportunity, what an opportunity is). Kinds of one process and of the fleet where not said.
KINDS: dict[str, tuple[float, str]] = {
    "crash_after_store": (0.004, "a group of the embedded engine"),
    "crash_after_decide": (0.004, "a group of the embedded engine"),
    "crash_after_durable": (0.004, "a group of the embedded engine"),
    "crash_in_release": (0.004, "a group of the embedded engine"),
    "fleet_crash_after_decide": (0.0006, "a group of the fleet's owner"),
    "fleet_crash_when_sent": (0.0006, "a group of the fleet's owner"),
    "fleet_crash_in_rows": (0.0006, "a group of the fleet's owner"),
    "fleet_crash_after_rows": (0.0006, "a group of the fleet's owner"),
    "fleet_crash_after_transaction": (0.0006, "a group of the fleet's owner"),
    "fleet_crash_after_apply": (0.0006, "a group of the fleet's owner"),
    "fleet_crash_after_offsets": (0.0006, "a group of the fleet's owner"),
    "fleet_crash_in_takeover": (0.02, "a step of a takeover"),
    "takeover_slow": (0.02, "a step of a takeover"),
    "region_moved": (0.5, "a move of the home to another region that an operator may make"),
    "offsets_lost": (0.2, "a takeover"),
    "transaction_ack_lost": (0.0006, "a group of the fleet's owner"),
    "two_owners": (0.0004, "a group of the fleet's owner"),
    "row_write_repeated": (0.05, "a group of the fleet's owner"),
    "result_repeated": (0.05, "a result"),
    "result_lost": (0.01, "a result"),
    "result_after_expiry": (0.01, "a result"),
    "stored_before_result": (0.02, "a result"),
    "lease_repeated": (0.05, "a lease"),
    "lease_late": (0.02, "a lease"),
    "fetcher_crash": (0.003, "a lease"),
    "fetcher_stopped": (0.003, "a lease"),
    "fetcher_clock_jump": (0.02, "a lease"),
    "owner_clock_jump": (0.01, "a group"),
    "wake_late_burst": (0.01, "a wake-up"),
    "commit_slow": (0.01, "a group"),
    "parser_stalled": (0.01, "a body to parse"),
    "parser_failed": (0.02, "a body to parse"),
    "parse_repeated": (0.03, "a body to parse"),
    "seal_late": (0.01, "a stored body"),
    "seal_never": (0.01, "a stored body"),
    "stored_repeated": (0.05, "a stored body"),
    "index_cleared": (0.2, "a start of the embedded engine"),
    "index_elsewhere": (0.4, "a takeover: by another worker, whose disk holds no index or an old one"),
}

# What the web does by itself, and what follows from another fault: counted, not drawn here.
WEB_KINDS = {
    "redirect": "a request",
    "redirect_loop": "a request",
    "trap_page": "a request",
    "slow_answer": "a request, some longer than a lease lasts",
    "failed_answer": "a request: reset, time out, cut, 500",
    "host_down": "a request that no host hears",
    "dns_private": "a request that is refused",
    "address_changed": "a request under a permit for another address",
    "busy_bare": "a request: 429 or 503",
    "retry_after_seconds": "a request: 429 or 503",
    "retry_after_date": "a request: 429 or 503",
    "robots_hop": "a robots.txt, elsewhere",
    "robots_broken": "a robots.txt: 500",
    "robots_busy": "a robots.txt: 429",
    "robots_expires_soon": "a robots.txt, in ten minutes",
    "lease_redelivered": "a handing over between fetchers",
    "owner_fenced": "a stopped owner's transaction",
    "index_kept": "a takeover on a disk whose index stands where the states do",
    "index_redone": "a takeover on a disk whose index is one transaction behind",
    "index_behind": "a takeover on a disk whose index stands elsewhere",
    "policy_changed": "an operator's word on a host",
}

OPPORTUNITIES = {kind: opportunity for kind, (_, opportunity) in KINDS.items()} | WEB_KINDS


class Faults:
    """Asked at each opportunity whether a fault comes; counts those that did."""

    def __init__(self, random: Random, share: float = 0.7) -> None:
        """`share` of the kinds come in this seed, each somewhat more or less often."""
        self._random = random
        self._odds = {
            kind: odds * random.choice((0.3, 1.0, 2.0)) for kind, (odds, _) in KINDS.items() if random.random() < share
        }
        self.injected: dict[str, int] = {}
        self.calm = False  # the end of a run: what was broken is to come right again

    def hit(self, kind: str) -> bool:
        assert kind in KINDS
        odds = self._odds.get(kind)
        if odds is None or self.calm or self._random.random() >= odds:
            return False
        self.count(kind)
        return True

    def count(self, kind: str) -> None:
        """A fault that came of itself: of the web, or of another fault."""
        self.injected[kind] = self.injected.get(kind, 0) + 1
