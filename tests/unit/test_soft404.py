"""Pages that only say that they are not there are no documents; pages about such pages are."""

from __future__ import annotations

import pytest

from streams.core.rules.soft404 import is_soft_404


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Page not found", "Sorry, the page you asked for could not be found. Home Contact"),
        ("404", "Nothing here"),
        ("404 - Example Shop", "Back to the start"),
        ("Example Shop | 404", "Back to the start"),
        ("Error 404", ""),
        ("Example", "404 Not Found nginx"),
        ("Example", "The requested document no longer exists."),
        ("Seite nicht gefunden – Beispiel", "Zur Startseite"),
        ("Not Found", "The requested URL was not found on this server."),
        ("Oops! That page can't be found.", "It looks like nothing was found at this location."),
    ],
)
def test_a_page_that_only_says_it_is_not_there(title: str, text: str) -> None:
    """Such a page must not become a document."""
    assert is_soft_404(title, text)


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("How to design a 404 page", "Good error pages say what went wrong and where to go."),
        ("How to design a 404 page", "Good error pages say what went wrong and where to go. " * 40),
        ("Page not found: a short history", "In the beginning there was the link. " * 60),
        ("Peugeot 404", "The 404 was built from 1960 on."),
        ("Search", "Results for lost and found offices in Berlin"),
        ("Home", "Welcome"),
        ("", ""),
        ("Lost and found", "What was found and not fetched is kept for a year."),
    ],
)
def test_a_page_that_says_something(title: str, text: str) -> None:
    """Doubt is for the page: a document must not be lost for a word in it."""
    assert not is_soft_404(title, text)
