"""Java's clients over TLS on a network that cuts every stream: requests and responses of all sizes arrive."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.testing import Broker
from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients.java import PATIENT
from tests.peers.cut_network import CutNetwork, cut_network

pytestmark = [pytest.mark.slow, pytest.mark.java]
SIZES = (1_000, 16_384, 40_000, 200_000, 900_000)
RECORDS = 10


def test_java_writes_and_reads_over_tls(tmp_path: Path) -> None:
    with cut_network(CutNetwork(seed=1)), Broker(security="tls") as broker:
        config = tmp_path / "client.properties"
        settings = broker.client_config(java=True) | {"max.request.size": "2000000", "linger.ms": "0"}
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        tools = KafkaTools(broker.bootstrap_servers)
        for size in SIZES:
            options = ["--topic", "t", "--num-records", str(RECORDS), "--record-size", str(size), "--throughput", "-1"]
            sent = tools.run("kafka-producer-perf-test", *options, "--command-config", str(config))
            assert f"{RECORDS} records sent" in sent.stdout, sent
        reading = ["--topic", "t", "--from-beginning", "--max-messages", str(RECORDS * len(SIZES)), *PATIENT]
        read = tools.run("kafka-console-consumer", *reading, "--command-config", str(config))
        assert sorted(map(len, read.stdout.split())) == sorted(SIZES * RECORDS), read.stderr
