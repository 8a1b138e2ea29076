"""The sort-friendly key under which web archives look a URL up: `org,example)/path?a=1&b=2`.

Source: the Internet Archive's canonicalization, which OpenWayback, pywb and Common Crawl's index share. An index serves
their tools only when our keys equal theirs, so its habits are kept: `www.` goes, case goes, session ids go, parameters
are sorted. It is a key for looking up, many URLs to one; the identity of a URL is another thing, see `rules.urls`.
"""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

_SAFE = bytes(byte for byte in range(33, 127) if byte not in b"#%")
_PLAIN = re.compile(r"[!-$&-~]*")  # nothing to unescape and nothing to escape; "#" never reaches here
_WWW = re.compile(r"\Awww\d*\.")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_PATH_SESSIONS = (  # ASP.NET without cookies: /(S(24 characters))/page.aspx
    re.compile(r"(?<=/)\((?:[a-z]\([0-9a-z]{24}\))+\)/(?=[^?]+\.aspx)", re.I),
    re.compile(r"(?<=/)\([0-9a-z]{24}\)/(?=[^?]+\.aspx)", re.I),
)
_QUERY_SESSIONS = tuple(
    re.compile(rf"{parameter}(?:&|$)", re.I)
    for parameter in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]+&cftoken=[^&]+",
    )
)


def surt_key(url: str) -> str:
    """The key of a URL in normal form (http or https, a host, no user, no fragment)."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    return f"{_host(scheme, authority)}){_path(slash + path)}{_query(query)}"


def _host(scheme: str, authority: str) -> str:
    host, _, port = authority.rpartition(":")
    if not host or port.endswith("]"):  # no port; the colons of an IPv6 address are not one
        host, port = authority, ""
    host = _WWW.sub("", host.strip("[].").lower(), count=1)
    key = ",".join(reversed(host.split(".")))
    return key if not port or port == _DEFAULT_PORTS.get(scheme) else f"{key}:{port}"


def _path(path: str) -> str:
    kept: list[str] = []
    for segment in _escaped(path).split("/")[1:]:
        if segment == ".." and kept:
            kept.pop()
        elif segment != ".":
            kept.append(segment)
    last = kept[-1:]
    path = "/" + "/".join([*filter(None, kept[:-1]), *last]).lower()
    for session in _PATH_SESSIONS:
        path = _without_last(session, path)
    return path[:-1] if path.endswith("/") and path != "/" else path


def _query(query: str) -> str:
    query = _escaped(query)
    for session in _QUERY_SESSIONS:
        query = _without_last(session, query)
    arguments = sorted(query.lower().split("&"), key=lambda argument: argument.split("=", 1))
    query = "&".join(arguments)
    return f"?{query}" if query else ""


def _without_last(pattern: re.Pattern[str], text: str) -> str:
    """`text` without the last match of `pattern`."""
    last = None
    for last in pattern.finditer(text):  # noqa: B007
        pass
    return text if last is None else text[: last.start()] + text[last.end() :]


def _escaped(text: str) -> str:
    """Unescaped until nothing changes (each turn shortens), then escaped once: all spellings of a byte become one."""
    if _PLAIN.fullmatch(text):
        return text
    data = text.encode()
    while (plain := unquote_to_bytes(data)) != data:
        data = plain
    return quote_from_bytes(data, _SAFE)
