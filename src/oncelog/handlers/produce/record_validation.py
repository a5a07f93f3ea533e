"""Record validation that is too much for the loop: a worker does it before the append.

A topic may ask for a look at every record (keys of compacted topics, timestamps) or want another compression, and a
batch of some kilobytes may have millions of records, or become a hundred megabytes. The append then takes the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncelog.handlers.produce.partition_append import PartitionAppend
from oncelog.handlers.support.waits import NextSlice, Offload, Steps
from oncelog.handlers.support.yielding import SliceBudget
from oncelog.storage.log.record_validation import AT_ONCE_BYTES, may_be_much, size_to_look_into

if TYPE_CHECKING:
    from oncelog.handlers.support.context import Context


def may_have_many_records(appends: Sequence[PartitionAppend]) -> bool:
    """True if it may take long to look into the records, should their topics ask for that."""
    left = AT_ONCE_BYTES
    for each in appends:
        left -= len(each.records)
        if left < 0 or may_be_much(each.records):
            return True
    return False


def validate_in_worker(appends: Sequence[PartitionAppend], context: Context) -> Steps[None]:
    """Have the records validated whose topics ask for that. Batches that are small together are left to the append."""
    left = AT_ONCE_BYTES
    budget = SliceBudget(context.partitions)
    for each in appends:
        if budget.spent():
            yield NextSlice()
        leader, records = each.leader, each.records
        if leader is None or not leader.log.needs_record_validation(records, context.now_ms):
            continue
        size = size_to_look_into(records) if left > 0 else None
        if size is not None and size <= left:
            left -= size
        else:
            each.validated = yield Offload(leader.log.validate_records(records, context.now_ms))
