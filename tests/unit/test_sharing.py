"""Hosts of one address or one domain, asked together like one host: through the owner, its commits and its restarts."""

from __future__ import annotations

from schemas.records import FetchLease, FetchResult, HostPolicy, Kind, Outcome
from streams.core import policy as bounds
from streams.core.permits import Phase, decode_host_permits
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rules.urls import host_id
from streams.core.sharing import describe, sharing_of
from streams.core.turn import Family, Turn
from tests.support.core_world import World, answer, answer_robots, stored
from tests.support.memory_store import MemoryStore

ADDRESS = "192.0.2.7"
HOSTS = tuple(f"http://{name}.one.test" for name in "abcde")


def limited(**more: object) -> CrawlPolicy:
    settings = {"delay_ms": 0, "respect_robots": False, **more}
    return CrawlPolicy(politeness=Politeness(**settings))  # type: ignore[arg-type]


def moved(lease: FetchLease, world: World, address: str = ADDRESS) -> FetchResult:
    """The fetcher found the host outside what the lease permits, and asked nothing."""
    return answer(lease, world.now_ms, Outcome.EXPIRED, 0, error="address_changed", address=address)


def find_addresses(world: World, address: str = ADDRESS) -> None:
    """All hosts are leased once without a permitted address, and are found at that one."""
    leases = world.turn().leases
    assert leases
    assert {lease.permitted_address for lease in leases} == {""}
    world.turn(*[moved(lease, world, address) for lease in leases], leases_max=0)


def granted(world: World) -> list[FetchLease]:
    """What the next turns grant: asking, the group's answer and the lease are a turn each."""
    return [lease for _ in range(3) for lease in world.turn().leases]


def done(world: World, lease: FetchLease, address: str = ADDRESS) -> Turn:
    return world.turn(answer(lease, world.now_ms, address=address), stored(lease), leases_max=0)


def test_off_by_default() -> None:
    """Without a limit there is nothing to ask, and leases permit any address."""
    assert sharing_of(MemoryStore(), CrawlPolicy()) is None
    world = World(limited())
    world.seed(*(host + "/" for host in HOSTS))
    leases = world.turn().leases
    assert len(leases) == len(HOSTS)
    assert {lease.permitted_address for lease in leases} == {None}
    assert describe(Politeness()) == []
    (said,) = describe(Politeness(domain_delay_ms=9))
    assert said == "1 at once and 9 ms between for all hosts of one registrable domain"


def test_hosts_of_one_address_are_asked_one_after_the_other() -> None:
    """One lease at a time over all of them, each under the address's permit, and nobody is left out."""
    world = World(limited(address_concurrency=1))
    world.seed(*(host + "/" for host in HOSTS))
    find_addresses(world)
    asked = []
    for _ in HOSTS:
        (lease,) = granted(world)
        assert lease.permitted_address == ADDRESS
        asked.append(lease.host_key)
        done(world, lease)
    assert sorted(asked) == sorted(HOSTS)
    assert granted(world) == []


def test_the_delay_of_an_address_lies_between_its_hosts() -> None:
    """From the receipt of one host's answer to the grant to another the address has its rest."""
    world = World(limited(address_delay_ms=5_000))
    world.seed(*(host + "/" for host in HOSTS[:2]))
    find_addresses(world)
    (lease,) = granted(world)
    done(world, lease)
    world.now_ms += 4_999
    assert granted(world) == []
    assert world.owner.next_ms() <= world.now_ms + 1
    world.now_ms += 1
    assert len(granted(world)) == 1


def test_other_addresses_are_not_held_up() -> None:
    """A group is its own limit: a host elsewhere is granted at the same time."""
    world = World(limited(address_concurrency=1))
    world.seed(HOSTS[0] + "/", HOSTS[1] + "/", "http://other.test/")
    leases = world.turn().leases
    elsewhere = [lease for lease in leases if lease.host_key == "http://other.test"]
    here = [lease for lease in leases if lease not in elsewhere]
    world.turn(
        *[moved(lease, world) for lease in here],
        *[moved(lease, world, "192.0.2.8") for lease in elsewhere],
        leases_max=0,
    )
    leases = granted(world)
    assert len(leases) == 2
    assert {lease.permitted_address for lease in leases} == {ADDRESS, "192.0.2.8"}


def test_an_address_in_the_url_needs_no_look_up() -> None:
    """A host that is an address is in that address's group from the start."""
    world = World(limited(address_concurrency=1))
    world.seed(f"http://{ADDRESS}/", f"http://{ADDRESS}:81/")
    (lease,) = granted(world)
    assert lease.permitted_address == ADDRESS
    done(world, lease)
    assert len(granted(world)) == 1


def test_hosts_of_one_domain_are_asked_one_after_the_other() -> None:
    """The registrable domain is known from the name; the fetcher may ask any address."""
    world = World(limited(domain_concurrency=2))
    world.seed(*(host + "/" for host in HOSTS), "http://two.test/")
    leases = granted(world)
    assert sorted(lease.host_key for lease in leases)[-1] == "http://two.test"
    assert len(leases) == 3
    assert {lease.permitted_address for lease in leases} == {None}


def test_both_limits_hold_together() -> None:
    """A lease needs the permits of its address and of its domain; no two hosts wait for one another for ever."""
    world = World(limited(address_concurrency=1, domain_concurrency=1))
    world.seed(*(host + "/" for host in HOSTS), "http://two.test/")
    find_addresses(world)
    asked = set()
    for _ in range(len(HOSTS) + 1):
        (lease,) = [lease for _ in range(6) for lease in world.turn().leases]
        asked.add(lease.host_key)
        done(world, lease)
    assert asked == {*HOSTS, "http://two.test"}


def test_robots_are_asked_under_a_permit_too() -> None:
    """The first request of a host counts for its address like any other, and so does one that failed."""
    world = World(limited(address_concurrency=1, respect_robots=True))
    world.seed(*(host + "/" for host in HOSTS[:3]))
    find_addresses(world)
    kinds = []
    for _ in range(6):
        (lease,) = granted(world)
        kinds.append(lease.kind)
        if lease.kind is Kind.ROBOTS:
            world.turn(answer_robots(lease, world.now_ms), leases_max=0)
        else:
            done(world, lease)
    assert kinds.count(Kind.ROBOTS) == 3


def test_a_host_that_moved_is_asked_under_its_new_address() -> None:
    """What was permitted for the old address is given back, and costs the host no attempt."""
    world = World(limited(address_concurrency=1))
    world.seed(HOSTS[0] + "/")
    find_addresses(world)
    (lease,) = granted(world)
    world.turn(moved(lease, world, "192.0.2.99"), leases_max=0)
    (again,) = granted(world)
    assert (again.permitted_address, again.url_version) == ("192.0.2.99", lease.url_version)


def test_an_address_is_believed_for_a_time() -> None:
    """After that the host is looked up anew before it is asked."""
    world = World(limited(address_concurrency=1))
    world.seed(HOSTS[0] + "/")
    find_addresses(world)
    world.now_ms += bounds.ADDRESS_TTL_MS
    (lease,) = world.turn().leases
    assert lease.permitted_address == ""


def test_a_lost_lease_gives_its_permit_back() -> None:
    """A fetcher that died holds up the hosts of its address no longer than its lease."""
    world = World(limited(address_concurrency=1))
    world.seed(*(host + "/" for host in HOSTS[:2]))
    find_addresses(world)
    (lease,) = granted(world)
    world.now_ms += bounds.LEASE_START_MS_MAX + world.policy.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX
    (other,) = granted(world)
    assert other.host_key != lease.host_key


def test_permits_survive_a_restart() -> None:
    """What is out is counted by the next owner; with the leases closed it is given back."""
    world = World(limited(address_concurrency=1))
    world.seed(*(host + "/" for host in HOSTS[:3]))
    find_addresses(world)
    (lease,) = granted(world)
    world.restart(close_leases=False)
    world.now_ms += 10_000
    assert granted(world) == []
    done(world, lease)
    assert len(granted(world)) == 1
    world.restart()
    world.now_ms += 10_000
    assert len(granted(world)) == 1


def test_a_permit_that_is_not_used_is_given_back() -> None:
    """A host that was paused while it waited must not keep its address from the others."""
    world = World(limited(address_concurrency=1))
    world.seed(*(host + "/" for host in HOSTS[:2]))
    find_addresses(world)
    world.turn()  # one of them holds the permit now, and has not used it
    (holder,) = [host for host in HOSTS[:2] if _holds(world, host)]
    world.turn(HostPolicy(holder, 0, paused=True))
    leases = granted(world)
    assert len(leases) == 1
    assert leases[0].host_key != holder


def _holds(world: World, host: str) -> bool:
    raw = world.store.get(Family.GROUP, b"h" + host_id(host))
    return raw is not None and any(one.phase is Phase.HELD for one in decode_host_permits(raw).permits.values())
