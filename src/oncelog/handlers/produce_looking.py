"""Batches of very many records, looked into before they are appended, in turns with other requests.

A topic may ask for a look at every record (keys of compacted topics, timestamps), and a batch of a megabyte may have
millions. So that is done first and a few thousand at a time; the append itself then takes what was found. Not an API.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.handlers.waits import NextTurn, Steps, UntilAlone
from oncelog.storage.append_validation import Looked, has_many_records

if TYPE_CHECKING:
    from oncelog.handlers.context import Context
    from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Records = Callable[["PartitionProduceData"], memoryview]
PartitionOf = Callable[["TopicProduceData", int], TopicPartition]


def any_has_many(request: ProduceRequest, records: Records) -> bool:
    """Whether some batch says that it has very many records."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if has_many_records(records(data)):
                return True
    return False


def looked_into(
    request: ProduceRequest, records: Records, partition_of: PartitionOf, context: Context
) -> Steps[Mapping[int, Looked]]:
    """What was found in such batches where their topic asks for a look, by the identity of their partition's data."""
    found: dict[int, Looked] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            log = context.broker.log(partition_of(topic, data.index)) if has_many_records(records(data)) else None
            if log is None:
                continue
            seen = yield from _looked(log.look_into(records(data), context.now_ms), context)
            if seen is not None:
                found[id(data)] = seen
    return found


def _looked(steps: Generator[None, None, Looked | None], context: Context) -> Steps[Looked | None]:
    """The first pause comes before anything is decompressed, if anything is to be."""
    seen: Looked | None
    try:
        next(steps)
    except StopIteration as end:
        seen = end.value
        return seen
    yield UntilAlone()
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                seen = end.value
                return seen
            yield NextTurn()
    finally:
        steps.close()  # it has what was decompressed
        context.broker.alone_over()
