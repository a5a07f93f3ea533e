"""Whole batches of a segment as numpy columns, one row per batch: written by the readers, read by the checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oncelog.records.batch import CONTROL, TRANSACTIONAL

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BatchTable:
    """Whole consecutive batches as columns; ``position`` and ``start`` (that of ``data``) count from the start of the
    file.

    ``sound`` is False for batches with a wrong checksum, and True for all if checksums are not checked.
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
    # True for entries of formats 0 and 1, one row each; ``data`` then has no batches.
    is_message_set: bool = False

    def __len__(self) -> int:
        return len(self.position)

    @property
    def is_control(self) -> Flags:
        control: Flags = (self.attributes & CONTROL) != 0
        return control

    @property
    def is_transactional(self) -> Flags:
        transactional: Flags = (self.attributes & TRANSACTIONAL) != 0
        return transactional
