"""Record validation before the append: at once for batches that are small, by a worker for those that may not be.

A batch of some kilobytes may have millions of records, or become a hundred megabytes. The append takes the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.units import KIB
from oncelog.handlers.broker.slices import SliceBudget
from oncelog.handlers.broker.waits import NextSlice, Offload, Steps
from oncelog.handlers.produce.partition_append import PartitionAppend
from oncelog.records.batch import CODEC_MASK
from oncelog.storage.log_config import AT_ONCE_BYTES

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context


_TURN_BYTES: Final = 4 * AT_ONCE_BYTES
"""Bytes of records that are validated before others have their turn."""
_SHORT_BYTES: Final = 2 * KIB
"""Records that are validated within the append, whatever they look like."""


def may_take_long(appends: Sequence[PartitionAppend]) -> bool:
    """True if validating the records may take long: of compressed ones no size is known."""
    size = 0
    for each in appends:
        size += len(each.records)
        if size > _SHORT_BYTES or each.attributes & CODEC_MASK:
            return True
    return False


def validate(appends: Sequence[PartitionAppend], context: Context) -> Steps[bool]:
    """Validate the records of all batches. Returns True if others had their turn meanwhile."""
    left = _TURN_BYTES
    budget = SliceBudget(context.partitions)
    gave_way = False
    for each in appends:
        if budget.spent() or left <= 0:
            yield NextSlice()
            left, gave_way = _TURN_BYTES, True
        leader = each.leader
        if leader is None:
            continue
        each.validated = leader.log.validate_small(each.records, context.now_ms)
        if each.validated is None:
            each.validated = yield Offload(leader.log.validate_records(each.records, context.now_ms))
            gave_way = True
        else:
            left -= each.validated.size_bytes
    return gave_way
