"""The command line of the registry, as processes and users start it: the blocks of schemas.md under "Serving"."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from oncelog.base.python_process import python_module
from oncelog.cli.main import invoke
from oncelog.testing import Broker
from tests.certificates import Authority
from tests.interop.registry.drill import request
from tests.peers.process import Process, free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def is_up(port: int) -> bool:
    try:
        return request(port, "GET", "/health", timeout_s=5)[0] == 200
    except OSError:
        return False


def test_an_export_is_imported_with_its_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schemas.jsonl"
    with Broker(registry=True) as broker:
        port = int(broker.registry_url.rpartition(":")[2])
        for number in (1, 2):
            body = {"schema": json.dumps({"type": "fixed", "name": "F", "size": number})}
            request(port, "POST", f"/subjects/s{number}/versions", body)
        request(port, "DELETE", "/subjects/s1")
        at = ["--bootstrap-server", broker.bootstrap_servers]
        assert invoke(["registry", "export", str(file), *at]) == 0
        assert invoke(["registry", "import", str(file), "--topic", "copies", *at]) == 0
        assert invoke(["registry", "import", str(file), "--topic", "copies", *at]) == 0
        capsys.readouterr()
        assert invoke(["registry", "export", "--topic", "copies", *at]) == 0
        assert capsys.readouterr().out == file.read_text()
        other = [line.replace('"id":2', '"id":1') for line in file.read_text().splitlines()]
        file.write_text("\n".join(other))
        assert invoke(["registry", "import", str(file), *at]) == 1
        assert "is here another schema (id 2, not 1)" in capsys.readouterr().err


def test_a_topic_that_is_not_there_is_not_exported(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        assert invoke(["registry", "export", "--topic", "none", "--bootstrap-server", broker.bootstrap_servers]) == 1
    assert "topic 'none': does not exist" in capsys.readouterr().err


def test_a_topic_with_several_partitions_or_with_retention_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        at = ["--bootstrap-server", broker.bootstrap_servers]
        for name, options, reason in (("two", ["--partitions", "2"], "exactly 1"), ("kept", [], "cleanup.policy")):
            assert invoke(["topic", "create", name, *options, *at]) == 0
            assert invoke(["registry", "export", "--topic", name, *at]) == 2
            assert reason in capsys.readouterr().err


@pytest.mark.integration
def test_a_registry_beside_the_broker_ends_with_it(tmp_path: Path) -> None:
    broker_port, port = free_ports(2)
    command = [
        *python_module("oncelog", "serve", "--data-dir", str(tmp_path / "data")),
        *("--listen", f"127.0.0.1:{broker_port}", "--registry", f"127.0.0.1:{port}"),
    ]
    process = Process(command, tmp_path / "broker.log")
    try:
        wait_until(lambda: is_up(port), lambda: f"the registry serves: {process.log_tail()}")
        assert request(port, "POST", "/subjects/s/versions", {"schema": '"int"'})[0] == 200
    finally:
        process.kill()
    wait_until(lambda: not is_up(port), "the registry ends with its broker")


@pytest.mark.integration
def test_a_registry_with_tls_passwords_and_permissions(tmp_path: Path) -> None:
    authority = Authority()
    identity = authority.broker("localhost").write(tmp_path)
    users, roles = tmp_path / "users.txt", tmp_path / "roles.txt"
    users.write_text("alice:one\nbob:two\n")
    users.chmod(0o600)
    roles.write_text("alice DeveloperWrite orders-*\nbob DeveloperRead *\n")
    port = free_ports(1)[0]
    context = authority.context()

    def status(user: str, method: str, path: str, body: object = None) -> int:
        headers = {"Authorization": f"Basic {b64encode(user.encode()).decode()}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(
                Request(f"https://localhost:{port}{path}", data, headers, method=method), context=context
            ) as response:
                return int(response.status)
        except HTTPError as error:
            return error.code

    def serves() -> bool:
        try:
            return status("alice:one", "GET", "/health") == 200
        except OSError:
            return False

    with Broker() as broker:
        command = [
            *python_module("oncelog", "registry", "serve", "--bootstrap-server", broker.bootstrap_servers),
            *("--listen", f"0.0.0.0:{port}", "--tls-cert", str(identity), "--tls-key", str(identity)),
            *("--auth", "basic", str(users), "--permissions", str(roles)),
        ]
        process = Process(command, tmp_path / "registry.log")
        try:
            wait_until(serves, lambda: f"the registry serves: {process.log_tail()}")
            schema = {"schema": '"int"'}
            assert status("alice:one", "POST", "/subjects/orders-value/versions", schema) == 200
            assert status("alice:one", "POST", "/subjects/other/versions", schema) == 403
            assert status("bob:two", "POST", "/subjects/orders-value/versions", schema) == 403
            assert status("bob:two", "GET", "/subjects/orders-value/versions/1") == 200
            assert status("bob:one", "GET", "/subjects") == 401
        finally:
            code = process.stop()
    assert code == 0
