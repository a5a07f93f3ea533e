"""Records of the internal topics: decisions and states of ``__transaction_state``, commits of ``__consumer_offsets``.

Only here are records decoded. A record that cannot be decoded becomes a finding; kinds of records of newer group
protocols are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.base.ids import CONSUMER_OFFSETS, NO_TOPIC_ID, TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.records.batch import CorruptBatch, read_header
from oncelog.records.internal import group_records, transaction_records
from oncelog.records.internal.group_records import OffsetCommitKey, OffsetCommitValue
from oncelog.records.internal.transaction_records import TransactionValue
from oncelog.records.record import Record, read_records
from oncelog.spark.audit.audit_plan import PartitionPlace, SegmentTask
from oncelog.spark.audit.model import CoordinatorState, Fact, Finding, Outcome, Rank
from oncelog.spark.audit.segments.batch_table import Piece

PREPARE_COMMIT: Final = 2
PREPARE_ABORT: Final = 3
MAX_RECORDS_BYTES: Final = 64 << 20
_SHOWN: Final = 20
_PLAIN: Final = -1

Places = Mapping[TopicPartition, PartitionPlace]


class InternalReader:
    """Gathers from one segment of an internal topic, a piece at a time."""

    def __init__(self, task: SegmentTask, places: Places) -> None:
        self._task, self._places = task, places
        self._states: dict[tuple[str, int], CoordinatorState] = {}
        self._plain: dict[tuple[str, str, int], Fact] = {}
        self._decided: dict[str, list[Fact]] = {}
        self._unreadable: list[Finding] = []
        self.latest_update = -1

    def add(self, piece: Piece) -> Iterator[Fact]:
        """Decisions, and commits made in transactions."""
        transactions = self._task.topic == TRANSACTION_STATE
        if not transactions and self._task.topic != CONSUMER_OFFSETS:
            return
        control = piece.is_control.tolist()
        sound = piece.sound.tolist()
        for index, position in enumerate(piece.position.tolist()):
            if control[index] or not sound[index] or not piece.record_count[index]:
                continue
            at = position - piece.start
            try:
                header = read_header(piece.data, at)
                records = list(read_records(piece.data, at, header, MAX_RECORDS_BYTES))
            except CorruptBatch as error:
                self._cannot(int(piece.base_offset[index]), f"a batch's records: {error}")
                continue
            for record in records:
                if transactions:
                    yield from self._transaction(record)
                else:
                    yield from self._commit(record, header.producer_id, header.producer_epoch)

    def states(self) -> Iterator[CoordinatorState]:
        """The last state of each transactional id and producer id."""
        yield from self._states.values()

    def facts(self) -> Iterator[Fact]:
        """After the last piece: decisions that nothing follows yet, and the last commit outside transactions of each
        group and partition."""
        for decisions in self._decided.values():
            yield from decisions
        yield from self._plain.values()

    def findings(self) -> Iterator[Finding]:
        """Findings about records that could not be read."""
        yield from self._unreadable

    def _transaction(self, record: Record) -> Iterator[Fact]:
        key = transaction_records.decode_key(record.key)
        if not isinstance(key, str):
            self._cannot(record.offset, f"the record's key: {key.reason}")
            return
        value = None if record.value is None else transaction_records.decode_value(record.value)
        since = value.last_update_timestamp if isinstance(value, TransactionValue) else record.timestamp
        for decision in self._decided.pop(key, ()):
            yield decision._replace(transactional=True, first_timestamp=since)
        if value is None:
            return
        if not isinstance(value, TransactionValue):
            self._cannot(record.offset, f"the state of {key}: {value.reason}")
            return
        self.latest_update = max(self.latest_update, value.last_update_timestamp)
        self._states[key, value.producer_id] = self._state(key, value, record.offset)
        if value.status in (PREPARE_COMMIT, PREPARE_ABORT):
            self._decided[key] = list(self._decisions(key, value, record.offset))

    def _state(self, name: str, value: TransactionValue, offset: int) -> CoordinatorState:
        partitions = " ".join(f"{topic}-{one}" for topic, indexes in value.partitions or () for one in indexes)
        return CoordinatorState(
            value.producer_id,
            name,
            value.producer_epoch,
            value.status,
            partitions,
            value.timeout_ms,
            value.last_update_timestamp,
            value.start_timestamp,
            value.client_transaction_version,
            self._task.partition,
            offset,
        )

    def _decisions(self, name: str, value: TransactionValue, offset: int) -> Iterator[Fact]:
        outcome = Outcome.COMMITTED if value.status == PREPARE_COMMIT else Outcome.ABORTED
        for topic, indexes in value.partitions or ():
            for index in indexes:
                place = self._places.get(TopicPartition(TopicName(topic), index))
                if place is None:
                    continue
                yield Fact(
                    topic,
                    index,
                    place.replica,
                    value.producer_id,
                    -1,
                    Rank.DECISION,
                    offset,
                    epoch=value.producer_epoch,
                    outcome=outcome,
                    batches=self._task.partition,
                    last_timestamp=value.last_update_timestamp,
                    value=value.client_transaction_version,
                    name=name,
                )

    def _commit(self, record: Record, producer_id: int, epoch: int) -> Iterator[Fact]:
        key = group_records.decode_key(record.key)
        if not isinstance(key, OffsetCommitKey):
            return
        offset, timestamp = -1, record.timestamp
        if record.value is not None:
            value = group_records.decode_offset_commit_value(record.value)
            if not isinstance(value, OffsetCommitValue):
                self._cannot(record.offset, f"an offset of group {key.group}: {value.reason}")
                return
            place = self._places.get(TopicPartition(TopicName(key.topic), key.partition))
            if place is None or _another_topic(value.topic_id, place.topic_id):
                return
            offset, timestamp = value.offset, value.commit_timestamp
        task = self._task
        if producer_id == _PLAIN:
            self._plain[key.group, key.topic, key.partition] = committed_offset(
                TopicPartition(TopicName(key.topic), key.partition),
                key.group,
                task.partition,
                record.offset,
                offset,
                timestamp,
            )
            return
        yield Fact(
            task.topic,
            task.partition,
            task.replica,
            producer_id,
            record.offset,
            Rank.COMMIT,
            epoch=epoch,
            last_timestamp=timestamp,
            value=offset,
            name=key.group,
            place=f"{key.topic}-{key.partition}",
        )

    def _cannot(self, offset: int, text: str) -> None:
        if len(self._unreadable) < _SHOWN:
            task = self._task
            self._unreadable.append(
                Finding("unreadable", task.topic, task.partition, offset, path=task.path, text=f"cannot read {text}")
            )


def committed_offset(
    of: TopicPartition, group: str, log_partition: int, log_offset: int, offset: int, timestamp: int
) -> Fact:
    """A group's offset as a fact of the partition that it is about."""
    return Fact(
        of.topic,
        of.partition,
        -1,
        -1,
        -1,
        Rank.COMMITTED_OFFSET,
        log_offset,
        last_timestamp=timestamp,
        value=offset,
        name=group,
        place=str(log_partition),
    )


def _another_topic(said: bytes, found: bytes) -> bool:
    """True if a commit is about an earlier topic of the same name."""
    return said != found and NO_TOPIC_ID not in (said, found)
