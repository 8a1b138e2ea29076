"""robots.txt as text: groups, lines, delays, sitemaps, matching (RFC 9309 section 2.2)."""

from __future__ import annotations

import time

import pytest

from streams.core import policy
from streams.core.rules import robots
from streams.core.rules.robots import RobotsRules, describe, parse

HOST = "http://example.org"


def allows(text: str | bytes, path: str, agent: str = "headrace") -> bool:
    body = text.encode() if isinstance(text, str) else text
    return parse(body, agent).allows(HOST + path)


def everybody(*lines: str) -> str:
    return "\n".join(("User-agent: *", *lines))


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("/a", "/a", True),
        ("/a", "/ab?c", True),
        ("/a", "/A", False),
        ("/a$", "/a", True),
        ("/a$", "/a?b", False),
        ("/a$b", "/a$bc", True),
        ("/a$$", "/a$", True),
        ("/a*$", "/abc", True),
        ("*", "/", True),
        ("/*/b*c$", "/a/bxc", True),
        ("/*/b*c$", "/a/bxcd", False),
        ("/*b$", "/ab/b", True),
        ("/ab*ba$", "/aba", False),  # the pieces may not overlap
        ("/%7Ejoe", "/~joe", True),
        ("/~joe", "/%7ejoe", True),
        ("/a/b", "/a%2Fb", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/%2A", "/*", True),
        ("/%24$", "/$", True),
        ("/%3F", "/?", False),
        ("/u?v=http://w", "/u?v=http%3A%2F%2Fw", True),  # RFC 9309 2.2.2, second row of the table
        ("/a b", "/a%20b", True),
        ("/100%", "/100%25", True),
        ("/ツ", "/%E3%83%84", True),
        ("/ツ", "/ツ", True),
        ("/?", "/?x", True),
        ("/?", "/", False),
        ("private", "/private", False),
        ("$", "/", False),
    ],
)
def test_a_pattern_matches_what_the_rfc_says(rule: str, path: str, matches: bool) -> None:
    """Protects anchors, wildcards and the equality of escapes (2.2.2, 2.2.3)."""
    assert allows(everybody(f"Disallow: {rule}"), path) is not matches


@pytest.mark.parametrize(
    ("lines", "path", "allowed"),
    [
        (("Disallow: /a", "Allow: /a"), "/a", True),
        (("Allow: /a", "Disallow: /a"), "/a", True),
        (("Allow: /a$", "Disallow: /ab"), "/a", True),
        (("Allow: /page", "Disallow: /*.htm"), "/page.htm", False),
        (("Allow: /$", "Disallow: /"), "/", True),
        (("Allow: /$", "Disallow: /"), "/x", False),
        (("Allow: /ab*", "Disallow: /ab"), "/abc", True),
        (("Allow: /abc", "Disallow: /a*c"), "/abc", True),  # equal length, one by wildcard
        (("Disallow: /abc", "Allow: /a*c"), "/abc", True),
        (("Disallow: /abc$", "Allow: /abc"), "/abc", False),
        (("Disallow: /",), "/robots.txt", True),
        (("Disallow: /",), "/robots.txt?x", True),
        (("Disallow: /",), "/robots.txt.bak", False),
    ],
)
def test_the_longest_pattern_wins_and_allow_wins_ties(lines: tuple[str, ...], path: str, allowed: bool) -> None:
    """Protects the choice between rules that match together (2.2.2)."""
    assert allows(everybody(*lines), path) is allowed


@pytest.mark.parametrize(
    ("line", "agent", "found"),
    [
        ("HeadRace", "headrace", True),
        ("headrace/1.2", "headrace", True),
        ("headrace 1.2", "Headrace/3", True),
        ("head", "headrace", False),
        ("headracer", "headrace", False),
        ("headrace2", "headrace", False),
        ("other, headrace", "headrace", True),
        ("UnicödeBöt", "unicödeböt", True),
        ("", "", False),
        ("* and all", "headrace", True),
        ("*bot", "headrace", False),
    ],
)
def test_a_group_is_found_by_its_whole_product_token(line: str, agent: str, found: bool) -> None:
    """Protects the choice of the group: the token, without case, and no part of it (2.2.1)."""
    assert allows(f"User-agent: {line}\nDisallow: /\n", "/x", agent) is not found


def test_our_own_group_hides_everybodys_even_when_it_is_empty() -> None:
    """A crawler that is named obeys its own group alone (2.2.1)."""
    text = "User-agent: *\nDisallow: /\nCrawl-delay: 9\n\nUser-agent: headrace\n"
    assert allows(text, "/x")
    assert parse(text.encode(), "headrace").crawl_delay_ms is None
    assert not allows(text, "/x", "other")


def test_all_groups_of_one_name_are_one() -> None:
    """Groups of the same product token are merged wherever they stand (2.2.1)."""
    text = "User-agent: a\nDisallow: /x\nUser-agent: b\nDisallow: /y\nUser-agent: A\nUser-agent: b\nDisallow: /z\n"
    assert [allows(text, path, "a") for path in ("/x", "/y", "/z")] == [False, True, False]


@pytest.mark.parametrize("line", ["Sitemap: http://e.org/s", "X-Unknown: 1", "Request-rate: 1/5", "no record", "#"])
def test_other_records_end_no_list_of_names(line: str) -> None:
    """A record that is no rule must not part a user-agent line from its rules (2.2.4)."""
    assert not allows(f"User-agent: headrace\n{line}\nUser-agent: other\nDisallow: /\n", "/x")


def test_an_empty_rule_ends_the_list_of_names() -> None:
    """`Disallow:` frees the crawlers above it from what is said of those below."""
    assert allows("User-agent: headrace\nDisallow:\nUser-agent: *\nDisallow: /\n", "/x")


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_with_cr_lf_or_both(end: str) -> None:
    """Protects line ends and line numbers."""
    rules = parse(end.join(["\ufeffUser-agent: *", "", "Disallow: /a # why", "Allow: /a/b"]).encode(), "x")
    assert rules.deciding_rule(HOST + "/a/c") == "Disallow: /a (line 3)"
    assert rules.deciding_rule(HOST + "/a/b") == "Allow: /a/b (line 4)"
    assert rules.deciding_rule(HOST + "/b") == ""


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x85", "\u2028"])
def test_nothing_else_ends_a_line(mark: str) -> None:
    """str.splitlines() would read a comment's rest as a rule."""
    assert allows(everybody(f"# no{mark}Disallow: /"), "/x")


@pytest.mark.parametrize(
    "text",
    [
        "Useragent: *\nDisallow: /",
        "user agent: *\ndisallow: /",
        "USER-AGENT : *\nDISALLOW :/",
        "user-agent *\ndisallow /",
        "User-agent: *\nDisalow: /",
        "User-agent: *\nDissallow: /",
        "\x00User-agent: *\x00\nDisallow: /\x00",
        "<pre>\nUser-agent: *<br>\nDisallow: /<br>\n</pre>",
    ],
)
def test_common_misspellings_are_understood(text: str) -> None:
    """What public parsers forgive is forgiven, so that a site's meaning is kept."""
    assert not allows(text, "/x")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(encoding: str) -> None:
    """A file saved by an editor with a mark still binds."""
    assert not allows("User-agent: *\nDisallow: /ü\n".encode(encoding), "/%C3%BC")


def test_a_broken_line_spoils_no_other() -> None:
    """Octets that are no UTF-8 stay octets, and the lines beside them hold."""
    body = b"User-agent: *\nDisallow: /\xfc\nDisallow: /a\x00b\nDisallow: /c\n"
    rules = parse(body, "x")
    assert [rules.allows(HOST + path) for path in ("/%FC", "/a%00b", "/c", "/d")] == [False, False, False, True]


def test_a_page_of_html_holds_no_rules() -> None:
    """A soft 404 must not forbid the site, nor count as a robots.txt."""
    rules = parse(b"<html><script>var disallow = '/';\nallow: x\ndisallow: /\n</script></html>", "x")
    assert rules == RobotsRules()


@pytest.mark.parametrize(
    ("value", "delay_ms"),
    [
        ("10", 10_000),
        (".5", 500),
        ("2.", 2_000),
        ("0", 0),
        ("0.0001", 1),
        ("1e3", 1_000_000),
        ("86400", 86_400_000),
        ("9" * 400, policy.CRAWL_DELAY_MS_MAX),
        ("nan", None),
        ("inf", None),
        ("-1", None),
        ("1_0", None),
        ("٣", None),
        ("ten", None),
        ("", None),
        ("5 s", None),
    ],
)
def test_crawl_delay_is_a_number_of_seconds_or_nothing(value: str, delay_ms: int | None) -> None:
    """No word of a site may reach the scheduler as anything but a bounded number."""
    assert parse(everybody(f"Crawl-delay: {value}").encode(), "x").crawl_delay_ms == delay_ms


def test_crawl_delay_binds_those_named_above_it() -> None:
    """A delay is not handed to the next name, while the rules below bind both (2.2.4)."""
    body = b"User-agent: a\nCrawl-delay: 10\nUser-agent: b\nCrawl-delay: 20\nUser-agent: *\nDisallow: /x\n"
    assert [parse(body, agent).crawl_delay_ms for agent in ("a", "b", "c")] == [10_000, 20_000, None]
    assert not any(parse(body, agent).allows(HOST + "/x") for agent in ("a", "b", "c"))
    assert parse(b"User-agent: *\nCrawl-delay: 9\nCrawl-delay: 3", "x").crawl_delay_ms == 9_000


def test_sitemaps_are_normal_absolute_urls() -> None:
    """Only what can be fetched is handed on, once each, and bounded."""
    lines = [
        "Sitemap: HTTP://Example.org:80/S.xml#x",
        "sitemap: /rel",
        "Sitemap: ftp://e.org/x",
        "Sitemap: http://[",
        "",
    ]
    body = "\n".join([*lines, *lines, "site-map:https://e.org/"]).encode()
    assert parse(body, "x").sitemaps == ("http://example.org/S.xml", "https://e.org/")
    assert parse(body, "x", base_url="https://w.org/robots.txt").sitemaps[1] == "https://w.org/rel"
    many = b"".join(b"Sitemap: http://e.org/%d\n" % n for n in range(policy.ROBOTS_SITEMAPS_MAX + 5))
    assert len(parse(many, "x").sitemaps) == policy.ROBOTS_SITEMAPS_MAX


def test_a_line_cut_by_the_size_limit_is_no_line() -> None:
    """`Disallow: /private/` cut after its first slash would forbid the site."""
    head = b"User-agent: *\nDisallow: /a\n"
    cut = b"Disallow: /private/\n"
    for kept in range(len(cut)):
        body = head + b"#" * (policy.ROBOTS_BYTES_MAX - len(head) - kept - 1) + b"\n" + cut
        rules = parse(body, "x")
        assert rules.allows(HOST + "/b")
        assert not rules.allows(HOST + "/a")
        assert rules.allows(HOST + "/private/") is (kept < len(cut) - 1)
    assert parse(head + b"Disallow: /", "x", truncated=True).allows(HOST + "/b")


def test_a_url_in_any_form_is_compared_by_path_and_query() -> None:
    """Host, fragment and a path inside the query play no part."""
    rules = parse(everybody("Disallow: /a", "Disallow: /?q").encode(), "x")
    assert rules.allows("http://example.org#/a")
    assert rules.allows("http://example.org?x=/a")
    assert not rules.allows("http://example.org?q=/a")
    assert not rules.allows("http://a.b:81/a#x")
    assert rules.allows("http://a/")


def test_describe_says_why() -> None:
    """`headrace check robots` prints this."""
    body = everybody("Disallow: /a", "Crawl-delay: 2.5", "Sitemap: http://e.org/s").encode()
    told = describe(parse(body, "x"), HOST + "/ab")
    assert told["allowed"] is False
    assert told["rule"] == "Disallow: /a (line 2)"
    assert told["crawl_delay_s"] == 2.5
    assert told["sitemaps"] == ["http://e.org/s"]
    assert describe(RobotsRules(), HOST + "/")["rule"] == "none matches"


def test_long_wildcard_lists_decide_as_short_ones_do() -> None:
    """The index by literal pieces is only faster: it may lose no rule."""
    patterns = [f"/*x{n}y*z" for n in range(200)] + ["/*q", "/*", "/d*e$", "/*longer/than/most$"]
    rules = parse(everybody(*(f"Disallow: {pattern}" for pattern in patterns)).encode(), "x")
    for n in (0, 7, 199):
        assert rules.deciding_rule(f"{HOST}/a/x{n}yz") == f"Disallow: /*x{n}y*z (line {n + 2})"
    assert rules.deciding_rule(HOST + "/a/longer/than/most").startswith("Disallow: /*longer")
    assert rules.deciding_rule(HOST + "/dxe").startswith("Disallow: /d*e$")
    assert rules.deciding_rule(HOST + "/q").startswith("Disallow: /*q ")
    assert rules.deciding_rule(HOST + "/").startswith("Disallow: /* ")


@pytest.mark.parametrize(
    "lines",
    [
        ["/" + "*a" * 200 + f"b{n}" for n in range(1_000)],
        ["/" + "*a" * 240_000],
        ["/*" + "a" * 30 + f"b{n}" for n in range(10_000)],
        ["/" + "a" * 20 + str(n) for n in range(10_000)],
        ["/" + "a" * n for n in range(1, 900)],
    ],
    ids=["many stars", "one line of stars", "long runs", "plain", "nested"],
)
def test_no_list_of_rules_makes_matching_explode(lines: list[str]) -> None:
    """Hostile patterns cost a few milliseconds of CPU for a long URL, never an exponent."""
    rules = parse(everybody(*(f"Disallow: {line}" for line in lines)).encode(), "x")
    url = HOST + "/" + "a" * 2_000
    rules.allows(url)  # lays out the index
    started = time.process_time()
    for _ in range(5):
        rules.allows(url)
    assert (time.process_time() - started) / 5 < 0.05


def test_rules_that_were_stored_decide_alike() -> None:
    """encode and decode lose nothing but the sitemaps, which travel beside the rules."""
    parsed = parse(everybody("Disallow: /a", "Allow: /a$", "Crawl-delay: 3", "Sitemap: http://e.org/").encode(), "x")
    stored = RobotsRules.decode(parsed.encode())
    assert stored.rules == parsed.rules
    assert (stored.crawl_delay_ms, stored.sitemaps, stored.has_groups) == (3_000, (), True)
    assert robots.RobotsRules.decode(RobotsRules().encode()) == RobotsRules()
