"""The end of a partition's log on disk: the offset after its last whole batch.

Of several replicas the one that reaches furthest tells the history. Neither names nor sizes of files say which:
replicas roll at different offsets, and one that has just rolled has an empty last segment.
"""

from __future__ import annotations

import os
from typing import Final

from oncelog.spark.audit.segments.batch_headers import PIECE_BYTES, walk
from oncelog.storage.errors import CorruptFile
from oncelog.storage.file_names import LOG, OFFSET_INDEX
from oncelog.storage.index.offset_index import load_offset_index

_MAX_INDEX_BYTES: Final = 64 << 20
_FIRST_AND_DELTA: Final = slice(0, 27)


def log_end(path: str, base_offset: int) -> int:
    """The offset after the last whole batch of a segment file; ``base_offset`` if there is none, or the file cannot be
    read."""
    end = base_offset
    try:
        with open(path, "rb", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            position = position_before(path, base_offset, 1 << 62, size)
            while position < size:
                data = os.pread(file.fileno(), PIECE_BYTES, position)
                places, after, _ = walk(data, position, size)
                if not places:
                    break
                header = data[places[-1] :][_FIRST_AND_DELTA]
                end = int.from_bytes(header[:8], "big") + int.from_bytes(header[23:27], "big") + 1
                position += after
    except OSError:
        pass
    return max(end, base_offset)


def position_before(path: str, base_offset: int, offset: int, size: int) -> int:
    """A position in a segment file at or before the batch with ``offset``, by the index, else 0."""
    index = path.removesuffix(LOG) + OFFSET_INDEX
    try:
        if os.path.getsize(index) > _MAX_INDEX_BYTES:
            return 0
        with open(index, "rb") as file:
            return load_offset_index(file.read(), base_offset, size).entry_before(offset)[1]
    except (OSError, CorruptFile):
        return 0
