"""Records in flight of a share group over three brokers: each leader tells its own."""

from __future__ import annotations

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.explain.targets import explain_group
from oncelog.admin.groups import describe_group, share_offsets
from oncelog.admin.share_deliveries import as_led, share_deliveries
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, ShareConsumer, ShareSettings
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Cluster
from tests.interop.admin.conftest import FAST
from tests.interop.admin.lab import at
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
PARTITIONS, RECORDS = 6, 10


def test_each_leader_tells_who_holds_its_records() -> None:
    explicit = ShareSettings(acknowledgement="explicit")
    with Cluster(3) as cluster, Client(cluster.bootstrap_servers, config=FAST) as client:
        create_topic(client, NewTopic("jobs", partitions=PARTITIONS, replication_factor=3))
        alter_configs(client, ResourceType.GROUP, "g", change={"share.auto.offset.reset": "earliest"})
        now_ms = client.system.wall_ms()
        for index in range(PARTITIONS):
            client.produce(at("jobs", index), build_batch([Record(i, now_ms, None, b"job") for i in range(RECORDS)]))
        with ShareConsumer(client, "g", ["jobs"], settings=explicit) as consumer:
            held = []
            wait_until(lambda: len(held.extend(consumer.poll(200)) or held) == PARTITIONS * RECORDS, "all records")
            assert len({info.leader for info in client.topic("jobs").partitions.values()}) == 3
            offsets = share_offsets(client, "g")
            rows, unanswered = share_deliveries(client, "g", [row.topic_partition for row in offsets])
            [member] = describe_group(client, "g").members
            assert unanswered == []
            assert [(row.partition, row.source, row.acquired) for row in rows] == [
                (index, "leader", RECORDS) for index in range(PARTITIONS)
            ]
            assert {batch.member_id for row in rows for batch in row.batches} == {member.member_id}
            # No coordinator knows a start offset before something is acknowledged.
            assert {row.start_offset for row in offsets} == {None}
            assert {(row.start_offset, row.lag) for row in as_led(describe_group(client, "g"), offsets, rows)} == {
                (0, RECORDS)
            }
            report = explain_group(client, "g")
            assert f"{PARTITIONS * RECORDS} offsets to deliver" in report.summary
            assert report.findings == []
        rows, _ = share_deliveries(client, "g", [row.topic_partition for row in offsets])
        assert [batch.state for row in rows for batch in row.batches if batch.state == "acquired"] == []
