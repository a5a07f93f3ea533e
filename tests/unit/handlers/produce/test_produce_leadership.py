"""acks=all of a large Produce: what was appended in a leadership that has ended since is not acknowledged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, TopicName, TopicPartition
from oncelog.handlers.produce.handler import reject_if_leadership_lost
from oncelog.handlers.produce.partition_append import PartitionAppend
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.produce import PartitionProduceResponse

PARTITION = TopicPartition(TopicName("t"), 0)


def leader(epoch: int, high_watermark: int) -> Any:
    return SimpleNamespace(leader_epoch=epoch, log=SimpleNamespace(high_watermark=high_watermark))


def appended(led: Any, end: int) -> PartitionAppend:
    records = memoryview(build_batch([Record(0, 0, None, b"x")]))
    append = PartitionAppend(PARTITION, records, PartitionProduceResponse(index=0, base_offset=end - 1))
    append.leader, append.end = led, Offset(end)
    return append


@pytest.mark.parametrize("now", [ErrorCode.NOT_LEADER_OR_FOLLOWER, leader(2, 100)])
def test_a_high_watermark_of_another_leadership_vouches_for_nothing(now: Any) -> None:
    append = appended(leader(1, 100), end=10)
    context: Any = SimpleNamespace(partitions=SimpleNamespace(leader_log=lambda _partition: now))
    reject_if_leadership_lost([append], context)
    assert append.result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append.result.base_offset == -1
    assert not append.is_pending


@pytest.mark.parametrize(("high_watermark", "waits"), [(9, True), (10, False)])
def test_the_leadership_that_goes_on_is_waited_for(high_watermark: int, waits: bool) -> None:
    led = leader(1, high_watermark)
    append = appended(led, end=10)
    context: Any = SimpleNamespace(partitions=SimpleNamespace(leader_log=lambda _partition: led))
    reject_if_leadership_lost([append], context)
    assert append.result.error_code == ErrorCode.NONE
    assert append.is_pending is waits
