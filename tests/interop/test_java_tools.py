"""Apache Kafka's own command-line tools and Java clients, and its dump of the files we write."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncelog.testing import Broker
from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients import confluent, java
from tests.peers.clients.scenario import CODECS, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.mark.parametrize("scenario", list(java.SCENARIOS.values()), ids=list(java.SCENARIOS))
def test_the_tool_sees_what_it_expects(scenario: Scenario, broker: Broker) -> None:
    scenario(broker.bootstrap_servers)


def test_apache_kafka_dumps_our_segments_and_indexes(tmp_path: Path) -> None:
    total = 0
    with Broker(data_dir=tmp_path) as broker:
        confluent.make_topic(broker.bootstrap_servers, "dumped", index_interval_bytes="100")
        for codec in CODECS:
            config = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec}
            producer = Producer({**config, "enable.idempotence": True, "log_level": 0})
            for _ in range(5):
                total += len(confluent.produce_all(producer, "dumped", [b"v" * 50] * 20, key=b"k"))
    files = sorted((tmp_path / "dumped-0").glob("0*"))
    assert {path.suffix for path in files} >= {".log", ".index", ".timeindex", ".snapshot"}
    listed = ",".join(str(path) for path in files if path.suffix != ".txnindex")
    dump = KafkaTools("").run_bare("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", listed)
    assert dump.returncode == 0, dump.stderr
    assert dump.stdout.count("| offset: ") == total
    assert "Found timestamp mismatch" not in dump.stdout
    assert "Mismatches in" not in dump.stdout
    assert "isvalid: false" not in dump.stdout
    assert dump.stdout.count("producerId: ") >= len(CODECS)


def test_apache_kafka_decodes_our_offsets_topic(broker: Broker) -> None:
    confluent.commit_and_resume(broker.bootstrap_servers)
    logs = sorted(broker.data_dir.glob("__consumer_offsets-*/*.log"))
    tools = KafkaTools(broker.bootstrap_servers)
    dump = tools.run_bare("kafka-dump-log", "--offsets-decoder", "--files", ",".join(str(path) for path in logs))
    assert dump.returncode == 0, dump.stderr
    assert '"group":"ck-commit-group"' in dump.stdout
    assert '"offset":4,"leaderEpoch":-1,"metadata":"so far' in dump.stdout
