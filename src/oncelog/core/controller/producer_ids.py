"""Producer ids: never given twice, by any broker, in the cluster's life (KIP-98, KIP-730).

The tree holds the newest block of 1000 that was taken. A broker takes the next by a conditional write and gives ids
out of it only when that write is durable; it asks for another while a tenth of its block is left, so that clients
seldom wait. Ids that a broker has not given out when it stops are lost, which is harmless.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.ids import BrokerId, ProducerId
from oncelog.base.tree import Create, Operation, Set
from oncelog.base.units import INT64_MAX
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage

BLOCK_SIZE: Final = 1000
PREFETCH_AFTER: Final = BLOCK_SIZE * 9 // 10
"""Ids given out of a block after which the next one is asked for."""


class ProducerIdsExhausted(Exception):
    """All 2⁶³ ids are taken."""


def next_block(image: ClusterImage, broker_id: BrokerId) -> tuple[Operation, int]:
    """The write that takes the next block for this broker, and the block's first id."""
    first = 0 if image.producer_id_block is None else image.producer_id_block[1] + 1
    if first > INT64_MAX - BLOCK_SIZE:
        raise ProducerIdsExhausted
    value = layout.producer_id_block_value(broker_id, first, first + BLOCK_SIZE - 1)
    version = image.versions.get(layout.PRODUCER_ID_BLOCK)
    path = layout.PRODUCER_ID_BLOCK
    return (Create(path, value) if version is None else Set(path, value, version)), first


class ProducerIds:
    """Gives ids out of the blocks that are durable. The node asks for blocks when ``wants_block``."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._following: int | None = None
        self._asked = False

    @property
    def wants_block(self) -> bool:
        """True if a block should be asked for now; False while one is on its way."""
        return not self._asked and self._following is None and self._end - self._next <= BLOCK_SIZE - PREFETCH_AFTER

    def asked(self) -> None:
        """Note that a block was asked for."""
        self._asked = True

    def granted(self, first: int) -> None:
        """Take the block that begins with ``first``, once it is durably this broker's."""
        self._asked = False
        if self._next == self._end:
            self._next, self._end = first, first + BLOCK_SIZE
        else:
            self._following = first

    def failed(self) -> None:
        """Note that the block asked for could not be taken; it is wanted again."""
        self._asked = False

    def take(self) -> ProducerId | None:
        """A new id, None when there is none until a block is granted."""
        if self._next == self._end:
            if self._following is None:
                return None
            self._next, self._end = self._following, self._following + BLOCK_SIZE
            self._following = None
        taken = self._next
        self._next += 1
        return ProducerId(taken)
