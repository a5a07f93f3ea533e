"""Producer ids, unique over all brokers and the life of the cluster (KIP-98, KIP-730).

The tree has the newest allocated block of 1000. A broker allocates the next one by a conditional write and uses its ids
only once that is durable. Unused ids of a stopped broker are lost.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.ids import BrokerId, ProducerId
from oncelog.base.tree import Create, Operation, Set
from oncelog.base.units import INT64_MAX
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage

BLOCK_SIZE: Final = 1000
# Early, so that clients seldom wait.
PREFETCH_AFTER: Final = BLOCK_SIZE * 9 // 10
"""Ids used of a block before the next one is requested."""


class ProducerIdsExhausted(Exception):
    """All 2⁶³ ids are allocated."""


def next_block(image: ClusterImage, broker_id: BrokerId) -> tuple[Operation, int]:
    """The write that allocates the next block, and its first id."""
    first = 0 if image.producer_id_block is None else image.producer_id_block[1] + 1
    # Producer ids are int64 on the wire.
    if first > INT64_MAX - BLOCK_SIZE:
        raise ProducerIdsExhausted
    value = layout.producer_id_block_value(broker_id, first, first + BLOCK_SIZE - 1)
    version = image.versions.get(layout.PRODUCER_ID_BLOCK)
    path = layout.PRODUCER_ID_BLOCK
    return (Create(path, value) if version is None else Set(path, value, version)), first


class ProducerIds:
    """The node requests a block when ``wants_block`` is true."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._following: int | None = None
        self._is_block_requested = False

    @property
    def wants_block(self) -> bool:
        """False while a request is pending."""
        return (
            not self._is_block_requested
            and self._following is None
            and self._end - self._next <= BLOCK_SIZE - PREFETCH_AFTER
        )

    def block_requested(self) -> None:
        self._is_block_requested = True

    def granted(self, first: int) -> None:
        """Add the block that begins with ``first``, now durably allocated to this broker."""
        self._is_block_requested = False
        if self._next == self._end:
            self._next, self._end = first, first + BLOCK_SIZE
        else:
            # The present block is used up first.
            self._following = first

    def failed(self) -> None:
        self._is_block_requested = False

    def take(self) -> ProducerId | None:
        """Returns a new id, or None until a block is granted."""
        if self._next == self._end:
            if self._following is None:
                return None
            self._next, self._end = self._following, self._following + BLOCK_SIZE
            self._following = None
        taken = self._next
        self._next += 1
        return ProducerId(taken)
