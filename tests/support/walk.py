"""An independent breadth-first walk of a site: what a crawl of it must have found.

Written apart from the crawler on purpose: the standard library's HTTP client and URL joining, libxml2 for HTML, and no
line of the crawler's own. `python -m tests.support.walk URL` prints how many URLs of each status there are.
"""

from __future__ import annotations

import http.client
import sys
from collections import Counter, deque
from collections.abc import Iterator
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import lxml.html

REQUESTS_MAX = 200_000
_LINKS = {"a": "href", "area": "href", "iframe": "src", "frame": "src"}
_KEPT = "/:?#[]@!$&'()*+,;=%~"  # characters of a URL that are left as they stand


def walk(start_url: str, *, requests_max: int = REQUESTS_MAX) -> dict[str, int]:
    """URL (no fragment) to status, of every URL that the start leads to by links and redirects on its own host."""
    authority = urlsplit(start_url).netloc
    connection = http.client.HTTPConnection(authority, timeout=30)
    found: dict[str, int] = {}
    queue, seen = deque([start_url]), {start_url}
    try:
        while queue:
            assert len(found) < requests_max, f"{start_url} leads to more than {requests_max} URLs"
            url = queue.popleft()
            parts = urlsplit(url)
            connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
            answer = connection.getresponse()
            body = answer.read()
            found[url] = answer.status
            for target in _targets(url, answer, body):
                if urlsplit(target).netloc == authority and target not in seen:
                    seen.add(target)
                    queue.append(target)
    finally:
        connection.close()
    return found


def pages(found: dict[str, int]) -> set[str]:
    """The URLs that have a body to store: what an export calls fetched, with status 200."""
    return {url for url, status in found.items() if status == 200}


def _targets(url: str, answer: http.client.HTTPResponse, body: bytes) -> Iterator[str]:
    if answer.status in (301, 302, 303, 307, 308):
        yield _clean(urljoin(url, answer.headers["Location"]))
    if answer.status != 200 or answer.headers.get_content_type() not in ("text/html", "application/xhtml+xml"):
        return
    if not body.strip():
        return
    tree = lxml.html.document_fromstring(body, parser=lxml.html.HTMLParser(huge_tree=True))
    declared = next((element.get("href") for element in tree.iter("base") if element.get("href")), None)
    base = urljoin(url, (declared or "").strip())
    for element in tree.iter(*_LINKS):
        href = element.get(_LINKS[str(element.tag)])
        if href is None:
            continue
        try:
            target = _clean(urljoin(base, href.strip()))
        except ValueError:  # such as a bracket that is no IPv6 address
            continue
        if target.startswith("http:"):
            yield target


def _clean(url: str) -> str:
    return quote(urldefrag(url).url, safe=_KEPT)


def main() -> None:
    found = walk(sys.argv[1])
    print(f"{len(found):,} URLs, {len(pages(found)):,} pages;", dict(Counter(found.values())))


if __name__ == "__main__":
    main()
