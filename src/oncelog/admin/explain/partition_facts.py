"""Gathers the facts that explain why partitions are stuck: leadership, replicas, offsets, and each replica's log end.

Each request covers all partitions. A fact that a broker refuses or does not answer is None, with a row of
``Unanswered``, because broken clusters are the use case. A replica's log end is its ListOffsets answer to replica id
−2, the debugging replica of Apache Kafka's verification tool: followers answer it too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.cluster_status import min_isr_of
from oncelog.admin.eligible_leaders import NONE_ELIGIBLE, Eligible, eligible_leaders
from oncelog.admin.transactions.broker_requests import BrokerRequest, Unanswered, leaders, send_requests
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of, offsets_in, read_at
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.metadata import TopicInfo
from oncelog.client.machine.requests import EARLIEST, LATEST, list_offsets_request
from oncelog.client.programs import Cluster, Program
from oncelog.records.batch import read_header
from oncelog.records.errors import CorruptBatch, TruncatedBatch
from oncelog.wire.messages.list_offsets import ListOffsetsResponse

_DEBUGGING_REPLICA: Final = -2
MOST_LOOKED_INTO: Final = 20
"""Partitions for which the first record missing on a replica is read."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition as its cluster describes it. None means unknown; for ``leader``, that there is none."""

    partition: TopicPartition
    exists: bool = True
    leader: int | None = None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    min_isr: int | None = None
    log_start: int | None = None
    bounds: Bounds | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    """The end of each replica's log by broker, without brokers that did not answer."""
    eligible: Eligible = NONE_ELIGIBLE
    """Without a leader: replicas out of sync that have all records (KIP-966)."""
    lacks_since_ms: int | None = None
    """The time of the first record missing on a lagging replica; None if unknown."""

    @property
    def lost_replicas(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.isr)

    @property
    def uncommitted(self) -> int | None:
        """Records of the leader that are not replicated enough to be read; None if unknown."""
        end = None if self.leader is None else self.ends.get(self.leader)
        return None if end is None or self.bounds is None else max(0, end - self.bounds.end_offset)

    @property
    def needed_in_sync(self) -> int | None:
        """In-sync replicas that acks=all needs."""
        return None if self.min_isr is None else min(self.min_isr, len(self.replicas))


def partition_facts(
    cluster: Cluster, selected: Iterable[TopicPartition]
) -> Program[tuple[dict[TopicPartition, PartitionFacts], list[Unanswered]]]:
    """The facts of each partition, even if absent; without those that may not be described. Raises
    NoBrokerReachable."""
    partitions = sorted(set(selected))
    topics = (yield from cluster.metadata({partition.topic for partition in partitions})) if partitions else {}
    existing = [partition for partition in partitions if _info(topics, partition) is not None]
    bounds, unanswered = yield from bounds_of(cluster, existing)
    starts = yield from log_starts(cluster, existing)
    min_isr: dict[str, int] = {}
    # Reading topic configurations needs rights of its own.
    with contextlib.suppress(ClientError):
        min_isr = yield from min_isr_of(cluster, sorted({partition.topic for partition in existing}))
    ends = yield from _log_ends(cluster, existing, topics)
    lacking = yield from _lacking_since(cluster, existing, topics, ends)
    leaderless = [tp for tp in existing if topics[tp.topic].partitions[tp.partition].leader < 0]
    eligible = yield from eligible_leaders(cluster, leaderless)
    facts = {}
    for tp in partitions:
        topic = topics.get(tp.topic)
        if topic is not None and topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            unanswered.append(Unanswered(None, str(tp), explain(topic.error_code)))
            continue
        info = None if topic is None else topic.partitions.get(tp.partition)
        if topic is None or not topic.exists or info is None:
            facts[tp] = PartitionFacts(tp, exists=False)
            continue
        facts[tp] = PartitionFacts(
            tp,
            leader=info.leader if info.leader >= 0 else None,
            replicas=info.replicas,
            isr=info.isr,
            offline=info.offline,
            min_isr=min_isr.get(tp.topic),
            log_start=starts.get(tp),
            bounds=bounds.get(tp),
            ends=ends.get(tp, {}),
            eligible=eligible.get(tp, NONE_ELIGIBLE),
            lacks_since_ms=lacking.get(tp),
        )
    return facts, unanswered


def _lacking_since(
    cluster: Cluster,
    selected: list[TopicPartition],
    topics: Mapping[TopicName, TopicInfo],
    ends: Mapping[TopicPartition, Mapping[int, int]],
) -> Program[dict[TopicPartition, int]]:
    """The time of the first record missing on a lagging replica, for a bounded number of partitions."""
    times: dict[TopicPartition, int] = {}
    behind = []
    for partition in selected:
        log_ends = ends.get(partition, {})
        end = log_ends.get(topics[partition.topic].partitions[partition.partition].leader)
        if end is not None and (least := min(log_ends.values())) < end:
            behind.append((partition, least))
    for partition, position in behind[:MOST_LOOKED_INTO]:
        try:
            records = yield from read_at(cluster, partition, position)
            header = read_header(records)
        except (ClientError, CorruptBatch, TruncatedBatch):
            continue  # the facts are useful without it
        if header.base_timestamp > 0:
            times[partition] = header.base_timestamp
    return times


def _info(topics: Mapping[TopicName, TopicInfo], partition: TopicPartition) -> object | None:
    topic = topics.get(partition.topic)
    return None if topic is None or not topic.exists else topic.partitions.get(partition.partition)


def log_starts(cluster: Cluster, selected: list[TopicPartition]) -> Program[dict[TopicPartition, int]]:
    led, _ = leaders(cluster, selected)
    requests: list[BrokerRequest[ListOffsetsResponse]] = []
    for broker, part in led.items():
        message = list_offsets_request(cluster.view, dict.fromkeys(part, EARLIEST), part, read_committed=False)
        requests.append(BrokerRequest(broker, message, f"first offsets of {len(part)} partitions"))
    return (yield from _offsets(cluster, requests))


def leader_ends(cluster: Cluster, selected: Sequence[TopicPartition]) -> Program[dict[TopicPartition, int]]:
    """The ends of the leaders' logs, which consumers do not see while followers lack records."""
    led, _ = leaders(cluster, selected)
    return (yield from _offsets(cluster, [_ends_request(cluster, broker, part) for broker, part in led.items()]))


def _offsets(
    cluster: Cluster, requests: Sequence[BrokerRequest[ListOffsetsResponse]]
) -> Program[dict[TopicPartition, int]]:
    answers = yield from send_requests(cluster, requests)
    return {
        partition: offset
        for _, answer in answers
        if not isinstance(answer, Unanswered)
        for partition, offset in offsets_in(answer)[0].items()
    }


def _ends_request(cluster: Cluster, broker: int, part: Sequence[TopicPartition]) -> BrokerRequest[ListOffsetsResponse]:
    message = list_offsets_request(cluster.view, dict.fromkeys(part, LATEST), list(part), read_committed=False)
    message.replica_id = _DEBUGGING_REPLICA
    return BrokerRequest(broker, message, f"ends of {len(part)} replicas")


def _log_ends(
    cluster: Cluster, selected: list[TopicPartition], topics: Mapping[TopicName, TopicInfo]
) -> Program[dict[TopicPartition, dict[int, int]]]:
    by_broker: dict[int, list[TopicPartition]] = {}
    for partition in selected:
        for broker in topics[partition.topic].partitions[partition.partition].replicas:
            # A broker outside the metadata has no address.
            if broker in cluster.view.brokers:
                by_broker.setdefault(broker, []).append(partition)
    requests = [_ends_request(cluster, broker, part) for broker, part in sorted(by_broker.items())]
    log_ends: dict[TopicPartition, dict[int, int]] = {}
    answers = yield from send_requests(cluster, requests)
    for request, answer in answers:
        if not isinstance(answer, Unanswered):
            for partition, offset in offsets_in(answer)[0].items():
                log_ends.setdefault(partition, {})[request.broker] = offset
    return log_ends
