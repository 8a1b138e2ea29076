"""A parser worker that does what the body says, for tests: `python -m tests.support.parser_bombs LIMITS_JSON [FIFO]`.

It is the real worker but for the parser: limits, frames and signals are those of `connectors.parser_worker`.
With FIFO it is a plain one, that tells there when its hello is sent and echoes one record.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

import msgspec

from connectors.parser_frames import HEADER, failed_page, hello_frame, parse_header, read_task, response_frame
from connectors.parser_worker import serve
from connectors.ports import ParseOutput
from schemas.records import ParseTask
from streams.core.policy import ParseLimits


def main() -> None:
    """`echo...` comes back as text; every other body is an order that ends badly."""
    if len(sys.argv) > 2:
        _echo_one(sys.argv[2])
        return
    serve(_obey, msgspec.json.decode(sys.argv[1].encode(), type=ParseLimits), records=False, records_max=100)


def _echo_one(fifo: str) -> None:
    with socket.socket(fileno=os.dup(0)) as stream, stream.makefile("rb") as requests:
        stream.sendall(hello_frame)
        with open(fifo, "wb") as said:
            said.write(b"h")
        header = parse_header(requests.read(HEADER.size))
        task = read_task(requests.read(header.first))
        stream.sendall(response_frame(ParseOutput(failed_page(task, ""), requests.read(header.second))))
        requests.read(1)  # until the pool is closed


def _obey(task: ParseTask, body: bytes) -> ParseOutput:
    if body == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif body == b"fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif body == b"raise":
        raise ZeroDivisionError("a parser with a fault")
    elif body == b"hang":
        signal.pause()
    elif body.startswith(b"once "):  # "once PATH": hangs, unless there is a file
        _, _, path = body.partition(b" ")
        if not os.path.exists(path):
            open(path, "wb").close()
            signal.pause()
    elif body == b"spin":
        while True:
            pass
    elif body == b"swell":
        hoard = [bytes(1024 * 1024) for _ in range(1 << 20)]  # untouched pages: no CPU time, be the machine busy
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
