"""Producers as partition leaders remember them, with the transactions they have open (DescribeProducers, KIP-664).

Rules:

1. A request has a few thousand partitions, and all leaders are asked at once. A partition whose leader has moved is
   asked again there; refusals are reported.
2. oncelog's leaders add the transactional id and their verdict (tagged fields that others do not send): None means that
   the broker does not say, empty that it does not know.
3. Most partitions of a cluster have no transaction open. One without producers and without an error costs some steps of
   a loop, and no object; the generated message's own reader reads everything else, and any unusual answer. For all
   bytes the result is that of decoding them, or PeerError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.admin.transactions.broker_requests import (
    Progress,
    Question,
    Unanswered,
    ask_and_read,
    leaders,
    no_progress,
    refusals,
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

PARTITIONS_A_REQUEST: Final = 2000
NO_TRANSACTION: Final = -1
_VERSION: Final = 0
_LEAST_TOPIC_BYTES: Final = 3
_LEAST_PARTITION_BYTES: Final = 9
_IDLE: Final = b"\0\0\0\1\0"
"""A partition behind its index: no error, no message of one, no producers, no tags."""
_IDLE_BYTES: Final = 4 + len(_IDLE)
_ONE_BYTE: Final = 0x80
"""Lengths below it are a single byte."""


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """A producer that a partition's leader remembers.

    ``start_offset`` is None while it has no transaction open there. ``last_timestamp_ms`` is that of its last record.
    ``transactional_id`` and ``found`` (the broker's word for its verdict, ``base.transaction_verdicts``) are None from
    brokers that do not say, and empty where they do not know. The names of the fields are those of ``--json``.
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
    def where(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), self.partition)


@dataclass(frozen=True, slots=True)
class Producers:
    """Producers by partition; what was not answered; how many partitions were, and which were not."""

    rows: list[ProducerRow]
    unanswered: list[Unanswered] = field(default_factory=list)
    partitions: int = 0
    failed: frozenset[TopicPartition] = frozenset()


@operation
def describe_producers(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    open_only: bool = False,
    progress: Progress = no_progress,
) -> Program[Producers]:
    """Producers of partitions that the client's view has; with ``open_only`` those that have a transaction open."""
    rows: list[ProducerRow] = []
    unanswered: list[Unanswered] = []
    failed: set[TopicPartition] = set()
    wanted = list(partitions)
    asked = len(wanted)
    for attempt in range(2):
        led, leaderless = leaders(cluster, wanted)
        unanswered += leaderless
        failed.update(set(wanted).difference(*led.values()) if leaderless else ())
        wanted = []
        answers = yield from _answers(cluster, led, progress)
        for (broker, part), answer in answers:
            if isinstance(answer, Unanswered):
                unanswered.append(answer)
                failed.update(part)
                continue
            refused = _take(answer, broker, rows, open_only=open_only)
            moved = [one for one, code in refused.items() if attempt == 0 and _may_have_moved(code)]
            wanted += moved
            final = {one: code for one, code in refused.items() if one not in moved}
            unanswered += refusals(final, broker)
            failed.update(final)
        if not wanted:
            break
        yield from cluster.metadata({partition.topic for partition in wanted})
    rows.sort(key=lambda row: (row.topic, row.partition, row.producer_id))
    return Producers(rows, unanswered, asked - len(failed), frozenset(failed))


def _answers(
    cluster: Cluster, led: dict[int, list[TopicPartition]], progress: Progress
) -> Program[list[tuple[tuple[int, Sequence[TopicPartition]], list[Answered] | Unanswered]]]:
    parts = [
        (broker, part) for broker, partitions in led.items() for part in slices_of(partitions, PARTITIONS_A_REQUEST)
    ]
    questions = [
        Question(broker, _request(part), f"producers of {len(part)} partitions" if len(part) > 1 else str(part[0]))
        for broker, part in parts
    ]
    answers = yield from ask_and_read(cluster, questions, lambda response: [*busy_partitions(response.body)], progress)
    return [(asked, answer) for asked, (_, answer) in zip(parts, answers, strict=True)]


def _request(partitions: Sequence[TopicPartition]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=found) for name, found in by_topic(partitions).items()]
    )


def _may_have_moved(code: int) -> bool:
    return remedy(code) is Remedy.REFRESH_METADATA and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _take(
    answer: Iterable[Answered], broker: int, rows: list[ProducerRow], *, open_only: bool
) -> dict[TopicPartition, int]:
    """Add what was answered to ``rows``; what was refused is returned."""
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


def _row(topic: str, partition: int, leader: int, one: ProducerState) -> ProducerRow:
    start = one.current_txn_start_offset
    return ProducerRow(
        topic,
        partition,
        leader,
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.last_timestamp,
        one.coordinator_epoch,
        None if start == NO_TRANSACTION else start,
        one.transactional_id,
        one.verdict,
    )


class Answered(NamedTuple):
    """A partition that has producers, or was refused."""

    topic: str
    partition: int
    error_code: int
    producers: list[ProducerState]


def busy_partitions(body: Buffer) -> Iterator[Answered]:
    """The partitions of an answer that have producers, or an error. Raises PeerError."""
    reader = CompactReader(body, RESPONSE_MAX_ELEMENTS)
    reader.int32()  # The throttle time.
    topics = reader.array_count(_LEAST_TOPIC_BYTES)
    try:
        yield from _busy_partitions(reader, topics)
    except IndexError:
        raise PeerError("the message ends within a topic") from None
    reader.skip_tags()
    reader.finish()


def _busy_partitions(reader: CompactReader, topics: int) -> Iterator[Answered]:
    """The busy partitions of ``topics`` topics; the reader is behind them in the end. Raises IndexError, too."""
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
            count = reader.array_count(_LEAST_PARTITION_BYTES)
            at = reader.position
        for _ in range(count):
            if whole[at + 4 : at + _IDLE_BYTES] == _IDLE:
                at += _IDLE_BYTES
                continue
            reader.position = at
            one = PartitionResponse.read(reader, _VERSION)
            at = reader.position
            if one.error_code or one.active_producers:
                name = name or str(whole[begin + 1 : begin + length], "utf-8", "replace")
                yield Answered(name, one.partition_index, one.error_code, one.active_producers)
        if whole[at]:
            reader.position = at
            reader.skip_tags()
            at = reader.position
        else:
            at += 1
    reader.position = at
