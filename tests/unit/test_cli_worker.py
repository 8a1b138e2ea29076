"""`headrace worker`: its words, which settings they come to, and what it refuses before anything is started."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path

import faust
import pytest

from infra.settings_fleet import Fleet, KafkaSecurity, SaslMechanism
from infra.wiring_owner import faust_credentials
from streams.cli import main
from streams.cli.worker import settings_of
from streams.core.failures import CrawlError
from streams.fleet.carrier import FETCH_GRACE_S, GRACE_S, grace_of
from tests.support.certificates import contexts
from tests.support.fake_engine import Captured


def given(**words: object) -> argparse.Namespace:
    return argparse.Namespace(**{"stage": None, "config": None, "data": None, "web_port": None} | words)


def test_options_win_over_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the folder is read without being named, as every verb does; what is typed is what runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.toml").write_text('[fleet]\nstages = ["parse"]\ndata = "here"\nweb_port = 7001\n')
    shell = Captured(environ={"HEADRACE_FLEET__WEB_PORT": "7002"})
    fleet = settings_of(given(), shell).fleet
    assert (fleet.stages, fleet.data, fleet.web_port) == (("parse",), "here", 7_002)
    fleet = settings_of(given(stage=["owner", "route"], data="there", web_port=7_003), shell).fleet
    assert (fleet.stages, fleet.data, fleet.web_port) == (("owner", "route"), "there", 7_003)
    (tmp_path / "other.toml").write_text('[fleet]\nstages = ["fetch"]\n')
    fleet = settings_of(given(config=tmp_path / "other.toml"), Captured()).fleet
    assert (fleet.stages, fleet.data) == (("fetch",), "fleet-data")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--stage", "fetcher"], "fetch"),
        (["--web-port", "99999"], "--web-port: out of range; needed at most 65535"),
        (["--stage", "owner", "--stage", "owner"], "needed stages, each once"),
        (["--config", "/nowhere.toml"], "/nowhere.toml"),
        (["--port", "1"], "--web-port"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], hint: str) -> None:
    """Nothing is started, and nobody reads a traceback."""
    shell = Captured()
    assert main(["worker", *words], shell) in (1, 2)
    assert shell.said.count("\n") == 1, shell.said
    assert hint in shell.said


def test_a_broker_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before a worker joins anything: whatever supervises it tries again."""
    monkeypatch.chdir(tmp_path)
    shell = Captured(environ={"HEADRACE_FLEET__KAFKA": "127.0.0.1:1"})
    assert main(["worker", "--stage", "owner"], shell) == 1
    assert "kafka at 127.0.0.1:1: needed an answer" in shell.said
    assert not (tmp_path / "fleet-data").exists()


def test_help_says_what_ends_it_and_where_its_pages_are() -> None:
    """An operator who sets up a supervisor needs both."""
    shell = Captured()
    assert main(["worker", "--help"], shell) == 0
    for words in ("--stage", "--config", "--web-port", "SIGTERM", "/ready", "/metrics"):
        assert words in shell.printed


def test_a_fetcher_has_longer_to_end() -> None:
    """Its requests take up to two minutes, and units and manifests allow three; the others have one."""
    assert (grace_of(["owner", "route"]), grace_of(["owner", "fetch"])) == (GRACE_S, FETCH_GRACE_S)
    assert GRACE_S < 60
    assert FETCH_GRACE_S < 180


def test_fausts_own_client_logs_in_as_all_others(tmp_path: Path) -> None:
    """Membership of the owners is Faust's: with a broker that asks for TLS or a login it needs the same keys."""
    assert faust_credentials(Fleet()) is None
    login = Fleet(kafka_security=KafkaSecurity.SASL_PLAINTEXT, kafka_user="u", kafka_password="p")
    made = faust_credentials(login)
    assert isinstance(made, faust.SASLCredentials)
    assert (made.username, made.password, made.mechanism.value) == ("u", "p", "SCRAM-SHA-512")
    assert made.ssl_context is None
    authority = tmp_path / "ca.pem"
    [der] = contexts(["kafka.test"])[1].get_ca_certs(binary_form=True)
    authority.write_text(ssl.DER_cert_to_PEM_cert(der))
    both = Fleet(
        kafka_security=KafkaSecurity.SASL_SSL,
        kafka_sasl_mechanism=SaslMechanism.PLAIN,
        kafka_user="u",
        kafka_ca=str(authority),
    )
    made = faust_credentials(both)
    assert made.ssl_context.check_hostname
    assert len(made.ssl_context.get_ca_certs()) == 1
    with pytest.raises(CrawlError, match=r"needed certificates that can be read.*see fleet\.kafka_ca"):
        faust_credentials(Fleet(kafka_security=KafkaSecurity.SSL, kafka_ca=str(tmp_path / "none.pem")))
