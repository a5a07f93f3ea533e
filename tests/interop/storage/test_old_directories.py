"""Log directories that real old brokers wrote in message formats 0 and 1, read without a broker.

Format 1 is 1.0.2's, told to write as 0.10.2 did: 0.10.2.2 itself does not start on today's Java (it needs JAXB).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from oncelog.cli.main import invoke
from oncelog.legacy.tables.files import old_files
from oncelog.legacy.tables.rows import OldRow, rows_of
from tests.peers.old_kafka import OldKafka, run_old
from tests.peers.zookeeper import ZooKeeper

pytestmark = [pytest.mark.java, pytest.mark.slow]

CODECS = {"0.8.2.2": ("none", "gzip", "snappy"), "1.0.2": ("none", "gzip", "snappy", "lz4")}


@pytest.mark.parametrize("version", CODECS)
def test_every_codec_that_an_old_broker_writes(
    tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: dict[str, list[bytes]] = {}
    (tmp_path / "zookeeper").mkdir()
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        properties = {"log.segment.bytes": "32768", "num.partitions": "1"}
        if version == "1.0.2":
            properties["log.message.format.version"] = "0.10.2"
        with OldKafka(version, zookeeper.connect, tmp_path / "kafka", properties=properties) as kafka:
            for codec in CODECS[version]:
                values = [f"{codec} {number} {os.urandom(20).hex()}" for number in range(1000)]
                make = ["--zookeeper", zookeeper.connect, "--create", "--topic", f"t-{codec}"]
                make += ["--partitions", "1", "--replication-factor", "1"]
                assert run_old(version, "kafka.admin.TopicCommand", *make).returncode == 0
                options = ["--broker-list", kafka.bootstrap_servers, "--topic", f"t-{codec}", "--sync"]
                options += ["--request-required-acks", "-1"]
                if codec != "none":
                    options += [f"--compression-codec={codec}", "--batch-size", "50"]
                ran = run_old(version, "kafka.tools.ConsoleProducer", *options, stdin="\n".join(values) + "\n")
                assert ran.returncode == 0, ran.stderr
                sent[f"t-{codec}"] = [value.encode() for value in values]
            kafka.stop()
        files = old_files(tmp_path / "kafka" / "data", [])
    read: dict[str, list[OldRow]] = {}
    for file in files:
        if file.topic in sent:
            read.setdefault(file.topic, []).extend(rows_of(file.since(0)))
    assert {topic: [row.value for row in rows] for topic, rows in read.items()} == sent
    assert all([row.offset for row in rows] == list(range(1000)) for rows in read.values())
    has_time = version != "0.8.2.2"
    assert all((row.timestamp is not None) is has_time for rows in read.values() for row in rows)
    assert len(files) > len(sent)
    assert invoke(["audit", str(tmp_path / "kafka" / "data"), "--no-spark", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["findings"] == {}
    assert report["read"]["records"] == 1000 * len(sent)
