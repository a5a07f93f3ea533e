"""Records in flight from leaders that tell, from leaders that do not, and from the log instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncelog.admin.group_descriptions import GroupDescription, MemberRow
from oncelog.admin.share_deliveries import ShareBatchRow, ShareDeliveryRow, as_led, share_deliveries
from oncelog.admin.share_groups import ShareOffsetRow
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.wire.messages import describe_share_group_offsets as wire
from tests.unit.client.programs.fake_brokers import Runner
from tests.unit.client.programs.fake_brokers import runner as runner

PLACE = TopicPartition(TopicName("t"), 0)
MEMBER = MemberRow("m1", None, "worker", "/10.0.0.7", (PLACE,), "share")
GROUP = GroupDescription("g", "Stable", "share", "share", "simple", 1, [MEMBER], 3, 3)


def answering(runner: Runner, *groups: wire.DescribeShareGroupOffsetsResponseGroup) -> list[Any]:
    """Let the leader of ``t-0`` answer so; the requests that it gets."""
    runner.brokers.leaders["t"] = {0: 3}
    seen: list[Any] = []

    def answer(broker: int, message: wire.DescribeShareGroupOffsetsRequest) -> wire.DescribeShareGroupOffsetsResponse:
        seen.append((broker, message.led_here, [topic.partitions for topic in message.groups[0].topics or ()]))
        return wire.DescribeShareGroupOffsetsResponse(groups=list(groups))

    runner.brokers.answers[wire.DescribeShareGroupOffsetsRequest] = answer
    return seen


def group(*partitions: wire.DescribeShareGroupOffsetsResponsePartition, error_code: int = 0) -> Any:
    topic = wire.DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=list(partitions))
    return wire.DescribeShareGroupOffsetsResponseGroup(
        group_id="g", topics=[topic] if partitions else [], error_code=error_code
    )


def told(**fields: Any) -> wire.DescribeShareGroupOffsetsResponsePartition:
    return wire.DescribeShareGroupOffsetsResponsePartition(
        start_offset=4,
        first_offsets=[4, 6],
        last_offsets=[5, 6],
        delivery_states=[1, 2],
        delivery_counts=[2, 1],
        member_ids=["m1", ""],
        locked_since_ms=[1_000, 0],
        locked_until_ms=[31_000, 0],
        in_flight_records=3,
        most_in_flight=2000,
        **fields,
    )


def test_a_leader_tells_who_holds_what(runner: Runner) -> None:
    seen = answering(runner, group(told(batches_left_off=7)))
    [row], unanswered = runner.run(share_deliveries(runner.cluster, "g", [PLACE]))
    assert seen == [(3, True, [[0]])]
    assert row.batches == (
        ShareBatchRow(4, 5, "acquired", 2, "m1", 1_000, 31_000),
        ShareBatchRow(6, 6, "acknowledged", 1),
    )
    assert (row.source, row.in_flight_records, row.most_in_flight, row.batches_left_off) == ("leader", 3, 2000, 7)
    assert (row.acquired, row.most_deliveries, row.start_offset, unanswered) == (2, 2, 4, [])


def test_leaders_that_answer_as_coordinators_tell_nothing(runner: Runner) -> None:
    """Apache Kafka passes over the field: a coordinator answers as ever, and any other broker refuses."""
    for answer in (
        group(wire.DescribeShareGroupOffsetsResponsePartition(start_offset=4, lag=9)),
        group(error_code=ErrorCode.NOT_COORDINATOR),
    ):
        answering(runner, answer)
        rows, unanswered = runner.run(share_deliveries(runner.cluster, "g", [PLACE]))
        assert (rows, unanswered) == ([], [])


@pytest.mark.parametrize(
    ("code", "reason"), [(int(ErrorCode.GROUP_AUTHORIZATION_FAILED), "GROUP_AUTHORIZATION_FAILED"), (9999, "9999")]
)
def test_a_refusal_is_reported(runner: Runner, code: int, reason: str) -> None:
    answering(runner, group(error_code=code))
    rows, [silent] = runner.run(share_deliveries(runner.cluster, "g", [PLACE]))
    assert (rows, silent.broker, silent.reason) == ([], 3, reason)


def test_offsets_are_the_leaders_where_they_tell() -> None:
    unknown = ShareOffsetRow("g", "t", 0, None, 0, 20, None, 0)
    row = ShareDeliveryRow("g", "t", 0, "leader", (ShareBatchRow(6, 6, "archived", 1),), 3, 2000, start_offset=4)
    [led] = as_led(GROUP, [unknown], [row])
    assert (led.start_offset, led.lag) == (4, 15)
    cut = ShareDeliveryRow("g", "t", 0, "leader", (), 3, 2000, batches_left_off=1, start_offset=4)
    assert [(item.start_offset, item.lag) for item in as_led(GROUP, [unknown], [cut])] == [(4, None)]
    log = ShareDeliveryRow("g", "t", 0, "log", (), start_offset=4)
    assert as_led(GROUP, [unknown], [log]) == [unknown]
    # Its offsets may have been reset since.
    assert as_led(replace(GROUP, members=[]), [unknown], [row]) == [unknown]
