"""A service that is away, shuts us out or is another one: an error that names it, its address and the remedy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from infra.provision.everything import PARTS, provision
from infra.provision.rest import HttpRest
from infra.provision.steps import ServiceAway
from infra.settings_fleet import Fleet, KafkaSecurity
from streams.core.failures import CrawlError

SETTINGS = {
    "topics": ("kafka", "fleet.kafka"),
    "keyspace": ("cassandra", "fleet.cassandra"),
    "bucket": ("s3", "fleet.s3_endpoint"),
    "index": ("opensearch", "fleet.opensearch"),
    "connector": ("connect", "fleet.connect"),
}


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody can take meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("part", list(PARTS))
def test_a_closed_port_names_service_address_and_remedy(part: str, port: int) -> None:
    """Protects the first start of a fleet: who forgot a service reads which, where it was looked for and what to do."""
    server, url = (f"127.0.0.1:{port}",), f"http://127.0.0.1:{port}"
    fleet = Fleet(kafka=server, cassandra=server, s3_endpoint=url, opensearch=url, connect=url)
    service, setting = SETTINGS[part]
    [(name, error)] = provision(fleet, [part])
    assert name == part
    assert isinstance(error, ServiceAway)
    assert str(error).startswith(f"{service} at ")
    assert f"127.0.0.1:{port}" in str(error)
    assert f"headrace services up {service}" in str(error)
    assert f"{setting}, HEADRACE_{setting.upper().replace('.', '__')}=" in str(error)


def test_certificates_that_cannot_be_read_are_said_at_once(tmp_path: Path) -> None:
    """A wrong path must not come out as a service that is away."""
    gone = str(tmp_path / "ca.pem")
    fleet = Fleet(
        kafka_security=KafkaSecurity.SSL,
        kafka_ca=gone,
        cassandra_tls=True,
        cassandra_ca=gone,
        opensearch="https://127.0.0.1:1",
        opensearch_ca=gone,
    )
    for part in ("topics", "keyspace", "index"):
        [(_, error)] = provision(fleet, [part])
        assert isinstance(error, CrawlError)
        assert not isinstance(error, ServiceAway), part


class Answering(BaseHTTPRequestHandler):
    """Answers by the path: a status, and a body that may be no JSON."""

    def do_GET(self) -> None:
        status = {"/shut": 401, "/moved": 302, "/gone": 404}.get(self.path, 200)
        body = b"<html>" if self.path == "/html" else b'{"got":"%s"}' % self.headers.get("Authorization", "").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def served() -> Iterator[str]:
    """The URL of a server that answers as above."""
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_answers_of_a_service(served: str) -> None:
    """A refused login names its settings; a status is an answer; a redirect is not followed with our password."""
    rest = HttpRest("opensearch", served + "/", user="u", password="p")
    assert rest.request("GET", "/x").body == {"got": "Basic dTpw"}
    assert rest.request("GET", "/gone").status == 404
    assert rest.request("GET", "/moved").status == 302
    with pytest.raises(ServiceAway, match=r"a refusal: 401; check fleet\.opensearch_user and opensearch_password"):
        rest.request("GET", "/shut")
    with pytest.raises(CrawlError, match=r"needed JSON, got 200 b'<html>'; another service answers there"):
        rest.request("GET", "/html")
