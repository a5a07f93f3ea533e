"""Whole batches of a segment as numpy columns, a row a batch: what the audit's readers give and its checks take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oncelog.records.batch import CONTROL, TRANSACTIONAL

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches that follow each other, as columns; ``start`` is where ``data`` begins in the file.

    ``position`` is in the file. ``sound`` is False for batches whose checksum is wrong (all True if not asked for).
    """

    data: memoryview
    start: int
    position: Integers
    size_bytes: Integers
    base_offset: Integers
    last_offset: Integers
    record_count: Integers
    attributes: Integers
    max_timestamp: Integers
    base_timestamp: Integers
    producer_id: Integers
    producer_epoch: Integers
    base_sequence: Integers
    sound: Flags
    is_message_set: bool = False
    """True for entries of formats 0 and 1, each a row; ``data`` has no batches then."""

    def __len__(self) -> int:
        return len(self.position)

    @property
    def is_control(self) -> Flags:
        """Control batches."""
        found: Flags = (self.attributes & CONTROL) != 0
        return found

    @property
    def is_transactional(self) -> Flags:
        """Batches of transactions, their markers included."""
        found: Flags = (self.attributes & TRANSACTIONAL) != 0
        return found
