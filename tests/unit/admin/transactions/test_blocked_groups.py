"""Groups behind a last stable offset, from scripted brokers."""

from __future__ import annotations

from oncelog.admin.transactions.blocked_groups import GroupBehind, groups_behind
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.client.programs.fake_brokers import Runner
from tests.unit.client.programs.fake_brokers import runner as runner

AT = TopicPartition(TopicName("t"), 0)


def test_groups_of_both_protocols_are_looked_at_and_share_groups_are_not(runner: Runner) -> None:
    types = {"old": "classic", "new": "consumer", "flow": "streams", "queue": "share"}

    def listed(broker: int, message: ListGroupsRequest) -> ListGroupsResponse:
        rows = types.items() if broker == 1 else ()
        return ListGroupsResponse(
            groups=[ListedGroup(group_id=name, group_type=kind) for name, kind in rows if kind in message.types_filter]
        )

    def fetched(_: int, message: OffsetFetchRequest) -> OffsetFetchResponse:
        partitions = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=7)]
        topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics) for group in message.groups]
        )

    runner.brokers.answers |= {ListGroupsRequest: listed, OffsetFetchRequest: fetched}
    runner.run(runner.cluster.refresh_brokers())
    behind, unanswered = runner.run(groups_behind(runner.cluster, {AT: Bounds(8, 20)}))
    assert (behind, unanswered) == ({AT: [GroupBehind(name, 7, 13) for name in ("flow", "new", "old")]}, [])
