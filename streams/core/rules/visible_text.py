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

INLINE_LEVELS_MAX = 8  # of inline elements around the end of a block
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
    is_unseen = False  # whether the element before this node in document order shows no text
    is_apart = True  # whether a space or nothing stands before this node: then no space is missing
    for node in root.traverse(include_text=True):
        tag = node.tag_id
        if tag == TEXT_TAG_ID:
            if is_unseen and node.prev is None:
                continue  # the one text node of a raw text element comes right after it
            if not is_apart and _follows_block(node):
                add(" ")
            text = node.text_content or ""
            add(text)
            is_apart = text[-1:].isspace()
            left -= len(text)
            if left < 0:
                break
        elif tag in blocks:
            is_unseen = tag in unseen
            if not is_apart:
                add(" ")
                is_apart = True
        else:
            is_unseen = tag in unseen
            if not is_apart and _follows_block(node):
                add(" ")
                is_apart = True
    return " ".join("".join(pieces).split())[:chars_max]


def _follows_block(node: LexborNode) -> bool:
    """Whether a block ends right before this node, also one that an inline element ends with."""
    before = node.prev
    for _ in range(INLINE_LEVELS_MAX):
        if before is None or before.tag_id == TEXT_TAG_ID:
            return False
        if before.tag_id in _BLOCK_IDS:
            return True
        before = before.last_child
    return False
