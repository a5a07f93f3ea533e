"""Clean logs of very many small transactions, written segment by segment at some 300,000 batches a second."""

from __future__ import annotations

import struct
from pathlib import Path

from crc32c import crc32c

from oncelog.records.batch import ATTRIBUTES_POSITION, CRC_POSITION
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.internal.transaction_records import TransactionValue, encode_key, encode_value
from oncelog.records.record import Record
from tests.unit.spark.audit.logs import COMPLETE_COMMIT, TIME

SEGMENT_BYTES = 32 << 20
LAST_EPOCH = 32_000
_TIMES = struct.Struct(">qq")
_PRODUCER = struct.Struct(">qh")


def write_transactions(directory: Path, count: int, *, partitions: int = 4, value_bytes: int = 60) -> int:
    """``count`` transactions of Transactions V2, one batch and its marker each, dealt out to partitions; a tenth abort.
    The coordinator's log is compacted: one state a producer id. Bytes written."""
    size = 0
    states: list[tuple[int, int]] = []
    for partition in range(partitions):
        size += _write_partition(directory / f"t-{partition}", partition, count // partitions, value_bytes, states)
    log = directory / "__transaction_state-0"
    log.mkdir(parents=True)
    batches = bytearray()
    for number, (pid, epoch) in enumerate(states):
        ended = TIME + 2 * count
        value = TransactionValue(pid, epoch, 60_000, COMPLETE_COMMIT, None, ended, ended, client_transaction_version=2)
        record = Record(5 * number, ended, encode_key(f"app-{pid}"), encode_value(value, 1))
        batches += build_batch([record], base_offset=5 * number)
    (log / f"{0:020d}.log").write_bytes(batches)
    return size


def _write_partition(path: Path, partition: int, count: int, value_bytes: int, states: list[tuple[int, int]]) -> int:
    path.mkdir(parents=True)
    data = build_batch(
        [Record(0, TIME, b"key", bytes(value_bytes))], producer_id=1, base_sequence=0, transactional=True
    )
    ends = [
        end_transaction_marker(
            producer_id=1, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp=TIME, base_offset=0
        )
        for committed in (True, False)
    ]
    offset, written = 0, 0
    segment, aborted, base = bytearray(), bytearray(), 0
    for number in range(count):
        pid, epoch = partition + 1000 * (number // LAST_EPOCH), number % LAST_EPOCH
        is_aborted = number % 10 == 3
        _append(segment, data, offset, pid, epoch, TIME + offset)
        _append(segment, ends[is_aborted], offset + 1, pid, epoch + 1, TIME + offset + 1)
        if is_aborted:
            aborted += struct.pack(">hqqqq", 0, pid, offset, offset + 1, offset + 2)
        offset += 2
        last = number == count - 1
        if epoch == LAST_EPOCH - 1 or last:
            states.append((pid, epoch + 1))
        if len(segment) >= SEGMENT_BYTES or last:
            (path / f"{base:020d}.log").write_bytes(segment)
            (path / f"{base:020d}.txnindex").write_bytes(aborted)
            written += len(segment)
            segment, aborted, base = bytearray(), bytearray(), offset
    return written


def _append(segment: bytearray, batch: bytearray, offset: int, pid: int, epoch: int, time: int) -> None:
    struct.pack_into(">q", batch, 0, offset)
    _TIMES.pack_into(batch, 27, time, time)
    _PRODUCER.pack_into(batch, 43, pid, epoch)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    segment += batch
