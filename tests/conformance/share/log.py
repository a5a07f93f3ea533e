"""The log under a share partition: batches with offsets, producers and markers, without bytes."""

from __future__ import annotations

import random
from typing import Any, NamedTuple


class LogBatch(NamedTuple):
    """The parts of a batch's header that the share partition reads."""

    base_offset: int
    last_offset: int
    producer_id: int
    kind: str
    """``plain``, ``transactional``, or the markers ``commit`` and ``abort``."""

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def is_transactional(self) -> bool:
        return self.kind != "plain"

    @property
    def is_control(self) -> bool:
        return self.kind in ("commit", "abort")


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int


class ShareLog:
    """A log that grows, loses records to retention and compaction, and has transactions."""

    def __init__(self, entropy: random.Random, start: int) -> None:
        self._entropy = entropy
        self.batches: list[LogBatch] = []
        self.aborted: list[Aborted] = []
        self._open: dict[int, int] = {}
        self.end = start
        self.start = start

    def grow(self, transactions: bool) -> None:
        entropy = self._entropy
        for _ in range(entropy.randint(1, 4)):
            if transactions and self._open and entropy.random() < 0.4:
                self._end_transaction()
                continue
            count = entropy.choice([1, 1, 2, 5, 10, 10, 25])
            producer_id, kind = -1, "plain"
            if transactions and entropy.random() < 0.7:
                producer_id, kind = entropy.randint(0, 2), "transactional"
                self._open.setdefault(producer_id, self.end)
            self._append(LogBatch(self.end, self.end + count - 1, producer_id, kind))

    def _end_transaction(self) -> None:
        producer_id = self._entropy.choice(sorted(self._open))
        first = self._open.pop(producer_id)
        kind = self._entropy.choice(["commit", "abort"])
        if kind == "abort":
            self.aborted.append(Aborted(producer_id, first, self.end))
        self._append(LogBatch(self.end, self.end, producer_id, kind))

    def _append(self, batch: LogBatch) -> None:
        self.batches.append(batch)
        self.end = batch.last_offset + 1

    def compact(self) -> None:
        """Remove batches, but none of an open transaction, nor markers."""
        stable = self.stable_end
        self.batches = [
            batch
            for batch in self.batches
            if batch.is_control or batch.last_offset >= stable or self._entropy.random() < 0.8
        ]

    def move_start(self, offset: int) -> None:
        self.start = offset
        self.batches = [batch for batch in self.batches if batch.last_offset >= offset]

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min(self._open.values(), default=self.end)

    def read(self, offset: int, most: int, *, committed: bool) -> list[LogBatch]:
        end = self.stable_end if committed else self.end
        return [batch for batch in self.batches if batch.last_offset >= offset and batch.base_offset < end][:most]

    def aborted_in(self, batches: list[LogBatch]) -> list[tuple[int, int]]:
        """Aborted transactions that the batches overlap, as producer id and first offset."""
        first, last = batches[0].base_offset, batches[-1].last_offset
        return [
            (a.producer_id, a.first_offset) for a in self.aborted if a.first_offset <= last and a.marker_offset >= first
        ]


def as_json(batches: list[LogBatch]) -> list[list[Any]]:
    return [list(batch) for batch in batches]
