"""Every command that asks a broker, over TLS and each way of logging in, told by one file; ``read_arrow`` and asyncio,
too. No secret is printed, whatever is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import oncelog
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.blocking import Client
from oncelog.client.config import ClientConfig
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.security.properties import Setting, properties_text
from oncelog.testing import Broker
from tests.interop.cli.conftest import Run

pytestmark = pytest.mark.slow

USER, PASSWORD = "alice", 'alice "quoted" = secret\\'
COMMANDS: Final = (
    ("topic", "create", "flights", "--partitions", "2"),
    ("topic", "list", "--json"),
    ("topic", "describe", "flights", "--json"),
    ("topic", "alter", "flights", "--config", "retention.ms=1000000"),
    ("topic", "elect", "flights"),
    ("cluster", "status", "--json"),
    ("group", "list", "--json"),
    ("acl", "list", "--json"),
    ("acl", "explain", "--topic", "flights", "--json"),
    ("txn", "list", "--json"),
    ("txn", "find-hanging", "--json"),
    ("txn", "explain", "--topic", "flights", "--json"),
    ("txn", "producers", "flights", "--json"),
    ("txn", "abort", "--all-hanging", "--yes"),
)


@pytest.fixture(params=["scram", "plain", "mtls", "oauth"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker with one user, who may do everything."""
    with Broker(security=request.param) as broker:
        broker.add_user(USER, PASSWORD if request.param in ("scram", "plain") else None)
        broker.allow(USER)
        yield broker


@pytest.fixture
def config_file(broker: Broker, tmp_path: Path) -> Path:
    """The settings that Java's tools are given, and ours."""
    path = tmp_path / "client.properties"
    settings = [Setting(key, value) for key, value in broker.client_config(USER, java=True).items()]
    path.write_text(properties_text("", settings), encoding="utf-8")
    return path


def secrets_of(broker: Broker) -> list[str]:
    """The secrets of a file: passwords and tokens, and a line that has one."""
    java = broker.client_config(USER, java=True)
    result = [PASSWORD, "alice-secret", 'password="']
    if "sasl.oauthbearer.token.endpoint.url" in java:
        result.append(Path(java["sasl.oauthbearer.token.endpoint.url"].removeprefix("file://")).read_text())
    return result


def test_commands_log_in_by_one_file(broker: Broker, config_file: Path, run_at: Callable[[str], Run]) -> None:
    run, secrets = run_at("localhost:9092"), secrets_of(broker)

    def ask(*arguments: str, stdin: bytes = b"") -> str:
        ran = run(*arguments, "--command-config", str(config_file), stdin=stdin)
        assert ran.code == 0, (arguments, ran)
        assert not [secret for secret in secrets if secret in ran.out + ran.err], arguments
        return ran.out

    for command in COMMANDS:
        ask(*command)
    ask("produce", "flights", stdin=b"one\ntwo\n")
    read = ask("consume", "flights", "--from", "beginning", "--exit", "--group", "readers")
    assert sorted(read.splitlines()) == ["one", "two"]
    assert "readers" in ask("group", "list")
    ask("group", "describe", "readers", "--json")
    ask("group", "delete", "readers")
    ask("topic", "delete", "flights")


def test_programs_log_in_by_the_same_keys(broker: Broker) -> None:
    java = broker.client_config(USER, java=True)
    servers = java["bootstrap.servers"]

    async def write() -> None:
        async with AsyncClient(servers, config=ClientConfig.from_properties(java)) as client:
            await client.topic("clicks", create=True)

    asyncio.run(write())
    with Client(servers, config=java) as client:
        batch = build_batch([Record(-1, 1_700_000_000_000, None, b"v")] * 3)
        client.produce(TopicPartition(TopicName("clicks"), 0), batch)
    table = oncelog.read_arrow("clicks", bootstrap_servers=servers, config=java).to_table()
    assert table.column("value").to_pylist() == [b"v"] * 3
    settings = repr(ClientConfig.from_properties(java))
    assert not [secret for secret in secrets_of(broker) if secret in settings]
