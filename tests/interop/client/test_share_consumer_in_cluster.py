"""A share consumer of a cluster whose leaders and coordinators move and die."""

from __future__ import annotations

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, ClientConfig, Producer, ShareConsumer, ShareSettings
from oncelog.testing import Cluster
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow
RECORDS = 600
SETTINGS = ShareSettings(acknowledgement="explicit", max_records=10, max_wait_ms=50)
CONFIG = {"share.coordinator.state.topic.replication.factor": "3", "offsets.topic.replication.factor": "3"}


def test_no_accepted_record_comes_again_when_leaders_move_and_die() -> None:
    with Cluster(3, CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        with Client(servers, config=ClientConfig(retry_backoff_ms=20, request_timeout_ms=5_000)) as client:
            create_topic(client, NewTopic("t", partitions=3, replication_factor=3))
            alter_configs(client, ResourceType.GROUP, "g", change={"share.auto.offset.reset": "earliest"})
            with Producer(client) as producer:
                for number in range(RECORDS):
                    producer.send("t", b"%d" % number, partition=number % 3)
            accepted: dict[tuple[object, ...], None] = {}
            faults = [lambda: move(cluster), lambda: cluster.kill(3), lambda: cluster.restart(3)]
            with ShareConsumer(client, "g", ["t"], settings=SETTINGS) as consumer:
                for _ in range(HANG_S * 10):
                    records = consumer.poll(200)
                    assert not [record for record in records if record[:3] in accepted]
                    for record in records:
                        consumer.accept(record)
                    for result in consumer.commit():
                        if result.error is None:
                            offsets = range(result.first_offset, result.last_offset + 1)
                            accepted |= dict.fromkeys((*result.partition, offset) for offset in offsets)
                    if faults and len(accepted) > RECORDS // 4 * (4 - len(faults)):
                        faults.pop(0)()
                    if len(accepted) == RECORDS and not faults:
                        break
            assert (len(accepted), faults) == (RECORDS, [])


def move(cluster: Cluster) -> None:
    leader = cluster.leader("t", 0)
    cluster.elect("t", 0, next(broker for broker in (1, 2, 3) if broker != leader))
