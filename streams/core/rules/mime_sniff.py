"""Which bodies are pages: the declared type decides, and without one the first bytes (WHATWG MIME Sniffing, 7.1).

A declared type is never overruled: application/octet-stream that looks like HTML is none, and text/plain has no links.
"""

from __future__ import annotations

import re

HTML = "text/html"
XHTML = "application/xhtml+xml"
TEXT = "text/plain"
BINARY = "application/octet-stream"

SNIFF_BYTES_MAX = 1445  # the standard's resource header

_UNKNOWN = frozenset(("", "unknown/unknown", "application/unknown", "*/*"))
_TAGS = rb"<!doctype html|<(?:html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p)"
_HTML = re.compile(rb"[\t\n\f\r ]*+(?:(?:" + _TAGS + rb")[ >]|<!--)", re.IGNORECASE)
_XML = re.compile(rb"[\t\n\f\r ]*+<\?xml")
_XHTML = re.compile(rb"<html[^>]*\bxmlns\s*=\s*[\"']http://www\.w3\.org/1999/xhtml[\"']", re.IGNORECASE)
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_WIDE_HTML = re.compile(r"\s*(?:" + _TAGS.decode() + r")[ >]|\s*<!--", re.IGNORECASE)


def page_type(declared: str, body: bytes) -> str:
    """The essence that decides how a body is read. `declared` is the Content-Type's, empty when there is none."""
    return sniffed_type(body) if declared in _UNKNOWN else declared


def sniffed_type(body: bytes) -> str:
    """HTML, XHTML, text/xml, text/plain or application/octet-stream, by the first bytes alone."""
    head = body[:SNIFF_BYTES_MAX]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        wide = head.decode("utf-16", "ignore")
        return HTML if _WIDE_HTML.match(wide) else TEXT
    head = head.removeprefix(b"\xef\xbb\xbf")
    if _HTML.match(head):
        return HTML
    if _XML.match(head):
        return XHTML if _XHTML.search(head) else "text/xml"
    return BINARY if _BINARY.search(head) else TEXT
