"""What keeps a service from running, in one sentence with the remedy."""

from __future__ import annotations

from streams.core.failures import EXIT_FAILED, EXIT_USAGE, CrawlError

__all__ = ["ServiceError"]


class ServiceError(CrawlError):
    """Who, what was needed, what came, what to do. `usage` when the command itself is wrong."""

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message, EXIT_USAGE if usage else EXIT_FAILED)
