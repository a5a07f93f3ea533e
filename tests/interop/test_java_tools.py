"""Apache Kafka's own command-line tools and Java clients, and its dump of the files we write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncelog.testing import Broker
from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients import confluent, java, java_transactions
from tests.peers.clients.scenario import CODECS, Scenario
from tests.peers.jars import KAFKA_VERSION
from tests.waiting import HANG_S

pytestmark = [pytest.mark.slow, pytest.mark.java]


STATUSES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_SCENARIOS = {**java.SCENARIOS, **java_transactions.SCENARIOS}


@pytest.mark.parametrize("scenario", list(_SCENARIOS.values()), ids=list(_SCENARIOS))
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


def test_apache_kafka_decodes_our_transaction_log(broker: Broker) -> None:
    confluent.make_topic(broker.bootstrap_servers, "decoded")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "decoded"})
    producer.init_transactions(HANG_S)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("decoded", b"v")
        producer.flush(HANG_S)
        if commit:
            producer.commit_transaction(HANG_S)
        else:
            producer.abort_transaction(HANG_S)
    tools = KafkaTools(broker.bootstrap_servers)
    state = ",".join(map(str, sorted(broker.data_dir.glob("__transaction_state-*/*.log"))))
    dump = tools.run_bare("kafka-dump-log", "--transaction-log-decoder", "--files", state)
    assert dump.returncode == 0, dump.stderr
    statuses = re.findall(r'"transactionStatus":"?(\w+)', dump.stdout)
    if KAFKA_VERSION == "4.3.1":  # which prints numbers
        statuses = [STATUSES[int(status)] for status in statuses]
    assert statuses == [*STATUSES[:3], STATUSES[4], STATUSES[1], STATUSES[3], STATUSES[5]]
    assert '"transactionalId":"decoded"' in dump.stdout
    data = ",".join(map(str, sorted(broker.data_dir.glob("decoded-0/0*"))))
    dump = tools.run_bare("kafka-dump-log", "--print-data-log", "--files", data)
    assert dump.returncode == 0, dump.stderr
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in dump.stdout
    assert "endTxnMarker: ABORT coordinatorEpoch: 0" in dump.stdout
    assert "firstOffset: 2 lastOffset: 3 lastStableOffset: 4" in dump.stdout
