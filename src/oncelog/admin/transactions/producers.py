"""Lists producers that partition leaders remember, with their open transactions (DescribeProducers, KIP-664).

Rules:

1. A request covers a few thousand partitions, and all leaders are queried at once. A partition whose leader moved is
   queried again there; refusals are reported.
2. oncelog's leaders add the transactional id and their verdict (tagged fields): None means that the broker does not
   say, empty that it does not know.
3. A partition without producers and errors, as most are, costs a few loop steps and no object; the generated message
   reader handles everything else. The result always equals full decoding, or is a PeerError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.admin.transactions.broker_requests import (
    BrokerRequest,
    Progress,
    Unanswered,
    leaders,
    no_progress,
    refusals,
    send_and_read,
    slices_of,
)
from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs import Cluster, Program, operation
from oncelog.wire.chunks import Buffer
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from oncelog.wire.reader import CompactReader

PARTITIONS_PER_REQUEST: Final = 2000
NO_TRANSACTION: Final = -1
_VERSION: Final = 0
_MIN_TOPIC_BYTES: Final = 3
_MIN_PARTITION_BYTES: Final = 9
_IDLE: Final = b"\0\0\0\1\0"
"""The bytes of an idle partition after its index: no error, no error message, no producers, no tags."""
_IDLE_BYTES: Final = 4 + len(_IDLE)
_ONE_BYTE: Final = 0x80
"""Varints below this are a single byte."""


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """A producer that a partition's leader remembers, with the field names of ``--json``.

    ``leader`` is the broker that answered. ``start_offset`` is None without an open transaction; ``last_timestamp_ms``
    is of the last record. ``found`` is the broker's verdict (``base.transaction_verdicts``).
    """

    topic: str
    partition: int
    leader: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None
    transactional_id: str | None = None
    found: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), self.partition)


@dataclass(frozen=True, slots=True)
class Producers:
    rows: list[ProducerRow]
    unanswered: list[Unanswered] = field(default_factory=list)
    partitions: int = 0
    # Partitions without an answer.
    failed: frozenset[TopicPartition] = frozenset()


@operation
def describe_producers(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    open_only: bool = False,
    broker: int | None = None,
    progress: Progress = no_progress,
) -> Program[Producers]:
    """Producers of partitions; with ``open_only`` those with an open transaction. ``broker`` answers for its replicas
    instead of the leaders.
    """
    rows: list[ProducerRow] = []
    unanswered: list[Unanswered] = []
    failed: set[TopicPartition] = set()
    to_query = list(partitions)
    total = len(to_query)
    if broker is None and any(cluster.view.partition(partition) is None for partition in to_query):
        yield from cluster.metadata({partition.topic for partition in to_query})
    for attempt in range(2):
        led, leaderless = leaders(cluster, to_query) if broker is None else ({broker: to_query}, [])
        unanswered += leaderless
        failed.update(set(to_query).difference(*led.values()) if leaderless else ())
        to_query = []
        answers = yield from _answers(cluster, led, progress)
        for (queried, part), answer in answers:
            if isinstance(answer, Unanswered):
                unanswered.append(answer)
                failed.update(part)
                continue
            refused = _add_answers(answer, queried, rows, open_only=open_only)
            # Rule 1: only the first answer is followed to another leader.
            may_follow = attempt == 0 and broker is None
            moved = [partition for partition, code in refused.items() if may_follow and _may_have_moved(code)]
            to_query += moved
            final = {partition: code for partition, code in refused.items() if partition not in moved}
            unanswered += refusals(final, queried)
            failed.update(final)
        if not to_query:
            break
        yield from cluster.metadata({partition.topic for partition in to_query})
    rows.sort(key=lambda row: (row.topic, row.partition, row.producer_id))
    return Producers(rows, unanswered, total - len(failed), frozenset(failed))


def _answers(
    cluster: Cluster, led: dict[int, list[TopicPartition]], progress: Progress
) -> Program[list[tuple[tuple[int, Sequence[TopicPartition]], list[Answered] | Unanswered]]]:
    parts = [
        (broker, part) for broker, partitions in led.items() for part in slices_of(partitions, PARTITIONS_PER_REQUEST)
    ]
    requests = [
        BrokerRequest(broker, _request(part), f"producers of {len(part)} partitions" if len(part) > 1 else str(part[0]))
        for broker, part in parts
    ]
    answers = yield from send_and_read(cluster, requests, lambda response: [*busy_partitions(response.body)], progress)
    return [(part_, answer) for part_, (_, answer) in zip(parts, answers, strict=True)]


def _request(partitions: Sequence[TopicPartition]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic(partitions).items()]
    )


def _may_have_moved(code: int) -> bool:
    return remedy(code) is Remedy.REFRESH_METADATA and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _add_answers(
    answer: Iterable[Answered], broker: int, rows: list[ProducerRow], *, open_only: bool
) -> dict[TopicPartition, int]:
    """Add an answer to ``rows``. Returns the refused partitions."""
    refused: dict[TopicPartition, int] = {}
    for topic, partition, error_code, producers in answer:
        if error_code:
            refused[TopicPartition(TopicName(topic), partition)] = error_code
        rows += [
            _row(topic, partition, broker, producer)
            for producer in producers
            if producer.current_txn_start_offset != NO_TRANSACTION or not open_only
        ]
    return refused


def _row(topic: str, partition: int, leader: int, producer: ProducerState) -> ProducerRow:
    start = producer.current_txn_start_offset
    return ProducerRow(
        topic,
        partition,
        leader,
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch,
        None if start == NO_TRANSACTION else start,
        producer.transactional_id,
        producer.verdict,
    )


class Answered(NamedTuple):
    topic: str
    partition: int
    error_code: int
    producers: list[ProducerState]


def busy_partitions(body: Buffer) -> Iterator[Answered]:
    """The partitions of an answer that have producers or an error. Raises PeerError."""
    reader = CompactReader(body, RESPONSE_MAX_ELEMENTS)
    reader.int32()  # The throttle time.
    topics = reader.array_count(_MIN_TOPIC_BYTES)
    try:
        yield from _busy_partitions(reader, topics)
    except IndexError:
        raise PeerError("the message ends within a topic") from None
    reader.skip_tags()
    reader.finish()


def _busy_partitions(reader: CompactReader, topics: int) -> Iterator[Answered]:
    """The busy partitions of ``topics`` topics; leaves the reader behind them. Also raises IndexError."""
    whole, at = bytes(reader.view), reader.position
    for _ in range(topics):
        begin, name = at, ""
        if 0 < (length := whole[at]) < _ONE_BYTE:
            at += length
        else:
            reader.position = at
            name = reader.string()
            at = reader.position
        if 0 < (count := whole[at]) < _ONE_BYTE:
            count, at = count - 1, at + 1
        else:
            reader.position = at
            count = reader.array_count(_MIN_PARTITION_BYTES)
            at = reader.position
        for _ in range(count):
            # Rule 3: an idle partition is recognized by comparing bytes.
            if whole[at + 4 : at + _IDLE_BYTES] == _IDLE:
                at += _IDLE_BYTES
                continue
            reader.position = at
            response = PartitionResponse.read(reader, _VERSION)
            at = reader.position
            if response.error_code or response.active_producers:
                name = name or str(whole[begin + 1 : begin + length], "utf-8", "replace")
                yield Answered(name, response.partition_index, response.error_code, response.active_producers)
        if whole[at]:
            reader.position = at
            reader.skip_tags()
            at = reader.position
        else:
            at += 1
    reader.position = at
