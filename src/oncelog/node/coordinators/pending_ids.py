"""Transactional ids whose last record may not be durable yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from oncelog.base.ids import Offset, TransactionalId


class PendingIds:
    """The end of each id's last record, in order: an answer about an id waits for its own records, not for others'."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        # A plain dict keeps the slots of removed keys, so that finding its first key grows linear; an OrderedDict does
        # not.
        self._ends: OrderedDict[TransactionalId, Offset] = OrderedDict()

    def appended(self, ids: Iterable[TransactionalId], end: Offset, high_watermark: Offset) -> None:
        """Records of ``ids`` were appended, the last before ``end``."""
        for name in ids:
            self._ends[name] = end
            self._ends.move_to_end(name)
        while self._ends and self._ends[oldest := next(iter(self._ends))] <= high_watermark:
            del self._ends[oldest]

    def end_of(self, name: TransactionalId) -> Offset | None:
        """The offset after its last record, None where that is durable."""
        return self._ends.get(name)
