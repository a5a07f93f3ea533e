"""Fetch requests for administration: a few bytes of many partitions, or a range of one, answered in whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.consumed_records import ConsumedRecord, read_fetched
from oncelog.client.machine.metadata import ClusterView
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.whole_batches import whole_batches
from oncelog.client.programs import Cluster, Program
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

_UNREADABLE: Final = -1
_RANGE_BYTES: Final = 4 * MIB


def fetch_request(
    view: ClusterView,
    positions: Mapping[TopicPartition, int],
    partition_bytes: int,
    max_bytes: int = 64 * MIB,
    *,
    read_committed: bool = False,
) -> FetchRequest:
    """A Fetch of each partition from its position on, which a broker answers at once."""
    topics: dict[TopicName, FetchTopic] = {}
    for partition, offset in positions.items():
        topic = topics.get(partition.topic)
        if topic is None:
            topic_id = bytes(view.topic_id(partition.topic))
            topic = topics[partition.topic] = FetchTopic(topic=partition.topic, topic_id=topic_id)
        topic.partitions.append(
            FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
        )
    return FetchRequest(
        # The broker answers at once, even if there is nothing to read.
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=list(topics.values()),
    )


def partitions_in(
    view: ClusterView, answer: FetchResponse, partitions: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    requested = set(partitions)
    names = view.topic_ids({partition.topic for partition in requested}) or {}
    for topic in answer.responses:
        name = TopicName(topic.topic) if topic.topic else names.get(bytes(topic.topic_id))
        for data in topic.partitions:
            partition = None if name is None else TopicPartition(name, data.partition_index)
            if partition in requested:
                yield partition, data


def fetched_in(view: ClusterView, answer: FetchResponse, positions: Mapping[TopicPartition, int]) -> list[Fetched]:
    """The whole batches of each partition; the error code is −1 if the bytes are not batches."""
    results = []
    for partition, data in partitions_in(view, answer, positions):
        records = memoryview(data.records or b"")  # type: ignore[arg-type]  # decoded ones are buffers
        position = positions[partition]
        error_code, size, following = data.error_code, 0, position
        try:
            size, following = whole_batches(records, position)
        except PeerError:
            error_code = error_code or _UNREADABLE
        aborted = [
            (transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions or ()
        ]
        bounds = data.high_watermark, data.last_stable_offset, data.log_start_offset
        results.append(Fetched(partition, records[:size], *bounds, aborted, error_code, position, following))
    return results


def read_range(
    cluster: Cluster,
    partition: TopicPartition,
    begin: int,
    end: int,
    max_bytes: int,
    add: Callable[[Iterable[ConsumedRecord]], None],
) -> Program[bool]:
    """Hand the committed records from ``begin`` to ``end`` to ``add``. Returns False if there are more than about
    ``max_bytes`` of them. Raises ClientError."""
    position, size = begin, 0

    def fetch() -> Program[Fetched]:
        leader = yield from cluster.leader(partition)
        message = fetch_request(cluster.view, {partition: position}, _RANGE_BYTES, _RANGE_BYTES, read_committed=True)
        answer = yield from cluster.request(message, broker=leader)
        fetched = next(iter(fetched_in(cluster.view, answer, {partition: position})), None)
        code = answer.error_code if fetched is None else fetched.error_code
        if fetched is None or code:
            raise BrokerRefused(code, str(partition))
        # A throttled answer is empty; taken for the end of the log it would hide the last records.
        if not fetched.records and answer.throttle_time_ms:
            raise BrokerRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(partition))
        return fetched

    while position < end and size <= max_bytes:
        fetched = yield from cluster.retrying(fetch)
        if not fetched.records:
            break
        add(read_fetched(fetched, read_committed=True))
        position = fetched.next_offset
        size += len(fetched.records)
    return size <= max_bytes
