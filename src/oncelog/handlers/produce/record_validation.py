"""Records that have to be looked into, or built anew, before they are appended, and are too many for that.

A topic may ask for a look at every record (keys of compacted topics, timestamps) or want another compression, and a
batch of some kilobytes may have millions of records, or become a hundred megabytes. So that is done first, aside; the
append itself then takes what was found. Not an API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.produce.append import name_of, records_of
from oncelog.handlers.support.waits import NextSlice, Offload, Steps
from oncelog.handlers.support.yielding import ITEMS_WHILE_CREATING, SliceBudget
from oncelog.storage.log.record_validation import AT_ONCE_BYTES, ValidatedRecords, may_be_much, size_to_look_into

if TYPE_CHECKING:
    from oncelog.handlers.support.context import Context
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def may_have_many_records(request: ProduceRequest) -> bool:
    """Whether it may take long to look into the records of a request, if somebody asks for that."""
    left = AT_ONCE_BYTES
    for topic in request.topic_data:
        for data in topic.partition_data:
            batch = records_of(data)
            left -= len(batch)
            if left < 0 or may_be_much(batch):
                return True
    return False


def needs_validation(request: ProduceRequest, context: Context) -> bool:
    """Whether somebody does ask; of very many partitions nobody knows without looking at them in turns."""
    if sum([len(topic.partition_data) for topic in request.topic_data]) > ITEMS_WHILE_CREATING:
        return True
    return any(_asked(topic, data, context) for topic in request.topic_data for data in topic.partition_data)


def validated_records(request: ProduceRequest, context: Context) -> Steps[Mapping[int, ValidatedRecords]]:
    """What was found in batches whose topics ask for a look, by the identity of their partition's data. Those that are
    little enough together are left to the append."""
    found: dict[int, ValidatedRecords] = {}
    left = AT_ONCE_BYTES
    budget = SliceBudget(context.broker)
    for topic in request.topic_data:
        for data in topic.partition_data:
            if budget.spent():
                yield NextSlice()
            log = _asked(topic, data, context)
            if log is None or not context.allows(Operation.WRITE, ResourceType.TOPIC, log.partition.topic):
                continue
            size = size_to_look_into(records_of(data)) if left > 0 else None
            if size is not None and size <= left:
                left -= size
            else:
                found[id(data)] = yield Offload(log.validate_records(records_of(data), context.now_ms))
    return found


def _asked(topic: TopicProduceData, data: PartitionProduceData, context: Context) -> PartitionLog | None:
    """The log that wants to have the records looked into, if there is one and it does."""
    name = topic.name or name_of(topic.topic_id, context)
    log = context.broker.log(TopicPartition(TopicName(name), data.index))
    return log if log is not None and log.needs_record_validation(records_of(data), context.now_ms) else None
