"""The fleet's settings: what is wrong is said where it stands, and secrets stay out of folders and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.kept import KEPT, keep
from infra.provision.kafka_admin import client_settings
from infra.settings import SettingsError, load
from infra.settings_fleet import host_port


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("kafka1:9092", ("kafka1", 9092)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:9092", ("::1", 9092)),
        ("::1:9092", None),
        ("kafka1", None),
        ("kafka1:0", None),
        ("kafka1:65536", None),
        ("http://kafka1:9092", None),
        ("u@kafka1:9092", None),
    ],
)
def test_servers(text: str, parts: tuple[str, int] | None) -> None:
    """A list of brokers that is half understood reaches half of them."""
    assert host_port(text) == parts


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("KAFKA", "kafka1:9092,kafka2", "HOST:PORT"),
        ("CASSANDRA", "node", "HOST:PORT"),
        ("CONNECT", "connect:8083", "http:// or https://"),
        ("OPENSEARCH", "ftp://x", "http:// or https://"),
        ("KEYSPACE", "Head-Race", "a lower-case letter"),
        ("BUCKET", "x", "3 to 63"),
        ("INDEX", "_pages", "letter or digit first"),
        ("PARTITIONS", "0", "at least 1"),
        ("KAFKA_SECURITY", "tls", "one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(variable: str, value: str, words: str) -> None:
    """What is taken and only fails at the first connection is searched for in the wrong place."""
    with pytest.raises(SettingsError) as caught:
        load(environ={f"HEADRACE_FLEET__{variable}": value})
    assert str(caught.value).startswith(f"HEADRACE_FLEET__{variable}: ")
    assert words in str(caught.value)


def test_a_password_in_a_url_is_not_shown() -> None:
    """An error goes into logs."""
    with pytest.raises(SettingsError) as caught:
        load(environ={"HEADRACE_FLEET__OPENSEARCH": "https://user:s3cret@search:9200"})
    assert "s3cret" not in str(caught.value)
    assert "fleet.opensearch_user" in str(caught.value)


def test_no_crawls_folder_keeps_the_fleets_settings(tmp_path: Path) -> None:
    """A folder is handed on, with all that lies in it; passwords must not."""
    environ = {"HEADRACE_FLEET__KAFKA_PASSWORD": "s3cret", "HEADRACE_POLITENESS__DELAY": "2s"}
    keep(tmp_path, load(environ=environ))
    text = (tmp_path / KEPT).read_text()
    assert "delay_ms = 2000" in text
    assert "s3cret" not in text
    assert "fleet" not in text


def test_kafkas_client_gets_what_its_protocol_needs_and_no_more() -> None:
    """A password sent where nobody asked, or a certificate that is left out, is found only in production."""
    environ = {
        "HEADRACE_FLEET__KAFKA": "a:1,b:2",
        "HEADRACE_FLEET__KAFKA_USER": "u",
        "HEADRACE_FLEET__KAFKA_PASSWORD": "p",
        "HEADRACE_FLEET__KAFKA_CA": "ca.pem",
    }
    plain = client_settings(load(environ=environ).fleet)
    assert plain == {"bootstrap.servers": "a:1,b:2", "security.protocol": "plaintext", "client.id": "headrace"}
    both = client_settings(load(environ=environ | {"HEADRACE_FLEET__KAFKA_SECURITY": "sasl_ssl"}).fleet)
    assert both["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (both["sasl.username"], both["sasl.password"], both["ssl.ca.location"]) == ("u", "p", "ca.pem")
    assert "ssl.key.location" not in both
    tls = client_settings(load(environ=environ | {"HEADRACE_FLEET__KAFKA_SECURITY": "ssl"}).fleet)
    assert "sasl.password" not in tls
