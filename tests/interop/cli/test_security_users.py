"""``oncelog security user``: who logs in by SCRAM, and where passwords come from and do not go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.client.blocking import Client
from oncelog.client.errors import AuthenticationFailed
from oncelog.testing import Broker
from tests.interop.cli.conftest import Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security="scram") as broker:
        yield broker


@pytest.fixture
def run(broker: Broker, run_at: Callable[[str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """As a user who may do everything."""
    broker.add_user("root", "root-secret")
    broker.allow("root")
    path = tmp_path / "client.properties"
    java = broker.client_config("root", java=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in java.items()))
    monkeypatch.setenv("ONCELOG_COMMAND_CONFIG", str(path))
    return run_at(broker.bootstrap_servers)


def can_log_in(broker: Broker, user: str, password: str, mechanism: str) -> bool:
    root = broker.client_config("root")
    config = root | {"sasl.username": user, "sasl.password": password, "sasl.mechanism": mechanism}
    try:
        with Client(broker.bootstrap_servers, config=config) as client:
            client.refresh()
    except AuthenticationFailed:
        return False
    return True


def test_a_user_is_added_changed_and_deleted(
    run: Run, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    path.write_text("from a file: ü=,\nanother line\n")
    ran = run("security", "user", "add", "al=ice", "--password-file", str(path))
    assert (ran.code, ran.out) == (0, "User:al=ice logs in by SCRAM-SHA-256 and SCRAM-SHA-512\n"), ran
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert can_log_in(broker, "al=ice", "from a file: ü=,", mechanism)
    monkeypatch.setenv("NEW_PASSWORD", "of the environment")
    ran = run(
        "security", "user", "add", "al=ice", "--password-env", "NEW_PASSWORD", "--mechanism", "SCRAM-SHA-512",
        "--iterations", "5000", "--json",
    )  # fmt: skip
    assert [row["iterations"] for row in json.loads(ran.out)] == [8192, 5000]
    assert not can_log_in(broker, "al=ice", "from a file: ü=,", "SCRAM-SHA-512")
    assert can_log_in(broker, "al=ice", "of the environment", "SCRAM-SHA-512")
    assert "al=ice  SCRAM-SHA-512        5000\n" in run("security", "user", "list").out
    ran = run("security", "user", "delete", "al=ice", "--mechanism", "SCRAM-SHA-256")
    assert ran.out == "deleted: User:al=ice by SCRAM-SHA-256\n"
    ran = run("security", "user", "delete", "al=ice", "root", "nobody")
    assert (ran.code, "no credential of nobody; nothing was deleted" in ran.err) == (2, True)
    assert run("security", "user", "delete", "al=ice").code == 0
    assert not can_log_in(broker, "al=ice", "of the environment", "SCRAM-SHA-512")
    assert "al=ice" not in run("security", "user", "list").out


def test_a_password_from_stdin(run: Run, broker: Broker) -> None:
    assert run("security", "user", "add", "bob", "--password-file", "-", stdin=b"piped\r\n").code == 0
    assert can_log_in(broker, "bob", "piped", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no terminal to ask for the password"),
        (("--password-env", "NOT_SET_ANYWHERE"), "the password is empty"),
        (("--password-file", "/nowhere"), "cannot read /nowhere"),
        (("--password-file", "-", "--password-env", "HOME"), "--password-file or --password-env, not both"),
        (("--password-env", "HOME", "--iterations", "100"), "4096"),
        (("--password", "hush"), "No such option"),
    ],
)
def test_refusals(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    ran = run("security", "user", "add", "carol", *arguments)
    assert ran.code == 2
    assert sentence in ran.err
    assert "hush" not in ran.err


def test_a_user_without_rights_learns_nothing(run: Run, broker: Broker, tmp_path: Path) -> None:
    broker.add_user("guest", "guest-secret")
    path = tmp_path / "guest.properties"
    java = broker.client_config("guest", java=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in java.items()))
    for command in (("list",), ("delete", "root")):
        ran = run("security", "user", *command, "--command-config", str(path))
        assert (ran.code, ran.out) == (1, "")
        assert "CLUSTER_AUTHORIZATION_FAILED" in ran.err
