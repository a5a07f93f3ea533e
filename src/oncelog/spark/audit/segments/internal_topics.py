"""Decodes the internal topics: decisions and states of ``__transaction_state``, commits of ``__consumer_offsets``.

An undecodable record becomes a finding; records of newer group protocols are skipped.
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
from oncelog.spark.audit.model import CoordinatorState, Fact, Finding, Rank, TransactionOutcome
from oncelog.spark.audit.segments.batch_table import BatchTable
from oncelog.spark.audit.segments.id_notes import IdNotes

PREPARE_COMMIT: Final = 2
PREPARE_ABORT: Final = 3
MAX_RECORDS_BYTES: Final = 64 << 20
_SHOWN: Final = 20
_NO_PRODUCER: Final = -1

Places = Mapping[TopicPartition, PartitionPlace]


class InternalReader:
    def __init__(self, task: SegmentTask, places: Places) -> None:
        self._task, self._places = task, places
        self._states: dict[tuple[str, int], CoordinatorState] = {}
        self._untransacted: dict[tuple[str, str, int], Fact] = {}
        self._pending_decisions: dict[str, list[Fact]] = {}
        self._unreadable: list[Finding] = []
        self._notes = IdNotes(task)
        self.latest_update = -1

    def add(self, batches: BatchTable) -> Iterator[Fact]:
        transactions = self._task.topic == TRANSACTION_STATE
        if not transactions and self._task.topic != CONSUMER_OFFSETS:
            return
        control = batches.is_control.tolist()
        sound = batches.sound.tolist()
        for index, position in enumerate(batches.position.tolist()):
            if control[index] or not sound[index] or not batches.record_count[index]:
                continue
            offset_in_data = position - batches.start
            try:
                header = read_header(batches.data, offset_in_data)
                records = list(read_records(batches.data, offset_in_data, header, MAX_RECORDS_BYTES))
            except CorruptBatch as error:
                self._add_unreadable(int(batches.base_offset[index]), f"a batch's records: {error}")
                continue
            for record in records:
                if transactions:
                    yield from self._read_transaction(record)
                else:
                    yield from self._read_commit(record, header.producer_id, header.producer_epoch)

    def states(self) -> Iterator[CoordinatorState]:
        yield from self._states.values()

    def facts(self) -> Iterator[Fact]:
        """After the last batch: decisions without a later record, and each group's last commit outside transactions
        for each partition."""
        for decisions in self._pending_decisions.values():
            yield from decisions
        yield from self._untransacted.values()

    def findings(self) -> Iterator[Finding]:
        yield from self._unreadable
        yield from self._notes.findings(self._states.values(), self.latest_update)

    def _read_transaction(self, record: Record) -> Iterator[Fact]:
        key = transaction_records.decode_key(record.key)
        if not isinstance(key, str):
            self._add_unreadable(record.offset, f"the record's key: {key.reason}")
            return
        value = None if record.value is None else transaction_records.decode_value(record.value)
        since = value.last_update_timestamp if isinstance(value, TransactionValue) else record.timestamp
        # The coordinator wrote again, so the marker of its earlier decision must exist since then.
        for decision in self._pending_decisions.pop(key, ()):
            yield decision._replace(transactional=True, first_timestamp=since)
        if value is None:
            return
        if not isinstance(value, TransactionValue):
            self._add_unreadable(record.offset, f"the state of {key}: {value.reason}")
            return
        self.latest_update = max(self.latest_update, value.last_update_timestamp)
        self._notes.add(record)
        self._states[key, value.producer_id] = self._state(key, value, record.offset)
        if value.status in (PREPARE_COMMIT, PREPARE_ABORT):
            self._pending_decisions[key] = list(self._decisions(key, value, record.offset))

    def _state(self, name: str, value: TransactionValue, offset: int) -> CoordinatorState:
        partitions = " ".join(f"{topic}-{index}" for topic, indexes in value.partitions or () for index in indexes)
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
        outcome = TransactionOutcome.COMMITTED if value.status == PREPARE_COMMIT else TransactionOutcome.ABORTED
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

    def _read_commit(self, record: Record, producer_id: int, epoch: int) -> Iterator[Fact]:
        key = group_records.decode_key(record.key)
        if not isinstance(key, OffsetCommitKey):
            return
        offset, timestamp = -1, record.timestamp
        if record.value is not None:
            value = group_records.decode_offset_commit_value(record.value)
            if not isinstance(value, OffsetCommitValue):
                self._add_unreadable(record.offset, f"an offset of group {key.group}: {value.reason}")
                return
            place = self._places.get(TopicPartition(TopicName(key.topic), key.partition))
            if place is None or _another_topic(value.topic_id, place.topic_id):
                return
            offset, timestamp = value.offset, value.commit_timestamp
        task = self._task
        if producer_id == _NO_PRODUCER:
            self._untransacted[key.group, key.topic, key.partition] = committed_offset(
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

    def _add_unreadable(self, offset: int, text: str) -> None:
        if len(self._unreadable) < _SHOWN:
            task = self._task
            self._unreadable.append(
                Finding("unreadable", task.topic, task.partition, offset, path=task.path, text=f"cannot read {text}")
            )


def committed_offset(
    partition: TopicPartition, group: str, log_partition: int, log_offset: int, offset: int, timestamp: int
) -> Fact:
    return Fact(
        partition.topic,
        partition.partition,
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


def _another_topic(committed_id: bytes, current_id: bytes) -> bool:
    """True if the commit refers to a deleted topic with the same name."""
    return committed_id != current_id and NO_TOPIC_ID not in (committed_id, current_id)
