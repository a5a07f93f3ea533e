"""A source of 2018, with its messages in the format of 2016: they arrive as records of today."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client.blocking import Client
from oncelog.mirror.verification import verify_copies
from tests.interop.mirror.conftest import FAST, Side, mirror, settings_of
from tests.peers.old_kafka import OldKafka, run_old
from tests.peers.zookeeper import ZooKeeper

VERSION = "1.0.2"
pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.peer(f"kafka-{VERSION}")]


@pytest.fixture
def old(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Side]:
    with OldKafka(VERSION, f"{zookeeper.connect}/{tmp_path.name}") as kafka:
        side = Side.__new__(Side)
        side.broker = kafka  # type: ignore[assignment]  # what is used of it both have
        side.client = Client(kafka.bootstrap_servers, config=FAST)
        with side.client:
            yield side


@pytest.mark.parametrize("message_format", ["0.9.0", "0.10.2", "1.0"])
def test_messages_of_every_format_arrive(old: Side, target: Side, message_format: str) -> None:
    old.create("t", configs={"message.format.version": message_format})
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4"):
        lines = [f"{codec}-{number}" for number in range(20)]
        options = ["--broker-list", old.broker.bootstrap_servers, "--topic", "t", "--compression-codec", codec]
        assert not run_old(VERSION, "kafka.tools.ConsoleProducer", *options, stdin="\n".join(lines)).returncode
        sent += lines
    mirror(old, target, topics=re.compile("t"), groups=None)
    assert target.values("a.t") == sent
    times = {record.timestamp > 0 for record in target.records("a.t")}
    assert times == {message_format != "0.9.0"}
    settings = settings_of(old, target)

    async def verify() -> list[bool]:
        rows = verify_copies(settings.source, settings.target, re.compile("t"), 1000)
        return [row.is_right async for row in rows]

    assert asyncio.run(verify()) == [True]
