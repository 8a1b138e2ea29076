"""The one exception that ends a command: what a person must do something about.

The world's failures while crawling are values (`FetchResult.error`, `ParsedPage.error`). What is left for an exception
is what keeps a whole run from starting or going on: a folder that is held, a full disk, a seed that is no URL.
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1  # the run could not go on: a full disk, a lost folder
EXIT_USAGE = 2  # the command or its input is wrong; nothing was started
EXIT_FOLDER = 3  # the crawl's folder is another version's, held by another process, or unreadable
EXIT_INTERRUPTED = 130  # a second Ctrl-C; 128 + SIGINT, as shells have it


class CrawlError(Exception):
    """One sentence for people, in the form: who, what was needed, what came, what to do. No traceback is shown."""

    def __init__(self, message: str, exit_code: int = EXIT_FOLDER) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CrawlError):
    """The command line or an input named on it is wrong. Nothing was started."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)
