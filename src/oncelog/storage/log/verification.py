"""Verification of batches in place: their checksums, which a Fetch that hands out ranges of files passes over."""

from __future__ import annotations

from oncelog.base.ids import Offset
from oncelog.records.batch import CorruptBatch, TruncatedBatch, crc_matches, iter_headers
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import read_batches


def first_damaged(log: PartitionLog, offset: Offset, max_bytes: int) -> Offset | None:
    """The offset of the first batch that is damaged among those a replica would be given from ``offset`` on; None if
    all are sound. The first 17 bytes of a batch are in no checksum: of these a wrong length or format is found.

    Raises OffsetOutOfRange, OSError.
    """
    sound_to: int | None = None
    for chunk in read_batches(log, offset, max_bytes=max_bytes, up_to_log_end=True).chunks:
        data = chunk.file.read(chunk.position, chunk.size_bytes)
        try:
            for position, header in iter_headers(data):
                if not crc_matches(data, position, header):
                    return offset if sound_to is None else Offset(sound_to)
                sound_to = header.next_offset
        except TruncatedBatch:
            return offset if sound_to is None else None  # the first batch is there as a whole, if its length is right
        except CorruptBatch:
            return offset if sound_to is None else Offset(sound_to)
    return None
