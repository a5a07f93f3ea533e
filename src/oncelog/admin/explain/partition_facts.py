"""The facts of partitions that tell why they stand still: leadership, replicas, offsets, and how far each replica is.

Each question is asked once for all partitions. What a broker refuses or does not answer is None in the facts and a row
of ``Unanswered``, never a failure: a broken cluster is what this is for.

The end of each replica's log is what ListOffsets answers to replica id −2, the debugging replica of Apache Kafka's own
verification tool: any replica answers it, followers too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.cluster_status import min_isr_of
from oncelog.admin.transactions.broker_requests import Question, Unanswered, ask, leaders
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
"""Partitions of which the first record that a replica lacks is read."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition as its cluster describes it. None: not known; ``leader`` None: it has none."""

    where: TopicPartition
    exists: bool = True
    leader: int | None = None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    min_isr: int | None = None
    log_start: int | None = None
    bounds: Bounds | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    """The end of each replica's log, by broker; only of those that told it."""
    lacks_since_ms: int | None = None
    """The time in the first record that a replica which is behind does not have; None where that is not known."""

    @property
    def lost_replicas(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.isr)

    @property
    def uncommitted(self) -> int | None:
        """Records of the leader that are not replicated enough to be read; None where that is not known."""
        end = None if self.leader is None else self.ends.get(self.leader)
        return None if end is None or self.bounds is None else max(0, end - self.bounds.end_offset)

    @property
    def needed_in_sync(self) -> int | None:
        """Replicas that have to be in sync for acks=all."""
        return None if self.min_isr is None else min(self.min_isr, len(self.replicas))


def partition_facts(
    cluster: Cluster, wanted: Iterable[TopicPartition]
) -> Program[tuple[dict[TopicPartition, PartitionFacts], list[Unanswered]]]:
    """The facts of each partition, those that do not exist included, without those that may not be seen. Raises
    NoBrokerReachable."""
    partitions = sorted(set(wanted))
    topics = (yield from cluster.metadata({partition.topic for partition in partitions})) if partitions else {}
    there = [partition for partition in partitions if _info(topics, partition) is not None]
    bounds, unanswered = yield from bounds_of(cluster, there)
    starts = yield from _log_starts(cluster, there)
    min_isr: dict[str, int] = {}
    with contextlib.suppress(ClientError):
        min_isr = yield from min_isr_of(cluster, sorted({partition.topic for partition in there}))
    ends = yield from _log_ends(cluster, there, topics)
    lacking = yield from _lacking_since(cluster, there, topics, ends)
    found = {}
    for where in partitions:
        topic = topics.get(where.topic)
        if topic is not None and topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            unanswered.append(Unanswered(None, str(where), explain(topic.error_code)))
            continue
        info = None if topic is None else topic.partitions.get(where.partition)
        if topic is None or not topic.exists or info is None:
            found[where] = PartitionFacts(where, exists=False)
            continue
        found[where] = PartitionFacts(
            where,
            leader=info.leader if info.leader >= 0 else None,
            replicas=info.replicas,
            isr=info.isr,
            offline=info.offline,
            min_isr=min_isr.get(where.topic),
            log_start=starts.get(where),
            bounds=bounds.get(where),
            ends=ends.get(where, {}),
            lacks_since_ms=lacking.get(where),
        )
    return found, unanswered


def _lacking_since(
    cluster: Cluster,
    wanted: list[TopicPartition],
    topics: Mapping[TopicName, TopicInfo],
    ends: Mapping[TopicPartition, Mapping[int, int]],
) -> Program[dict[TopicPartition, int]]:
    """The time in the first record that a replica lacks, of some of the partitions in which one is behind."""
    found: dict[TopicPartition, int] = {}
    behind = []
    for where in wanted:
        own = ends.get(where, {})
        end = own.get(topics[where.topic].partitions[where.partition].leader)
        if end is not None and (least := min(own.values())) < end:
            behind.append((where, least))
    for where, position in behind[:MOST_LOOKED_INTO]:
        try:
            records = yield from read_at(cluster, where, position)
            header = read_header(records)
        except (ClientError, CorruptBatch, TruncatedBatch):
            continue  # The facts are there without it.
        if header.base_timestamp > 0:
            found[where] = header.base_timestamp
    return found


def _info(topics: Mapping[TopicName, TopicInfo], where: TopicPartition) -> object | None:
    topic = topics.get(where.topic)
    return None if topic is None or not topic.exists else topic.partitions.get(where.partition)


def _log_starts(cluster: Cluster, wanted: list[TopicPartition]) -> Program[dict[TopicPartition, int]]:
    led, _ = leaders(cluster, wanted)
    questions: list[Question[ListOffsetsResponse]] = []
    for broker, part in led.items():
        message = list_offsets_request(cluster.view, dict.fromkeys(part, EARLIEST), part, read_committed=False)
        questions.append(Question(broker, message, f"first offsets of {len(part)} partitions"))
    answers = yield from ask(cluster, questions)
    return {
        where: offset
        for _, answer in answers
        if not isinstance(answer, Unanswered)
        for where, offset in offsets_in(answer)[0].items()
    }


def _log_ends(
    cluster: Cluster, wanted: list[TopicPartition], topics: Mapping[TopicName, TopicInfo]
) -> Program[dict[TopicPartition, dict[int, int]]]:
    """The end of every replica's log that tells it, by partition and broker."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for where in wanted:
        for broker in topics[where.topic].partitions[where.partition].replicas:
            if broker in cluster.view.brokers:
                by_broker.setdefault(broker, []).append(where)
    questions: list[Question[ListOffsetsResponse]] = []
    for broker, part in sorted(by_broker.items()):
        message = list_offsets_request(cluster.view, dict.fromkeys(part, LATEST), part, read_committed=False)
        message.replica_id = _DEBUGGING_REPLICA
        questions.append(Question(broker, message, f"ends of {len(part)} replicas"))
    found: dict[TopicPartition, dict[int, int]] = {}
    answers = yield from ask(cluster, questions)
    for question, answer in answers:
        if not isinstance(answer, Unanswered):
            for where, offset in offsets_in(answer)[0].items():
                found.setdefault(where, {})[question.broker] = offset
    return found
