"""A schema registry that answers, does not know, refuses, and goes away."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from connectors.ports import StoreClosed
from connectors.schema_registry import SchemaRegistry
from schemas.codec import BadRecord, encode
from schemas.foreign import decode_foreign
from schemas.records import DiscoveredUrl, Source
from schemas.registry import newest
from streams.core.failures import CrawlError
from tests.support.fleet_world import until
from tests.support.ports import free_port

SCHEMA = json.dumps(newest(DiscoveredUrl, batch=False).document)


class Registry:
    """Answers by a table: number to (status, body). `asked` are the paths, with the login that came."""

    def __init__(self, port: int) -> None:
        self.answers: dict[int, tuple[int, bytes]] = {7: (200, json.dumps({"schema": SCHEMA}).encode())}
        self.asked: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Authorization", "")))
                status, body = outer.answers.get(int(self.path.rpartition("/")[2]), (404, b'{"error_code": 40403}'))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def registry(port: int) -> Iterator[Registry]:
    made = Registry(port)
    yield made
    made.close()


def client(port: int, said: list[str] | None = None, **options: str) -> SchemaRegistry:
    return SchemaRegistry(f"http://127.0.0.1:{port}/", say=(said if said is not None else []).append, **options)


def framed(number: int) -> bytes:
    """A stranger's record in the registry's framing: the same Avro, under another head."""
    found = DiscoveredUrl(url="https://a.test/", host_key="https://a.test", source=Source.SEED, discovered_ms=5)
    return b"\0" + number.to_bytes(4, "big") + encode(found)[10:]


def test_a_strangers_record_is_read_by_its_writers_schema(registry: Registry, port: int) -> None:
    """Asked once for each number, with the login; a number that nobody registered is a bad record."""
    resolver = client(port, user="u", password="p:w")
    for _ in range(3):
        [found] = decode_foreign(framed(7), DiscoveredUrl, now_ms=1, resolver=resolver)
        assert found.url == "https://a.test/"
    login = "Basic " + base64.b64encode(b"u:p:w").decode()
    assert registry.asked == [("/schemas/ids/7", login)]
    for _ in range(2):
        with pytest.raises(BadRecord, match="needed a schema that the registry knows, came number 8"):
            decode_foreign(framed(8), DiscoveredUrl, now_ms=1, resolver=resolver)
    assert [path for path, _ in registry.asked] == ["/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/8"]


def test_another_kind_of_schema_is_none(registry: Registry, port: int) -> None:
    """Protobuf in the same framing is no Avro, whatever its bytes come to."""
    registry.answers[9] = (200, json.dumps({"schema": "syntax = ...", "schemaType": "PROTOBUF"}).encode())
    assert client(port)(9) is None


@pytest.mark.parametrize("trouble", [(503, b""), (401, b""), (200, b"<html>"), None], ids=str)
def test_one_that_is_away_is_waited_for(port: int, trouble: tuple[int, bytes] | None) -> None:
    """A record must not become a dead letter for a service's trouble: who asks waits, is told once, and then has it."""
    said: list[str] = []
    resolver = client(port, said)
    found: list[str | None] = []
    registry = None
    if trouble is not None:
        registry = Registry(port)
        registry.answers[7] = trouble
    asking = threading.Thread(target=lambda: found.append(resolver(7)))
    asking.start()
    until(lambda: resolver.away_s() > 0.5, "the wait to be seen")
    if registry is None:
        registry = Registry(port)
    registry.answers[7] = (200, json.dumps({"schema": SCHEMA}).encode())
    asking.join(30)
    registry.close()
    assert found == [SCHEMA]
    assert len(said) == 2
    assert said[0].startswith(f"registry at http://127.0.0.1:{port}: needed schema 7, came ")
    assert said[1].startswith("registry: it answers again")
    assert resolver.away_s() == 0


def test_closing_ends_the_wait(port: int) -> None:
    """A worker that is let go must not wait for a registry that never comes back."""
    resolver = client(port)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            resolver(7)
        except StoreClosed as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: resolver.away_s() > 0, "the wait to begin")
    resolver.close()
    asking.join(30)
    assert len(ended) == 1
    with pytest.raises(StoreClosed):
        resolver(7)


def test_an_authority_that_cannot_be_read_is_said() -> None:
    """At the start, not when the first stranger's record comes."""
    with pytest.raises(CrawlError, match=r"needed a PEM file of an authority, .*check fleet.registry_ca"):
        SchemaRegistry("https://127.0.0.1:1", ca="/nowhere.pem", say=lambda line: None)
