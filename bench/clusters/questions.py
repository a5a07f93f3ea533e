"""Questions of consumers to a cluster: committed offsets, and where a log ends.

Ours makes certain that nobody leads in its place before it answers, by the position of the tree; Apache Kafka answers
from memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.waiting import HANG_S, wait_until

from bench.peers import Served
from bench.report import Figures
from bench.workloads import percentile


def question_figures(cluster: Served, topic: str, count: int) -> Figures:
    """Medians and lowest tenths of ``count`` OffsetFetch requests, and of as many ListOffsets."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"of-{topic}", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    partition = TopicPartition(topic, 0, 0)
    try:
        wait_until(lambda: _has_committed(consumer, partition), "a committed offset")
        committed = _times_ms(lambda: consumer.committed([partition], timeout=HANG_S), count)
        ends = _times_ms(lambda: consumer.get_watermark_offsets(partition, timeout=HANG_S), count)
    finally:
        consumer.close()
    return {
        f"{name} p{share}, ms": percentile(took, share / 100)
        for name, took in (("committed offsets", committed), ("first and last offset", ends))
        for share in (10, 50)  # the tenth hardly feels other work on the machine
    }


def _has_committed(consumer: Consumer, partition: TopicPartition) -> bool:
    """Commit; False while the coordinator is not there yet."""
    try:
        consumer.commit(offsets=[partition], asynchronous=False)
    except KafkaException:
        return False
    return True


def _times_ms(ask: Callable[[], object], count: int) -> list[float]:
    """Sorted."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took)
