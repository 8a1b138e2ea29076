"""A parser worker that does what the body says, for tests: `python -m tests.support.parser_bombs LIMITS_JSON`.

It is the real worker but for the parser: limits, frames and signals are those of `connectors.parser_worker`.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from connectors.parser_frames import failed_page
from connectors.parser_worker import serve
from connectors.ports import ParseOutput
from schemas.records import ParseTask
from streams.core.policy import ParseLimits


def main() -> None:
    """`echo...` comes back as text; every other body is an order that ends badly."""
    serve(_obey, msgspec.json.decode(sys.argv[1].encode(), type=ParseLimits), records=False, records_max=100)


def _obey(task: ParseTask, body: bytes) -> ParseOutput:
    if body == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif body == b"fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif body == b"raise":
        raise ZeroDivisionError("a parser with a fault")
    elif body == b"hang":
        signal.pause()
    elif body == b"spin":
        while True:
            pass
    elif body == b"swell":
        hoard = [bytearray(1024 * 1024) for _ in range(1 << 20)]
        assert not hoard
    elif body == b"noise":
        os.write(0, b"<html>this is no frame, whatever else it may be</html>")
    elif body == b"other":
        return ParseOutput(failed_page(msgspec.structs.replace(task, url_version=task.url_version + 1), ""))
    elif body == b"descriptors":
        return ParseOutput(failed_page(task, ""), " ".join(sorted(os.listdir("/proc/self/fd"))).encode())
    elif body == b"nice":
        return ParseOutput(failed_page(task, ""), str(os.nice(0)).encode())
    return ParseOutput(failed_page(task, ""), body)


if __name__ == "__main__":
    main()
