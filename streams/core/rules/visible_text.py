"""The text that a reader of the page sees, with words of different blocks kept apart."""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser, LexborNode

_BLOCKS = (
    "address article aside blockquote body br button canvas caption center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr iframe input legend li listing main "
    "menu nav object ol optgroup option p plaintext pre search section select summary table tbody td textarea tfoot th "
    "thead tr ul video xmp"
)
_UNSEEN = "script style noscript noframes noembed iframe template title"

TEXT_TAG_ID = 2
"""What selectolax gives for text nodes; asserted below."""


def _tag_ids(names: str) -> frozenset[int]:
    """Lexbor's numbers of these element names. They are constants of its build, so they are asked for here."""
    ids = set()
    for name in names.split():
        for context in ("<{}>", "<table><{}>", "<table><tr><{}>", "<frameset><{}>"):
            node = LexborHTMLParser(context.format(name)).css_first(name)
            if node is not None:
                ids.add(node.tag_id)
                break
    assert len(ids) == len(names.split()), f"the parser does not know all of {names}"
    return frozenset(ids)


_BLOCK_IDS = _tag_ids(_BLOCKS)
_UNSEEN_IDS = _tag_ids(_UNSEEN)
_text_node = LexborHTMLParser("<p>x").css_first("p").first_child  # type: ignore[union-attr]
assert _text_node is not None
assert _text_node.tag_id == TEXT_TAG_ID


def visible_text(root: LexborNode, *, chars_max: int) -> str:
    """Text below `root` in document order, runs of white space folded to one space, at most `chars_max` characters.

    Left out: scripts, styles, templates, noscript and titles. A block element stands for a space on both of its sides.
    """
    blocks, unseen = _BLOCK_IDS, _UNSEEN_IDS
    pieces: list[str] = []
    add = pieces.append
    left = chars_max * 2  # white space is folded later
    is_unseen = False
    for node in root.traverse(include_text=True):
        tag = node.tag_id
        if tag in blocks:
            add(" ")
            is_unseen = tag in unseen
            continue
        if tag != TEXT_TAG_ID:
            is_unseen = tag in unseen
            before = node.prev
            if before is not None and before.tag_id in blocks:
                add(" ")
            continue
        before = node.prev
        if before is None:
            if is_unseen:
                continue  # the one text node of a raw text element comes right after it
        elif before.tag_id in blocks:
            add(" ")
        elif before.tag_id != TEXT_TAG_ID:
            last = before.last_child
            if last is not None and last.tag_id in blocks:
                add(" ")
        text = node.text_content or ""
        add(text)
        left -= len(text)
        if left < 0:
            break
    return " ".join("".join(pieces).split())[:chars_max]
