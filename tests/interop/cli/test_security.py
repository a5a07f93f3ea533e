"""``oncelog security init``, the broker it is for, and everybody who is given its files."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncelog.base.notation.java_properties import parse_properties
from oncelog.cli.main import invoke
from tests.interop.cli.conftest import Run
from tests.peers.apache_kafka import KafkaTools
from tests.peers.process import Process, free_ports
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(params=[[], ["--mtls"]], ids=["password", "certificate"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The files of a broker that runs."""
    directory = tmp_path / "secured"
    assert invoke(["security", "init", str(directory), "--port", str(free_ports(1)[0]), *request.param]) == 0
    program = str(Path(sys.executable).with_name("oncelog"))
    process = Process([program, "serve", "--config", str(directory / "server.properties")], tmp_path / "broker.log")
    try:
        wait_until(lambda: is_ready(process) or not process.running, process.log_tail)
        assert is_ready(process), process.log_tail()
        yield directory
    finally:
        process.kill()


def is_ready(process: Process) -> bool:
    return " ready on " in process.log_tail()


def read(path: Path) -> dict[str, str]:
    return parse_properties(path.read_text("utf-8"))


def test_commands_and_clients_log_in_by_the_files(secured: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read(secured / "librdkafka.properties")
    monkeypatch.setenv("ONCELOG_COMMAND_CONFIG", str(secured / "client.properties"))
    servers = config["bootstrap.servers"]
    for arguments in (
        ("topic", "create", "clicks"),
        ("topic", "list"),
        ("cluster", "status"),
        ("group", "list"),
        ("txn", "find-hanging"),
        ("acl", "list"),
    ):
        ran = run(*arguments, "--bootstrap-server", servers)
        assert ran.code == 0, (arguments, ran)
    assert run("produce", "clicks", "--bootstrap-server", servers, stdin=b"ours\n").code == 0
    producer = Producer({**config, "log_level": 0})
    producer.produce("clicks", b"theirs")
    assert producer.flush(HANG_S) == 0
    ran = run("consume", "clicks", "--from", "beginning", "--exit", "--bootstrap-server", servers)
    assert ran.out.splitlines() == ["ours", "theirs"]


def test_a_renewed_certificate_is_taken_up(secured: Path) -> None:
    host, _, port = read(secured / "client.properties")["bootstrap.servers"].rpartition(":")
    del host

    def shown() -> str:
        with socket.create_connection(("127.0.0.1", int(port))) as plain:
            context = ssl.create_default_context(cafile=str(secured / "ca.pem"))
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                der = secure.getpeercert(binary_form=True)
                assert der is not None
                return ssl.DER_cert_to_PEM_cert(der)

    before = shown()
    assert before.strip() in (secured / "broker.pem").read_text("utf-8")
    assert invoke(["security", "renew", str(secured)]) == 0
    wait_until(lambda: shown() != before, "the new certificate")
    assert shown().strip() in (secured / "broker.pem").read_text("utf-8")


@pytest.mark.java
def test_java_s_console_producer_logs_in_by_its_file(secured: Path) -> None:
    path = secured / "client.properties"
    tools = KafkaTools(read(path)["bootstrap.servers"])
    ran = tools.run("kafka-console-producer", "--topic", "clicks", "--command-config", str(path), stdin="java\n")
    assert ran.returncode == 0, ran.stderr
    ran = tools.run(
        "kafka-console-consumer", "--topic", "clicks", "--command-config", str(path), "--from-beginning",
        "--max-messages", "1",
    )  # fmt: skip
    assert ran.stdout == "java\n", ran.stderr
