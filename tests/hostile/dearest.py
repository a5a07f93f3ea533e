"""``python -m tests.hostile --dearest``: what the largest legal request of every API costs a real server.

The rule: every array of every API as long as the limits allow (``largest.py``), in two surroundings: *wide*, a broker
whose topic has 10,000 partitions with records in some, and *many*, one where 10,000 topics, groups and transactional
ids have the names that the requests use; and small requests whose answers are large there. Each is measured on its own
connection: what the server's loop ran for while another client waited for the answer to something small, in processor
time, and by how much its memory rose at most. What changes the broker for those behind it comes last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from oncelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.hostile.largest import KNOWN, Largest, all_largest, short_name
from tests.hostile.process import Server, Waits, read_answer
from tests.peers.clients.sweep.wire import Wire, batch

EXISTING: Final = 10_000
"""Partitions, topics, groups and ids: as many partitions as one request may create."""
ATTEMPTS: Final = 3
MUCH_S: Final = 0.1
SENDERS: Final = 50
DESTRUCTIVE: Final = ("CreatePartitions", "CreateTopics", "DeleteGroups", "DeleteTopics", "DeleteRecords")
"""Later is more destructive."""
CHANGES: Final = ("Produce", "WriteTxnMarkers", *DESTRUCTIVE)
"""Requests that cost less, or more, the second time."""


class Cost(NamedTuple):
    """The cost of one request."""

    title: str
    frame_bytes: int
    answer_bytes: int
    """0: the connection was closed."""
    wait_s: float
    """Longest time that the loop ran for while another client waited."""
    total_s: float
    """Time that the loop ran for until the answer was read."""
    memory: int
    """By how much the resident memory was at most larger than before the first request."""


def measured(server: Server, title: str, frame: bytes, before: int) -> Cost:
    """Send one frame and read the answer away; ``before``: bytes of memory to compare with."""
    server.forget_peak()
    ran_s = server.ran_s()
    with Waits(server) as others, server.connect() as connection:
        connection.sendall(frame)
        answer_bytes = read_answer(connection)
    total_s = server.ran_s() - ran_s
    return Cost(title, len(frame), answer_bytes, others.worst_s, total_s, server.memory() - before)


def all_costs(apis: Iterable[str] = ()) -> Iterator[Cost]:
    """Measure them all, or those of some APIs."""
    chosen = set(apis)
    for surroundings, (prepare, small) in SURROUNDINGS.items():
        with Server(partitions=EXISTING if surroundings == "wide" else 1) as server:
            prepare(server)
            before = server.memory("VmRSS")
            largest = sorted(all_largest(server.topic_id), key=_when)
            titled = [(item.api, item.title, item.frame) for item in largest]
            for api, title, frame in [*small(), *titled]:
                if not chosen or api in chosen:
                    time.sleep(0.05)  # what the one before set off comes to rest
                    attempts = 1 if api in CHANGES else ATTEMPTS
                    yield _best(server, f"{surroundings}: {title}", frame, attempts, before)


def _best(server: Server, title: str, frame: bytes, attempts: int, before: int) -> Cost:
    """A machine that is busy with something else is no finding: the least of a few, where the first is much."""
    cost = measured(server, title, frame, before)
    for _ in range(1, attempts):
        if cost.wait_s < MUCH_S:
            break
        cost = min(cost, measured(server, title, frame, before), key=lambda item: item.wait_s)
    return cost


def _when(largest: Largest) -> int:
    return DESTRUCTIVE.index(largest.api) if largest.api in DESTRUCTIVE else -1


def _wide(server: Server) -> None:
    """Records in a thousand of the partitions, offsets of all of them in a group."""
    with Wire(server.bootstrap_servers) as wire:
        records = bytes(batch(b"v"))
        for start in range(0, 1000, 100):
            data = [PartitionProduceData(index=start + number, records=records) for number in range(100)]
            topic = TopicProduceData(name=KNOWN, partition_data=data)
            wire.call(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
        _coordinators(wire)
        offsets = [OffsetCommitRequestPartition(partition_index=number) for number in range(EXISTING)]
        commit = OffsetCommitRequestTopic(name=KNOWN, partitions=offsets)
        request = OffsetCommitRequest(group_id=KNOWN, generation_id_or_member_epoch=-1, topics=[commit])
        answer = wire.call(request, 8)
        assert {partition.error_code for partition in answer.topics[0].partitions} == {0}


def _many(server: Server) -> None:
    """Topics, groups and transactional ids of the names that the requests have."""
    names = [short_name(number) for number in range(EXISTING)]
    with Wire(server.bootstrap_servers) as wire:
        for start in range(0, EXISTING, 1000):
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names[start:][:1000]
            ]
            created = wire.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 4)
            assert {topic.error_code for topic in created.topics} <= {0}
        _coordinators(wire)
        offset = OffsetCommitRequestTopic(name="a", partitions=[OffsetCommitRequestPartition(partition_index=0)])
        commits = (
            OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=-1, topics=[offset]) for name in names
        )
        ids = (InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000) for name in names)
    senders = [Wire(server.bootstrap_servers) for _ in range(SENDERS)]
    _spread(senders, commits, 8)
    _spread(senders, ids, 4)


def _spread(senders: list[Wire], requests: Iterator[Any], version: int) -> None:
    """Ask on several connections at a time: each of these waits for the disk."""
    while requested := list(zip(senders, requests, strict=False)):
        for wire, request in requested:
            wire.send(request, version)
        for wire, request in requested:
            wire.receive(request, version)


def _coordinators(wire: Wire) -> None:
    """The topics of the coordinators are there and loaded."""
    for kind in (0, 1):
        while wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[KNOWN]), 4).coordinators[0].error_code:
            pass
    wire.call(AddOffsetsToTxnRequest(transactional_id=KNOWN, group_id=KNOWN), 3)


def _asked(request: Any, version: int, text: str = "everything") -> tuple[str, str, bytes]:
    api = type(request).__name__.removesuffix("Request")
    header = RequestHeader(request.API_KEY, version, 1, "l")
    return api, f"{api} v{version}, {text}", join_chunks(encode_request(header, request))


def _small() -> list[tuple[str, str, bytes]]:
    """Small requests with large answers."""
    everything = OffsetFetchRequestGroup(group_id=KNOWN, topics=None)
    broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    return [
        _asked(MetadataRequest(topics=None), 12),
        _asked(DescribeLogDirsRequest(topics=None), 4),
        _asked(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=KNOWN)], response_partition_limit=2000), 0),
        _asked(DescribeConfigsRequest(resources=[broker], include_documentation=True), 4),
        _asked(OffsetFetchRequest(groups=[everything]), 8),
        _asked(ListGroupsRequest(), 4),
        _asked(ListTransactionsRequest(), 1),
        _asked(ElectLeadersRequest(topic_partitions=None, timeout_ms=1000), 2),
    ]


def _wide_only() -> list[tuple[str, str, bytes]]:
    """Beside them, records for every partition at once, and a Fetch of all that finds nothing and waits."""
    records = bytes(batch(b"v"))
    data = [PartitionProduceData(index=number, records=records) for number in range(EXISTING)]
    topic = TopicProduceData(name=KNOWN, partition_data=data)
    return [
        *_small(),
        *(
            _asked(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic]), 9, f"records, acks={acks}")
            for acks in (1, -1)
        ),
    ]


SURROUNDINGS: Final[dict[str, tuple[Callable[[Server], None], Callable[[], list[tuple[str, str, bytes]]]]]] = {
    "wide": (_wide, _wide_only),
    "many": (_many, _small),
}


def table(costs: Iterable[Cost]) -> Iterator[str]:
    """One line each."""
    yield f"{'wait ms':>8} {'total ms':>9} {'memory MiB':>11} {'frame KiB':>10} {'answer KiB':>11}  request"
    for cost in costs:
        yield (
            f"{cost.wait_s * 1000:8.0f} {cost.total_s * 1000:9.0f} {cost.memory / 2**20:11.1f} "
            f"{cost.frame_bytes / 1024:10.1f} {cost.answer_bytes / 1024:11.1f}  {cost.title}"
        )
