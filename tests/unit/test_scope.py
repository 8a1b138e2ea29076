"""Which URLs belong to a crawl."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core.policy import SCOPE_PATTERN_CHARS_MAX, SCOPE_PATTERNS_MAX
from streams.core.rules.patterns import PatternError
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_key


def admits(scope: Scope, url: str, depth: int = 1) -> str | None:
    return scope.admits(url, host_key(url), depth)


def test_host() -> None:
    """The host scope takes a seed's host and port by either scheme, and no sister host."""
    scope = Scope(("http://a.example.com/x/y", "http://b.org:8080/"))
    assert admits(scope, "http://a.example.com/") is None
    assert admits(scope, "https://a.example.com/z?q") is None
    assert admits(scope, "http://b.org:8080/z") is None
    assert admits(scope, "http://b.org/z") == "out_of_scope"
    assert admits(scope, "http://example.com/") == "out_of_scope"
    assert admits(scope, "http://b.a.example.com/") == "out_of_scope"


def test_domain() -> None:
    """The domain scope ends at the registrable domain, not at a common suffix."""
    scope = Scope(("http://a.example.co.uk/", "http://127.0.0.1:81/"), ScopeMode.DOMAIN)
    assert admits(scope, "https://b.c.example.co.uk:99/") is None
    assert admits(scope, "http://127.0.0.1:82/") is None
    assert admits(scope, "http://other.co.uk/") == "out_of_scope"
    assert admits(scope, "http://127.0.0.2/") == "out_of_scope"


def test_prefix() -> None:
    """The prefix scope takes what lies below a seed's directory, also when directories lie within one another."""
    seeds = ("http://h/docs/9/index.html?x=/a/b/", "http://h/docs/", "http://h/docs-old/a", "http://g/a/b/c")
    scope = Scope(seeds, ScopeMode.PREFIX)
    for inside in ("http://h/docs/", "http://h/docs/9/z", "https://h/docs/zz/", "http://h/docs-old/b", "http://g/a/b/"):
        assert admits(scope, inside) is None, inside
    for outside in ("http://h/", "http://h/docs", "http://h/docs-new/", "http://g/a/", "http://h:1/docs/", "http://f/"):
        assert admits(scope, outside) == "out_of_scope", outside


def test_any_and_depth() -> None:
    """With scope any only the depth ends a crawl; the last depth is still in."""
    scope = Scope(("http://h/",), ScopeMode.ANY, depth_max=2)
    assert admits(scope, "http://x/", 2) is None
    assert admits(scope, "http://x/", 3) == "too_deep"
    assert admits(Scope(("http://h/",), ScopeMode.ANY), "http://x/", 10_000) is None


def test_patterns() -> None:
    """An exclusion beats an inclusion, and includes are alternatives."""
    scope = Scope(("http://h/",), include=("/en/", r"\.html$"), exclude=("logout", "[?]print"))
    assert admits(scope, "http://h/en/x") is None
    assert admits(scope, "http://h/de/x.html") is None
    assert admits(scope, "http://h/de/x") == "not_included"
    assert admits(scope, "http://h/en/logout") == "excluded"
    assert admits(scope, "http://h/en/a.html?print") == "excluded"


def test_seeds_are_always_in_scope() -> None:
    """What the operator named is crawled, whatever the patterns and the depth say."""
    seed = "http://h/de/logout"
    scope = Scope((seed,), depth_max=0, include=("/en/",), exclude=("logout",))
    assert admits(scope, seed, 5) is None


def test_a_scope_survives_its_folder() -> None:
    """A resumed crawl has the scope that it began with."""
    scope = Scope(("http://h/a/b",), ScopeMode.PREFIX, 3, ("x",), ("y",))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(scope), type=Scope) == scope
    assert msgspec.json.decode(msgspec.json.encode(scope), type=Scope) == scope


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seeds": ("example.com",)}, "example.com"),
        ({"seeds": ("http://h",)}, "http://h"),
        ({"seeds": (), "depth_max": -1}, "depth_max"),
        ({"seeds": (), "include": ("(",)}, "include: '\\('"),
        ({"seeds": (), "exclude": ("a",) * (SCOPE_PATTERNS_MAX + 1)}, "exclude: at most"),
        ({"seeds": (), "exclude": ("a" * (SCOPE_PATTERN_CHARS_MAX + 1),)}, "exclude: a pattern has at most"),
    ],
)
def test_a_scope_that_cannot_be(fields: dict[str, object], said: str) -> None:
    """A wrong scope is refused when it is made or read, naming the part that is wrong."""
    with pytest.raises(ValueError, match=said):
        Scope(**fields)  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(fields, Scope)


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+$", r"(\w+\s?)+$", r"(.*a)+", r"(a|b|ab)*c", r"(x+x+)+y", r"(a?b?)*", r"(a{1,50}){1,50}", r"x(?=(a*)*b)"],
)
def test_a_pattern_that_could_match_for_ever_is_refused(pattern: str) -> None:
    """No URL that a stranger writes can stop the crawl within an operator's pattern."""
    with pytest.raises(PatternError, match="for ever"):
        Scope((), exclude=(pattern,))


@pytest.mark.parametrize(
    "pattern",
    [
        r"^https?://[^/]+/(en|de)/",
        r"(/\w+)*$",
        r"(?:[^/]+/)*x",
        r"(foo|bar)+",
        r".*/tag/.*",
        r"(?:a{2})+",
        r"(\d{4}-\d\d/)+",
        r"\.(?:jpe?g|png|gif)(?:\?.*)?$",
        r"(?i)/Calendar/\d+",
        r"(a)(?:b\1)+",
        r"(?!/x)(?<=/)y",
    ],
)
def test_honest_patterns_pass(pattern: str) -> None:
    """The check refuses no pattern of the kinds that people write."""
    assert Scope((), exclude=(pattern,)).exclude == (pattern,)


def test_many_seeds() -> None:
    """Looking up among many seeds finds each of their directories and nothing between them."""
    seeds = tuple(f"http://h/{n}/index.html" for n in range(5_000))
    scope = Scope(seeds, ScopeMode.PREFIX)
    assert all(admits(scope, f"http://h/{n}/x") is None for n in range(5_000))
    assert admits(scope, "http://h/5000/x") == "out_of_scope"
    assert admits(scope, "http://h/499") == "out_of_scope"


_URLS = [
    f"{host}{path}"
    for host in ("http://a.test", "https://a.test", "http://x.a.test", "http://b.test:81")
    for path in ("/", "/d/", "/d/e", "/d/e/f", "/z")
]
_PATTERNS = st.sets(st.sampled_from(("/d", "/e", "z$", "b")), max_size=2).map(lambda found: tuple(sorted(found)))
_SCOPES = st.builds(
    Scope,
    seeds=st.lists(st.sampled_from(_URLS), max_size=3, unique=True).map(tuple),
    mode=st.sampled_from(ScopeMode),
    depth_max=st.sampled_from((None, 0, 1, 3)),
    include=_PATTERNS,
    exclude=_PATTERNS,
)


@settings(max_examples=300)
@given(before=_SCOPES, after=_SCOPES)
def test_a_scope_that_may_not_admit_more_admits_nothing_new(before: Scope, after: Scope) -> None:
    """Protects what stored pages name: whatever a later scope lets in that the earlier refused makes it look again."""
    for url in _URLS:
        for depth in range(5):
            key = host_key(url)
            new = after.admits(url, key, depth) is None and before.admits(url, key, depth) is not None
            assert not new or after.may_admit_more_than(before) or url in after.seeds, (url, depth)


def test_the_same_scope_and_narrower_ones_admit_no_more() -> None:
    """Protects a resume from reading everything again for nothing."""
    scope = Scope(("http://a.test/d/",), ScopeMode.DOMAIN, 3, ("/d",), ("z",))
    narrower = (
        scope,
        scope.with_seeds(["http://x.a.test/d/other"]),
        msgspec.structs.replace(scope, mode=ScopeMode.HOST, depth_max=2, exclude=("z", "y")),
    )
    assert not any(one.may_admit_more_than(scope) for one in narrower)
    wider = (
        scope.with_seeds(["http://b.test/"]),
        msgspec.structs.replace(scope, mode=ScopeMode.ANY),
        msgspec.structs.replace(scope, depth_max=None),
        msgspec.structs.replace(scope, include=()),
        msgspec.structs.replace(scope, include=("/d", "/e")),
        msgspec.structs.replace(scope, exclude=()),
    )
    assert all(one.may_admit_more_than(scope) for one in wider)
