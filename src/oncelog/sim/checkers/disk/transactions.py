"""D6 to D8 of docs/internals/simulation.md: markers in the partitions match the decisions in the coordinators' logs.

A Prepare record has outcome, epoch and partitions of its transaction. A restarted coordinator that lost the response
may repeat a marker. An administrator's marker is in the audit log (``admin_aborts``), or, without one, has the epoch of
the data. Transactions whose log is not whole are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.records.internal.transaction_records import TransactionValue, decode_key, decode_value
from oncelog.sim.checkers.disk.admin_aborts import UNAUDITED, End, Listing, Listings, live_ended
from oncelog.sim.checkers.disk.logs import ChangingTopics, Finding
from oncelog.sim.checkers.disk.scan import Batch, Marker, ScannedLog

DISAGREES: Final = "D6 marker disagrees with the coordinator"
MISSING: Final = "D7 marker missing"
REPEATED: Final = "D8 marker written twice"
# A clock may be set back by this much, so that a later event has an earlier timestamp.
SET_BACK_MS: Final = 2_000
_PREPARE_COMMIT: Final = 2
_PREPARE_ABORT: Final = 3
_TRANSACTIONS_V2: Final = 2


class TransactionDecision(NamedTuple):
    """The decision on one transaction. ``epoch``: of its markers."""

    epoch: int
    committed: bool
    transactional_id: str
    version: int


# (partition, producer id) → the decisions on it, in order.
Decisions = Mapping[tuple[TopicPartition, int], list[TransactionDecision]]


class CoordinatorLogs(NamedTuple):
    """Decisions and open transactions of the coordinators. ``producer_ids``: those with a whole log."""

    decided: dict[tuple[TopicPartition, int], list[TransactionDecision]]
    listed: Mapping[tuple[TopicPartition, int], list[Listing]]
    producer_ids: set[int]


def read_coordinator_logs(logs: Mapping[TopicPartition, ScannedLog]) -> CoordinatorLogs:
    decided: dict[tuple[TopicPartition, int], list[TransactionDecision]] = {}
    producer_ids: set[int] = set()
    listings = Listings()
    for partition, log in sorted(logs.items()):
        if partition.topic != TRANSACTION_STATE or not log.is_whole:
            continue
        for batch in log.batches:
            for record in batch.records:
                transactional_id = decode_key(record.key)
                value = None if record.value is None else decode_value(record.value)
                if not isinstance(transactional_id, str):
                    continue
                if isinstance(value, TransactionValue):
                    producer_ids.add(value.producer_id)
                    _decide(decided, transactional_id, value)
                listings.read(transactional_id, value if isinstance(value, TransactionValue) else None)
    listings.end()
    return CoordinatorLogs(decided, listings.of, producer_ids)


def _decide(
    decided: dict[tuple[TopicPartition, int], list[TransactionDecision]], transactional_id: str, value: TransactionValue
) -> None:
    if value.status not in (_PREPARE_COMMIT, _PREPARE_ABORT):
        return
    decision = TransactionDecision(
        value.producer_epoch, value.status == _PREPARE_COMMIT, transactional_id, value.client_transaction_version
    )
    for topic, partitions in value.partitions or ():
        for index in partitions:
            place = TopicPartition(TopicName(topic), index), value.producer_id
            decided.setdefault(place, []).append(decision)


class Context(NamedTuple):
    settled: bool
    restarted_at_ms: Sequence[int]
    # Ends in the audit log by partition, producer id, epoch, and time; None without an audit log.
    ended: Mapping[tuple[TopicPartition, int, int, int], End] | None
    may_repeat: bool = False

    def end_of(self, partition: TopicPartition, batch: Batch) -> End | None:
        header, marker = batch.header, batch.marker
        if self.ended is None or marker is None or marker.committed:
            return None
        return self.ended.get((partition, header.producer_id, header.producer_epoch, marker.timestamp))


def markers(
    logs: Mapping[TopicPartition, ScannedLog],
    kept: ChangingTopics,
    *,
    settled: bool,
    restarted_at_ms: Sequence[int] = (),
    ended: Iterable[End] | None = None,
    may_repeat: bool = False,
) -> Iterator[Finding]:
    """Compare the markers of all partitions with the decisions. ``settled``: there was time to write all markers.
    ``may_repeat``: a response to a coordinator may have been lost, and the marker sent again.
    """
    coordinator_logs = read_coordinator_logs(logs)
    by_name = None if ended is None else {(e.partition, e.producer_id, e.producer_epoch, e.at_ms): e for e in ended}
    context = Context(settled, restarted_at_ms, by_name, may_repeat)
    for partition, log in sorted(logs.items()):
        if partition.topic in kept.recreated or not log.is_whole:
            continue
        by_producer: dict[int, list[Batch]] = {}
        for batch in log.batches:
            if batch.header.producer_id >= 0 and batch.header.is_transactional:
                by_producer.setdefault(batch.header.producer_id, []).append(batch)
        expecting = {producer for place, producer in coordinator_logs.decided if place == partition}
        for producer in sorted(by_producer.keys() | expecting):
            batches = by_producer.get(producer, [])
            if settled:
                yield from _unfinished_data(partition, producer, batches)
            if producer in coordinator_logs.producer_ids:
                yield from _compare_markers(partition, producer, batches, coordinator_logs, context)
                if settled:
                    yield from _missing_markers(partition, producer, batches, coordinator_logs, context)


def _unfinished_data(partition: TopicPartition, producer: int, batches: list[Batch]) -> Iterator[Finding]:
    if batches and batches[-1].marker is None and not batches[-1].header.is_control:
        yield MISSING, f"{partition}: producer {producer} has data after its last marker"


def _compare_markers(
    partition: TopicPartition,
    producer: int,
    batches: list[Batch],
    coordinator_logs: CoordinatorLogs,
    context: Context,
) -> Iterator[Finding]:
    expected = coordinator_logs.decided.get((partition, producer), [])
    listed = coordinator_logs.listed.get((partition, producer), [])
    position = 0
    last: Marker | None = None
    for batch in batches:
        if batch.marker is None:
            continue
        written = batch.header.producer_epoch, batch.marker.committed
        location = f"{partition}@{batch.header.base_offset}: producer {producer}, epoch {written[0]}"
        outcome = "commit" if written[1] else "abort"
        end = context.end_of(partition, batch)
        if end is not None:
            yield from live_ended(end, listed, position)
            continue
        if position < len(expected) and expected[position][:2] == written:
            position += 1
        elif position and expected[position - 1][:2] == written:
            excused = context.may_repeat or last is None or last.coordinator_epoch < batch.marker.coordinator_epoch
            excused |= _restarted_between(last or batch.marker, batch.marker, context.restarted_at_ms)
            if expected[position - 1].version >= _TRANSACTIONS_V2 and not excused:
                yield REPEATED, f"{location}, {outcome} twice"
        elif written[1] or not _is_by_administrator(written[0], expected, position):
            yield DISAGREES, f"{location}, {outcome}, decided was {_decision_at(expected, position)}"
            return
        elif context.ended is not None and batch.marker.timestamp not in context.restarted_at_ms:
            # A broker that dies while it writes the marker never reaches the audit log.
            yield UNAUDITED, f"{location}, {outcome}, decided was {_decision_at(expected, position)}"
        last = batch.marker


def _restarted_between(earlier: Marker, later: Marker, restarted_at_ms: Sequence[int]) -> bool:
    return any(earlier.timestamp - SET_BACK_MS <= at <= later.timestamp + SET_BACK_MS for at in restarted_at_ms)


def _missing_markers(
    partition: TopicPartition,
    producer: int,
    batches: list[Batch],
    coordinator_logs: CoordinatorLogs,
    context: Context,
) -> Iterator[Finding]:
    # Yield the first decision without a marker. `_compare_markers` checks that the existing markers match.
    expected = coordinator_logs.decided.get((partition, producer), [])
    written = [
        (b.header.producer_epoch, b.marker.committed)
        for b in batches
        if b.marker is not None and context.end_of(partition, b) is None
    ]
    position = 0
    for outcome in written:
        if position < len(expected) and expected[position][:2] == outcome:
            position += 1
    if position < len(expected):
        yield MISSING, f"{partition}: producer {producer}, decided was {_decision_at(expected, position)}"


def _is_by_administrator(epoch: int, expected: list[TransactionDecision], position: int) -> bool:
    # True for an abort with the epoch of the data: below the coordinator's next epoch, or of a forgotten transaction.
    return position >= len(expected) or epoch < expected[position].epoch


def _decision_at(expected: list[TransactionDecision], position: int) -> str:
    if position >= len(expected):
        return "nothing more"
    decision = expected[position]
    return f"{'commit' if decision.committed else 'abort'} of {decision.transactional_id} at epoch {decision.epoch}"
