"""The seeds reader over any file: it never fails but with a sentence, and loses no seed."""

from __future__ import annotations

import io

from hypothesis import example, given
from hypothesis import strategies as st

from streams.cli.seeds import read_seeds, url_of
from streams.core.failures import UsageError
from streams.core.rules.urls import normalize
from tests.support.fake_engine import NOW_MS

NAMES = st.from_regex(r"[a-z]{1,8}\.example", fullmatch=True)
URLS = st.builds("{}{}/{}".format, st.sampled_from(["http://", "https://"]), NAMES, st.text("ab/?=&%41", max_size=9))
BLANKS = st.sampled_from(["", " ", "\t", "# a comment", "   # another", "#http://no.example/"])
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(data: bytes) -> list[str]:
    return [seed.url for seed in read_seeds(["-"], stdin=lambda: io.BytesIO(data), now_ms=NOW_MS)]


@given(st.lists(st.tuples(URLS, BLANKS)), ENDS, st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_no_seed_of_a_file_is_lost_or_doubled(lines: list[tuple[str, str]], end: str, encoding: str) -> None:
    """Protects seed lists of every editor: any line end, mark, comment or blank line gives the same seeds in order."""
    text = "".join(f"{blank}{end}  {url} {blank}{end}" for url, blank in lines)
    expected = dict.fromkeys(url for line, _ in lines if (url := normalize(line)) is not None)
    assert read(text.encode(encoding)) == list(expected)


@given(st.binary(max_size=200))
@example(b"\xff\xfe\x00")
@example(b"\xfe\xff\xd8\x00")
@example(b"http://[\n")
@example(b"http://\xef\xbb\xbf\n")
def test_any_bytes_are_seeds_or_a_sentence(data: bytes) -> None:
    """Protects against tracebacks: whatever the file holds, the outcome is seeds or a UsageError."""
    try:
        urls = read(data)
    except UsageError:
        urls = []
    assert all(normalize(url) == url for url in urls)


@given(st.text(max_size=60))
@example("//[")
@example("]")
@example("[::1")
@example("http://a.example:0x50")
def test_any_word_is_a_url_or_a_sentence(word: str) -> None:
    """Protects the command line: a word never raises, and a URL that is taken is a normal form."""
    url, problem = url_of(word)
    assert (url is None) == bool(problem)
    assert url is None or normalize(url) == url


@given(URLS)
def test_a_bare_name_is_the_same_as_with_https(url: str) -> None:
    """Protects `headrace crawl example.org`: the scheme that is left out is https."""
    bare = url.partition("://")[2]
    assert url_of(bare) == url_of("https://" + bare)
