"""Three brokers as processes, records deleted in between: what was deleted stays so, whoever leads next."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster.brokers import Cluster
from tests.cluster.test_processes import TOPIC, everybody_goes_on, start_loads
from tests.load import QUICK, Load
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.slow
_RETRIED = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)


def delete_what_is_there(cluster: Cluster, load: Load) -> int:
    """Delete the records of partition 0 before the last that was acknowledged; where its log begins then."""
    offset = next(record.offset for record in reversed(load.acknowledged[0]) if record.offset is not None)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUICK})
    starts: list[int] = []

    def is_done() -> bool:
        records = admin.delete_records([TopicPartition(TOPIC, 0, offset)], request_timeout=HANG_S)
        try:
            starts.extend(future.result(HANG_S).low_watermark for future in records.values())
        except KafkaException as failure:
            if failure.args[0].code() not in _RETRIED:
                raise
        return bool(starts)

    wait_until(is_done, f"the deletion before {offset}")
    assert starts == [offset]
    return offset


def numbers_from_the_start(cluster: Cluster, start: int) -> list[int]:
    """The numbers of the records in partition 0, of which the first is the one at ``start``."""
    settings = {"group.id": "all", "enable.partition.eof": True, "auto.offset.reset": "error", **QUICK}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), HANG_S, cached=False)
        assert low == start
        consumer.assign([TopicPartition(TOPIC, 0, start)])
        results: list[int] = []
        while True:
            for message in consumer.consume(1_000, 1):
                error = message.error()
                if error is None:
                    results.append(int((message.value() or b"").split(b":")[1]))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return results
                else:
                    assert error.code() in _RETRIED, error
    finally:
        consumer.close()


def test_deleted_records_stay_deleted_when_leaders_change(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        (load,) = loads = start_loads(cluster, 1)
        for _ in range(2):
            everybody_goes_on(loads)
            delete_what_is_there(cluster, load)
            leader = cluster.leader(TOPIC, 0)
            cluster.kill([leader])
            cluster.wait_for_other_leader(TOPIC, 0, leader)
            everybody_goes_on(loads)
            start = delete_what_is_there(cluster, load)
            cluster.start()  # the one that was away has the records that were deleted meanwhile
            cluster.wait_healthy()
        cluster.kill()
        cluster.start()
        everybody_goes_on(loads)
        load.stop()
        cluster.wait_healthy()
        for _ in cluster.ids[1:]:  # by two leaders
            numbers = numbers_from_the_start(cluster, start)
            assert numbers == sorted(set(numbers))
            kept = {
                record.number for record in load.acknowledged[0] if record.offset is not None and record.offset >= start
            }
            assert kept <= set(numbers)
            assert cluster.stop(cluster.leader(TOPIC, 0)) == 0
            cluster.start()
            cluster.wait_healthy()
        assert load.failed == []
