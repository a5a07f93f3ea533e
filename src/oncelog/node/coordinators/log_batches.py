"""Batches of coordinator shards: builds what a shard appends, and replays its log in slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import Offset, ProducerId
from oncelog.base.units import MIB
from oncelog.core.groups.shard import GroupShard
from oncelog.core.transactions.shard import TransactionShard
from oncelog.records.batch import BatchHeader, CorruptBatch, TruncatedBatch, crc_matches, iter_headers
from oncelog.records.builder import build_batch
from oncelog.records.control import end_transaction_marker_of
from oncelog.records.record import Record, read_keys_and_values, read_records
from oncelog.storage.log.read import read_batches

if TYPE_CHECKING:
    from oncelog.core.groups.model import Producer
    from oncelog.core.share_state.shard import ShareStateShard
    from oncelog.storage.log.partition_log import PartitionLog

# Base sequence of every batch of transactional offsets, as in Apache Kafka: these batches are not numbered.
_BASE_SEQUENCE: Final = 0

KeysAndValues = Sequence[tuple[bytes, bytes | None]]


def batch_of(contents: KeysAndValues, now_ms: int) -> memoryview:
    return memoryview(build_batch(_records(contents, now_ms)))


def transactional_batch_of(contents: KeysAndValues, now_ms: int, producer: Producer) -> memoryview:
    batch = build_batch(
        _records(contents, now_ms),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=_BASE_SEQUENCE,
        transactional=True,
    )
    return memoryview(batch)


def _records(contents: KeysAndValues, now_ms: int) -> list[Record]:
    return [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(contents)]


SLICE_BYTES: Final = MIB // 8
"""Bytes read by one slice: some milliseconds of the loop."""
MAX_BATCH_BYTES: Final = 128 * MIB
"""Bound on a batch's decompressed size."""

ApplyBatch = Callable[[bytes, int, BatchHeader], None]
"""Arguments: data, position, header. Applies one batch of the log."""


def apply_slice(apply: ApplyBatch, log: PartitionLog, offset: Offset) -> Offset | None:
    """Apply about ``SLICE_BYTES`` of batches from ``offset`` on; returns the next offset, None at the end. Raises
    CorruptBatch at a damaged batch; then no later one is applied.
    """
    if offset >= log.high_watermark:
        return None
    read = read_batches(log, offset, max_bytes=SLICE_BYTES, isolation_read_committed=False, minimum_one=True)
    data = b"".join(piece.file.read(piece.position, piece.size_bytes) for piece in read.chunks)
    following = offset
    try:
        for position, header in iter_headers(data):
            if not crc_matches(data, position, header):
                raise CorruptBatch(f"checksum of the batch at offset {header.base_offset} differs")
            apply(data, position, header)
            # A slice usually ends inside a batch; the next slice begins with that batch.
            following = Offset(header.next_offset)
    except TruncatedBatch:
        if following == offset:  # the first batch is always read whole, so its length field is wrong
            raise
    return following if following > offset else None


def group_replayer(shard: GroupShard) -> ApplyBatch:
    """Applies batches of ``__consumer_offsets``; offsets of a transaction stay pending until its marker is read."""

    def apply(data: bytes, position: int, header: BatchHeader) -> None:
        producer_id = ProducerId(header.producer_id)
        for record in read_records(data, position, header, MAX_BATCH_BYTES):
            if header.is_control:
                marker = end_transaction_marker_of(record)
                if marker is not None:
                    shard.apply_end_transaction(producer_id, committed=marker.committed)
            elif record.key is not None and header.is_transactional:
                shard.apply(record.key, record.value, producer_id=producer_id)
            elif record.key is not None:
                shard.apply(record.key, record.value)

    return apply


def transaction_replayer(shard: TransactionShard) -> ApplyBatch:
    def apply(data: bytes, position: int, header: BatchHeader) -> None:
        if header.is_control:
            return
        for key, value in read_keys_and_values(data, position, header, MAX_BATCH_BYTES):
            if key is not None:
                shard.apply(key, value)

    return apply


def share_state_replayer(shard: ShareStateShard) -> ApplyBatch:
    def apply(data: bytes, position: int, header: BatchHeader) -> None:
        if header.is_control:
            return
        for record in read_records(data, position, header, MAX_BATCH_BYTES):
            if record.key is not None:
                shard.apply(record.key, record.value, Offset(record.offset))

    return apply
