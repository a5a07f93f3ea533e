from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest

from oncelog.base.notation.java_properties import parse_properties
from oncelog.client.config import ClientConfig
from oncelog.core.sasl.initial_users import read_initial_users
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.security.authority import LIFETIME, facts_of
from oncelog.security.setup import SetupRefused, SetupRequest, issue_client, renew, set_up


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def read(path: Path) -> dict[str, str]:
    return parse_properties(path.read_text("utf-8"))


@pytest.mark.parametrize("by_certificate", [False, True])
def test_what_is_made_is_its_owners_alone_and_can_be_read(tmp_path: Path, by_certificate: bool) -> None:
    directory = tmp_path / "secured"
    made = set_up(directory, SetupRequest(user="ops", by_certificate=by_certificate))
    assert mode(directory) == 0o700
    assert {Path(file.path).name for file in made.files} == {path.name for path in directory.iterdir()}
    assert {path.name for path in directory.iterdir() if mode(path) != 0o600} == {"ca.pem"}
    settings = read_settings(read(directory / "server.properties"))
    assert {str(endpoint) for endpoint in settings.listeners.endpoints} == {
        "CLIENTS://127.0.0.1:9092",
        "BROKERS://127.0.0.1:9093",
    }
    assert settings.listeners.advertised["CLIENTS"].host == "localhost"
    assert settings.data_directory == str(directory / "data")
    for name in ("client.properties", "librdkafka.properties"):
        security = ClientConfig.from_properties(read(directory / name)).security
        assert security is not None
        assert (security.sasl is None) == by_certificate
        assert security.tls is not None
        security.tls.context()
    spark = read(directory / "spark.properties")
    assert spark == {f"kafka.{key}": value for key, value in read(directory / "client.properties").items()}


def test_every_line_is_explained_and_the_broker_does_not_have_the_password(tmp_path: Path) -> None:
    set_up(tmp_path / "s", SetupRequest())
    password = read(tmp_path / "s" / "librdkafka.properties")["sasl.password"]
    server = (tmp_path / "s" / "server.properties").read_text("utf-8")
    assert len(password) == 32
    assert password not in server
    users = read_initial_users(parse_properties(server)["oncelog.initial.users"])
    assert {name: set(credentials) for name, credentials in users.items()} == {"admin": {"SCRAM-SHA-512"}}
    for paragraph in server.strip().split("\n\n"):
        assert paragraph.startswith("# ")


def test_hosts_are_in_the_certificate_and_the_first_is_told(tmp_path: Path) -> None:
    made = set_up(tmp_path / "s", SetupRequest(hosts=("log.example", "192.0.2.7"), port=19092))
    assert made.bootstrap_servers == "log.example:19092"
    facts = facts_of((tmp_path / "s" / "broker.pem").read_text("utf-8"))
    assert {"log.example", "192.0.2.7", "localhost", "127.0.0.1", "::1"} <= set(facts.hosts)
    server = read(tmp_path / "s" / "server.properties")
    assert server["listeners"] == "CLIENTS://0.0.0.0:19092,BROKERS://0.0.0.0:19093"
    assert server["advertised.listeners"] == "CLIENTS://log.example:19092,BROKERS://log.example:19093"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    set_up(tmp_path / "s", SetupRequest())
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    with pytest.raises(SetupRefused, match="not empty"):
        set_up(tmp_path / "s", SetupRequest())
    issue_client(tmp_path / "s", "billing", LIFETIME)
    with pytest.raises(SetupRefused, match="exists already"):
        issue_client(tmp_path / "s", "billing", LIFETIME)
    assert {name: (tmp_path / "s" / name).read_bytes() for name in before} == before
    assert {path.name for path in tmp_path.iterdir()} == {"s"}


@pytest.mark.parametrize("name", ["broker", "ca", "a/b", "", "x" * 65, "a b"])
def test_names_that_would_be_another_file_or_another_principal_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupRefused, match="is not a valid user name"):
        set_up(tmp_path / "s", SetupRequest(user=name))
    assert list(tmp_path.iterdir()) == []


def test_a_renewed_certificate_keeps_its_names_and_its_authority(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    set_up(directory, SetupRequest(hosts=("log.example",)))
    path = directory / "broker.pem"
    old, authority = path.read_text("utf-8"), (directory / "ca.pem").read_text("utf-8")
    facts = renew(directory, (), datetime.timedelta(days=7))
    assert facts == facts_of(path.read_text("utf-8"))
    assert set(facts.hosts) == set(facts_of(old).hosts)
    assert path.read_text("utf-8") != old
    assert mode(path) == 0o600
    assert (directory / "ca.pem").read_text("utf-8") == authority
    assert renew(directory, ("other.example",), LIFETIME).hosts == ("other.example",)


def test_a_directory_without_its_authority_is_refused(tmp_path: Path) -> None:
    set_up(tmp_path / "s", SetupRequest())
    (tmp_path / "s" / "ca.key").write_text("nothing", "utf-8")
    with pytest.raises(SetupRefused, match="cannot be used"):
        renew(tmp_path / "s", (), LIFETIME)
