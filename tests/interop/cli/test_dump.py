"""``log dump`` over the directory of a broker that has run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.main import invoke
from oncelog.client.blocking import Client
from oncelog.client.blocking.producer import Producer
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker


@pytest.mark.slow
def test_everything_a_broker_writes_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(data_dir=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        with Producer(client, create_topics=True) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, partition=0)
        commit_offsets(client, "g", {TopicPartition(TopicName("t"), 0): Committed(42)})
    assert invoke(["log", "dump", "-r", "--json", str(tmp_path)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    values = [row["value"] for row in rows if row["type"] == "record" and "/t-0/" in row["file"]]
    assert values == [str(number) for number in range(100)]
    assert [row["committed"] for row in rows if row.get("kind") == "offset"] == [42]
    assert {"properties", "leader_epoch", "producer", "checkpoint"} <= {row["type"] for row in rows}
