"""APIs 83 to 87, FindCoordinator's share keys and the records of ``__share_group_state``: beside Apache Kafka 4.4.0."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncelog.base.ids import SHARE_GROUP_STATE
from oncelog.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest, InitializeStateData
from oncelog.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from tests.conformance.share.state_histories import (
    MALFORMED,
    SETTINGS,
    Kafka,
    Ours,
    clear,
    compare,
    find_coordinators,
    key_of,
)
from tests.peers.apache_kafka import ApacheKafka, KafkaTools
from tests.peers.clients.sweep.wire import Wire
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]
SEEDS = 20
STEPS = 60
EMPTY: list[Any] = [
    ReadShareGroupStateRequest(group_id="", topics=[ReadStateData(partitions=[])]),
    ReadShareGroupStateRequest(group_id="g"),
    ReadShareGroupStateRequest(group_id="g", topics=[ReadStateData()]),
    InitializeShareGroupStateRequest(group_id="", topics=[InitializeStateData()]),
    InitializeShareGroupStateRequest(group_id="g"),
]


def test_answers_and_records_are_apache_kafkas(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "kafka", properties=SETTINGS) as running, Wire(running.bootstrap_servers) as wire:
        kafka, ours = Kafka(wire, running.data_directory), Ours()
        for broker in (kafka, ours):  # Apache Kafka makes the topic beside the request
            wait_until(partial(_finds, broker), "the topic")
        assert find_coordinators(ours, list(MALFORMED)) == find_coordinators(kafka, list(MALFORMED))
        for message in EMPTY:
            assert ours.ask(message, 0).results == kafka.ask(message, 0).results == []
        for seed in range(SEEDS):
            compare(kafka, ours, seed, STEPS)
            for broker in (kafka, ours):
                clear(broker)
        records = ours.records()
        assert records == kafka.records()
        assert len(records) > SEEDS * STEPS // 3


def test_apache_kafka_decodes_our_records(tmp_path: Path) -> None:
    ours = Ours()
    find_coordinators(ours, [key_of(ours).coordinator_key])
    for _ in range(5):
        compare_alone(ours)
    (tmp_path / "00000000000000000000.log").write_bytes(
        ours.driver.files.content(f"{SHARE_GROUP_STATE}-0/00000000000000000000.log")
    )
    log = str(tmp_path / "00000000000000000000.log")
    dump = KafkaTools("").run_bare("kafka-dump-log", "--share-group-state-decoder", "--files", log)
    assert dump.returncode == 0, dump.stderr
    lines = [line for line in dump.stdout.splitlines() if " payload: " in line]
    values = [line.split(" payload: ", 1)[1] for line in lines]
    records = ours.records()
    assert len(values) == len(records)
    for text, (_, _, _, content) in zip(values, records, strict=True):
        if content is None:
            assert text == "<DELETE>"
            continue
        data = json.loads(text)["data"]
        assert data["snapshotEpoch"] == content.snapshot_epoch
        assert data["startOffset"] == content.start_offset
        assert data.get("deliveryCompleteCount", -1) == content.delivery_complete_count
        assert [tuple(batch.values()) for batch in data["stateBatches"]] == list(map(tuple, content.batches))


def _finds(broker: Kafka | Ours) -> bool:
    """True once the coordinator is found and has loaded."""
    return find_coordinators(broker, [key_of(broker).coordinator_key]) == [(0, "")] and clear(broker)


def compare_alone(ours: Ours) -> None:
    """One history without a peer."""
    from tests.conformance.share.state_histories import History, carry_out

    history = History(7)
    for _ in range(40):
        carry_out(ours, *history.step())
    clear(ours)
