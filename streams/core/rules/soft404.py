"""Pages that say "not found" with status 200: stored as they came, but no documents.

Two things must come together, since either alone is ordinary: the page says it of itself, in its title or its first
words, and it says hardly anything else. An article about 404 pages has a text; a search without hits says what was
searched. Doubt is for the page: a soft 404 in the index costs a reader one click, a lost page cannot be found.
"""

from __future__ import annotations

import re

WORDS_MAX = 150  # of a page whose title says it; navigation and footer included
WORDS_MAX_WITHOUT_TITLE = 60
_HEAD_CHARS = 160

# What a page says of itself. "404" counts only where a heading would put it: first, or after a site's name.
_SAYS_GONE = re.compile(
    r"(?:^|[|\-–—:»·]\s*)(?:http\s+)?(?:error\s*|status\s*)?40[4]\b(?!\s*(?:pages?\s+design|park|days|area))"
    r"|\b40[4]\s*(?:error|not found|page not found)"
    r"|\b(?:page|file|document|url|resource|article|product|site|content|item)s?\b[^.!?]{0,40}?"
    r"\b(?:not|cannot|can't|couldn't|wasn't|could not|can not) (?:be )?(?:found|available|exist)"
    r"|\b(?:page|file|document|article|product|url)\b[^.!?]{0,40}?"
    r"\b(?:no longer|doesn't|does not) (?:exists?|available)"
    r"|^(?:oops[!.,]?\s*)?not found\b"
    r"|\b(?:seite|dokument) (?:wurde )?nicht gefunden|\bpage (?:introuvable|non trouvée)|\bp[aá]gina no encontrada"
    r"|\bpagina non trovata|\bp[aá]gina n[aã]o encontrada|\bpagina niet gevonden|страница не найдена|页面不存在"
    r"|ページが見つかりません",
    re.IGNORECASE,
)


def is_soft_404(title: str, text: str) -> bool:
    """`title` and visible `text` of a page that came with a 2xx status."""
    words = text.count(" ") + text.count("\n") + 1
    if words > WORDS_MAX:
        return False
    if _SAYS_GONE.search(title[:_HEAD_CHARS]):
        return True
    return words <= WORDS_MAX_WITHOUT_TITLE and _SAYS_GONE.search(text[:_HEAD_CHARS].strip()) is not None
