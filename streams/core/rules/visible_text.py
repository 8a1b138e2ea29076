"""The text that a reader of the page sees, with words of different blocks kept apart."""

from __future__ import annotations

from collections.abc import Iterable

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


def tag_ids(names: str) -> dict[int, str]:
    """Element names by lexbor's numbers of them. They are constants of its build, so they are asked for here."""
    ids = {}
    for name in names.split():
        for context in ("<{}>", "<table><{}>", "<table><tr><{}>", "<frameset><{}>"):
            node = LexborHTMLParser(context.format(name)).css_first(name)
            if node is not None:
                ids[node.tag_id] = name
                break
    assert len(ids) == len(names.split()), f"the parser does not know all of {names}"
    return ids


BLOCK_IDS = frozenset(tag_ids(_BLOCKS))
UNSEEN_IDS = frozenset(tag_ids(_UNSEEN))
_text_node = LexborHTMLParser("<p>x").css_first("p").first_child  # type: ignore[union-attr]
assert _text_node is not None
assert _text_node.tag_id == TEXT_TAG_ID


def visible_text(
    root: LexborNode, *, blocks: Iterable[LexborNode], unseen: Iterable[LexborNode], chars_max: int
) -> str:
    """Text below `root` in document order, runs of white space folded to one space, at most `chars_max` characters.

    Left out are scripts, styles, templates, noscript and titles: `unseen`, elements of UNSEEN_IDS. A block stands for a
    space on both of its sides: `blocks`, elements of BLOCK_IDS below the root. Both changes are made to the tree, for
    then lexbor gives the text in one call.
    """
    for node in unseen:
        text = node.first_child  # the one text node of a raw text element
        if text is not None and text.tag_id == TEXT_TAG_ID:
            text.decompose()
    for node in blocks:
        node.insert_before(" ")
        node.insert_after(" ")
    return " ".join(root.text()[: chars_max * 2].split())[:chars_max]
