"""The operator's clients carry the fleet's TLS and SASL, and bad ones are told before anything is sent."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connectors.policy_ledger import LEDGER_SETTINGS
from connectors.producer import PRODUCER_SETTINGS
from connectors.topic_reader import CONSUMER_SETTINGS
from infra import fleet_clients
from infra.settings_fleet import Fleet, KafkaSecurity, SaslMechanism
from streams.core.failures import CrawlError

OPENERS: list[Callable[..., Any]] = [fleet_clients.producer, fleet_clients.transactions, fleet_clients.consumer]


def authority(folder: Path) -> tuple[str, str]:
    """Paths of a certificate that signs itself and of its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet.test")])
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(day)
        .not_valid_after(day + datetime.timedelta(days=36_500))
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "ca.pem"), str(folder / "key.pem")


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("security", list(KafkaSecurity))
@pytest.mark.parametrize("mechanism", list(SaslMechanism))
def test_every_client_opens_with_every_security(
    tmp_path: Path, opener: Callable[..., Any], security: KafkaSecurity, mechanism: SaslMechanism
) -> None:
    """The library checks settings as it opens: a name that it does not know, or a file, would be refused here."""
    certificate, key = authority(tmp_path)
    fleet = Fleet(
        kafka=("127.0.0.1:1",),
        kafka_security=security,
        kafka_sasl_mechanism=mechanism,
        kafka_user="operator",
        kafka_password="secret",
        kafka_ca=certificate,
        kafka_certificate=certificate,
        kafka_key=key,
    )
    client = opener(fleet, lambda why: None)
    if opener is fleet_clients.consumer:
        client.close()


@pytest.mark.parametrize("opener", OPENERS)
def test_a_certificate_that_cannot_be_read_is_told(tmp_path: Path, opener: Callable[..., Any]) -> None:
    """A mistyped path is a sentence with the section to look at, not a traceback of a library."""
    fleet = Fleet(kafka_security=KafkaSecurity.SSL, kafka_ca=str(tmp_path / "nowhere.pem"))
    with pytest.raises(CrawlError, match=r"needed settings that its client takes.*section fleet of headrace settings"):
        opener(fleet, lambda why: None)


def test_what_the_design_asks_of_each_client() -> None:
    """No loss, no duplicates, no end to the trying; committed records only; no group's offsets touched."""
    assert (PRODUCER_SETTINGS["enable.idempotence"], PRODUCER_SETTINGS["acks"]) == (True, "all")
    assert PRODUCER_SETTINGS["message.timeout.ms"] == 0
    assert LEDGER_SETTINGS["transactional.id"] == "headrace-operator"
    assert CONSUMER_SETTINGS["isolation.level"] == "read_committed"
    assert CONSUMER_SETTINGS["enable.auto.commit"] is False
