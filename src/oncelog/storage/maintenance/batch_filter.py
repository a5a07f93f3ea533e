"""Filters a batch during compaction.

A record is kept if it is the last with its key, or newer than the map; a tombstone until its batch's delete horizon,
set at its first cleaning and stored in the batch (KIP-534). A batch keeps its offsets and sequence range. It stays,
empty, if it carries a producer's last sequence or ends the cleaned range. Unchanged batches are copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from oncelog.ports import Buffer
from oncelog.records.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader
from oncelog.records.builder import append_tail, assemble, build_batch
from oncelog.records.compression import Codec, compress
from oncelog.records.control import control_type
from oncelog.records.record import Record, bodies_within, record_tails, records_data, records_in
from oncelog.storage.maintenance.compacted_transactions import WalkedTransactions

# Long keys are kept as a hash; the chance that two of 10⁹ keys collide is about 10⁻²⁰.
_HASH_BYTES: Final = 16
_ENTRY_BYTES: Final = 160
"""Memory of an entry, with key and offset."""
_MIN_ENTRIES: Final = 10_000


class OffsetMap:
    """The last offset of every key in the dirty part of a log, for as many keys as fit into ``memory_bytes``."""

    __slots__ = ("_limit", "_offsets", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._limit = max(_MIN_ENTRIES, memory_bytes // _ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        # A full map ends here: this cleaning then covers less of the log.
        self.latest_offset = -1
        """The log is in the map up to here (inclusive)."""

    def __len__(self) -> int:
        return len(self._offsets)

    def is_full(self) -> bool:
        return len(self._offsets) >= self._limit

    def put(self, key: bytes, offset: int) -> None:
        """``offset`` is later than everything before."""
        self._offsets[_slot(key)] = offset

    def last_offset(self, key: bytes) -> int:
        """−1 if ``key`` is unknown."""
        return self._offsets.get(_slot(key), -1)


def _slot(key: bytes) -> bytes:
    return key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()


class LastRecord(NamedTuple):
    """The batch that carries a producer's state: its last data batch, or its last marker (``offset`` −1)."""

    offset: int
    epoch: int


def limited_records(data: Buffer, header: BatchHeader, max_bytes: int, max_record_bytes: int) -> bytes:
    body = records_data(data, 0, header, max_bytes)
    for _ in bodies_within(body, header, max_record_bytes):
        pass
    return body


class BatchFilter:
    """``upper_bound`` ends the cleaned range."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: WalkedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound: int,
        max_decompressed_bytes: int,
        max_record_bytes: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._upper_bound = upper_bound
        self._max_decompressed_bytes = max_decompressed_bytes
        self._max_record_bytes = max_record_bytes

    def retain(self, header: BatchHeader, data: Buffer) -> Buffer | None:
        """The bytes that replace the batch: itself, a smaller batch, or None. Raises CorruptBatch, RecordTooLarge."""
        body = limited_records(data, header, self._max_decompressed_bytes, self._max_record_bytes)
        records = list(records_in(body, header))
        is_empty_marker = False
        if header.is_control:
            kind = control_type(records[0].key) if records else None
            is_empty_marker = self._transactions.on_marker(header, kind)
            horizon = header.delete_horizon_ms
            drop_all = is_empty_marker and horizon is not None and horizon <= self._now_ms
        else:
            drop_all = self._transactions.on_batch(header)
        all_indexes = range(len(records))
        kept = [] if drop_all else all_indexes if header.is_control else self._kept(header, records)
        if not kept:
            return self._empty(header) if self._must_stay(header) else None
        needs_horizon = is_empty_marker or any(records[index].value is None for index in kept)
        sets_horizon = needs_horizon and header.delete_horizon_ms is None
        if len(kept) == len(records) and not sets_horizon:
            return data
        horizon_ms = self._horizon_ms if sets_horizon else header.delete_horizon_ms
        return _rebuilt(header, body, records, kept, horizon_ms)

    def _kept(self, header: BatchHeader, records: list[Record]) -> list[int]:
        offsets = self._offsets
        horizon = header.delete_horizon_ms
        keeps_tombstones = horizon is None or self._now_ms < horizon
        kept = []
        # By index, not by offset: older versions accepted batches with repeated offsets.
        for index, record in enumerate(records):
            if record.offset > offsets.latest_offset:
                kept.append(index)
            elif record.key is None or record.offset < offsets.last_offset(record.key):
                continue
            elif record.value is not None or keeps_tombstones:
                kept.append(index)
        return kept

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._upper_bound:
            return True
        # Recovery reads a producer's state from this batch.
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    @staticmethod
    def _empty(header: BatchHeader) -> bytearray:
        log_append_time_ms = header.max_timestamp if header.is_log_append_time else None
        return build_batch(
            (),
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            log_append_time_ms=log_append_time_ms,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )


def _rebuilt(
    header: BatchHeader, data: bytes, records: list[Record], kept: Sequence[int], delete_horizon_ms: int | None
) -> bytearray:
    base_timestamp = records[kept[0]].timestamp if delete_horizon_ms is None else delete_horizon_ms
    # Keys, values and headers are copied as bytes: header names need not be valid text.
    tails = list(record_tails(data, header))
    body = bytearray()
    for index in kept:
        record = records[index]
        append_tail(body, tails[index], record.offset - header.base_offset, record.timestamp - base_timestamp)
    attributes = int(header.codec) | TRANSACTIONAL * header.is_transactional | CONTROL * header.is_control
    latest = max(records[index].timestamp for index in kept)
    if header.is_log_append_time:
        attributes |= LOG_APPEND_TIME
        latest = header.max_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    encoded = len(kept), header.last_offset, base_timestamp, max(latest, NO_TIMESTAMP)
    payload = body if header.codec is Codec.NONE else compress(header.codec, body)
    identity = header.producer_id, header.producer_epoch, header.base_sequence
    return assemble(payload, encoded, header.base_offset, header.partition_leader_epoch, attributes, *identity)
