"""URL identity: the one normal form by which a URL is seen, stored, routed and asked.

Normal form: parsed and resolved by the WHATWG URL standard (by ada); only http and https; no user or password; no
fragment; in path and query the escapes of unreserved characters (RFC 3986 2.3) decoded and all others in upper case.
Nothing else is touched: path case, `//`, trailing `/`, `index.html`, the order of parameters and an empty `?` stay.
The normal form is ASCII and a fixed point: normalizing it again gives the same.

A `host_key` is scheme and authority of a normal form, `https://www.example.org:8443`; a `host` is its host as the URL
writes it, so an IPv6 address stands in brackets.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from ada_url._ada_wrapper import ffi, lib  # type: ignore[import-not-found]  # compiled, without stubs
from publicsuffixlist import PublicSuffixList

from streams.core.policy import HREF_CHARS_MAX, URL_BYTES_MAX
from streams.core.rules.query_encoding import encode_query, query_codec

SHARED_MAX = 40_000  # links remembered beyond a page; some 12 MB
SHARED_CHARS_MAX = 256
URL_ID_BYTES = 16
HOST_ID_BYTES = 10


def normalize(href: str, base: str | None = None, document_encoding: str = "utf-8") -> str | None:
    """The normal form of `href`, resolved against `base`; None when it must not be crawled.

    A base that is no URL itself counts as none. For many links of one page use `Resolver`.
    """
    return Resolver(base, document_encoding).resolve(href)


class _Siblings:
    """What links came to on pages of one directory: a site's navigation stands on each of them.

    A link that begins with a character of a path is resolved against its base up to the last `/` of the path (URL
    standard 4.4); not so `?x`, nor `http:?x`, which is relative too. Only a memory: at SHARED_MAX all are forgotten.
    """

    def __init__(self) -> None:
        self._by_directory: dict[tuple[str, str | None], dict[str, str]] = {}
        self._count = 0

    def of(self, base: str, codec: str | None) -> dict[str, str]:
        """The links known of the directory of `base` in documents of this encoding."""
        self._count += 1
        if self._count > SHARED_MAX:
            self._by_directory = {}
            self._count = 0
        path = base.partition("#")[0].partition("?")[0]
        return self._by_directory.setdefault((path[: path.rfind("/") + 1], codec), {})

    def keep(self, links: dict[str, str], href: str, url: str) -> None:
        """Remember one more, if any page of the directory would have it; `links` are those that `of` gave."""
        if len(href) > SHARED_CHARS_MAX or href[:1] <= " " or href[0] == "?" or (":" in href and "://" not in href):
            return
        self._count += 1
        if self._count <= SHARED_MAX:
            links[href] = url


class Resolver:
    """Resolves the links of one page. Remembers each href, so that repeated links cost one look-up.

    `known`: what hrefs without fragment came to on this page and its siblings; to be read only.
    """

    __slots__ = ("_base", "_base_bytes", "_codec", "_seen", "known")

    def __init__(self, base: str | None = None, document_encoding: str = "utf-8") -> None:
        self._base = None if base is None else _to_utf8(base)
        if self._base is not None and not lib.ada_can_parse(self._base, len(self._base)):
            self._base = None
        self._base_bytes = 0 if self._base is None else len(self._base)
        self._codec = query_codec(document_encoding)
        self._seen: dict[str, str | None] = {}
        self.known = _siblings.of(base or "", self._codec)

    def resolve(self, href: str) -> str | None:
        """The normal form of `href`; None when it is no http or https URL, is malformed, or is too long."""
        # In every URL the first # begins the fragment, so links to sections of one page share one entry.
        cut = href.find("#")
        if cut >= 0:
            # A blank before it must not come to the end, where it would be trimmed: "a #x" is the path a%20.
            href = href[: cut + (cut > 0 and href[cut - 1] <= " ")]
        try:
            return self._seen[href]
        except KeyError:
            pass
        url = self.known.get(href)
        if url is None:
            url = self._resolve_new(href)
            if url is not None:
                _siblings.keep(self.known, href, url)
        self._seen[href] = url
        return url

    def _resolve_new(self, href: str) -> str | None:
        if len(href) > HREF_CHARS_MAX:
            return None
        if self._codec is not None and not href.isascii():
            href = _with_query_encoded(href, self._codec)
        try:
            given = href.encode()
        except UnicodeEncodeError:
            given = _to_utf8(href)
        if self._base is None:
            parsed = lib.ada_parse(given, len(given))
        else:
            parsed = lib.ada_parse_with_base(given, len(given), self._base, self._base_bytes)
        # From here to ada_free nothing may raise.
        text = lib.ada_get_href(parsed)  # empty when invalid
        url = str(ffi.buffer(text.data, text.length), "ascii") if text.length else ""
        lib.ada_free(parsed)
        if not url.startswith(("http://", "https://")):
            return None
        if "@" in url or "#" in url or "%" in url:
            url = _finish(url)
        return url if len(url) <= URL_BYTES_MAX else None


def host_key(url: str) -> str:
    """Scheme and authority of a normal form."""
    return url[: url.index("/", 8)]  # 8 = len("https://"); a host has at least one character, so http is served too


def path_and_query(url: str) -> str:
    """What follows the authority of a normal form; begins with `/`. This is what robots rules are matched with."""
    return url[url.index("/", 8) :]


def split_authority(host_key: str) -> tuple[str, str, int]:
    """Scheme, host (IPv6 in brackets) and port of a host_key; the scheme's default port when it names none."""
    scheme, _, authority = host_key.partition("://")
    colon = authority.rfind(":")
    if colon < 0 or authority.endswith("]"):
        return scheme, authority, 443 if scheme == "https" else 80
    return scheme, authority[:colon], int(authority[colon + 1 :])


def host_name(host_key: str) -> str:
    """The host of a host_key, as URLs write it."""
    return split_authority(host_key)[1]


def port(host_key: str) -> int:
    """The port that a host_key is asked at."""
    return split_authority(host_key)[2]


def url_id(url: str) -> bytes:
    """128 bits of BLAKE2b of a normal form: no site can forge a collision."""
    return blake2b(url.encode(), digest_size=URL_ID_BYTES).digest()


def host_id(host_key: str) -> bytes:
    """80 bits of BLAKE2b of a host_key, the prefix of its keys in the stores."""
    return blake2b(host_key.encode(), digest_size=HOST_ID_BYTES).digest()


@lru_cache(maxsize=65_536)
def registrable_domain(host: str) -> str:
    """The public suffix of `host` and one label more; addresses, single labels and public suffixes are themselves.

    Source: publicsuffix.org, private section included, so that `a.github.io` and `b.github.io` are two sites.
    """
    if "." not in host or host.rsplit(".", 1)[1].isdigit():
        return host
    return _suffixes().privatesuffix(host) or host


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    """The packaged list, read at its first use: 30 ms of CPU that a process without scopes never needs."""
    return PublicSuffixList()


_siblings = _Siblings()
_HEX = frozenset("0123456789abcdefABCDEF")
_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"  # RFC 3986 2.3
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_ESCAPES = {
    escape: chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}"
    for byte in range(256)
    for escape in {
        f"{a}{b}" for a in {f"{byte:02x}"[0], f"{byte:02X}"[0]} for b in {f"{byte:02x}"[1], f"{byte:02X}"[1]}
    }
}
_TRIMMED = "".join(map(chr, range(0x21)))
_REMOVED = dict.fromkeys((0x09, 0x0A, 0x0D))


def _finish(url: str) -> str:
    """Take user, password and fragment from a URL that ada wrote, and put its escapes in order."""
    url = url.partition("#")[0]
    authority_start = url.index("//") + 2
    path_start = url.index("/", authority_start)
    at = url.rfind("@", authority_start, path_start)  # ada escapes an @ within user or password
    origin = url[:path_start] if at < 0 else url[:authority_start] + url[at + 1 : path_start]
    rest = url[path_start:]
    if "%" in rest:
        rest = _ESCAPE.sub(_escape, rest)
    return origin + rest


def _escape(match: re.Match[str]) -> str:
    """One escape in its normal form.

    A digit that would complete a broken escape before it (`%2%65`) stays escaped: decoded, it would make an escape
    (`%2e`) that the site did not write, and a second normalization would decode that.
    """
    character = _ESCAPES[match[1]]
    if character in _HEX:
        text, start = match.string, match.start()
        # The regex took every whole escape from the left, so a % here is a broken one.
        if text[start - 1] == "%" or (text[start - 2] == "%" and text[start - 1] in _HEX):
            return match[0].upper()
    return character


def _with_query_encoded(href: str, codec: str) -> str:
    """`href` with its query in the encoding of its page and without fragment; trimmed first, as the standard does."""
    href = href.strip(_TRIMMED).translate(_REMOVED).partition("#")[0]
    before, mark, query = href.partition("?")  # the first ? begins the query of every http URL, relative ones too
    if query.isascii():
        encoded = query
    else:
        encoded = encode_query(_scalar(query), codec)
    return f"{before}{mark}{encoded}#"  # the mark keeps a blank that stood before the fragment from being trimmed


def _scalar(text: str) -> str:
    """Lone surrogates become U+FFFD (Web IDL USVString), as in every URL that a browser parses."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _to_utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _scalar(text).encode()
