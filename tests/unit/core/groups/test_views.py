from __future__ import annotations

import pytest

from oncelog.base.ids import GroupId, MemberId, TopicId
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.model import GroupDescription, GroupListing
from oncelog.core.groups.views import description, listing

GROUP = GroupId("g")


def group(*, epoch: int = 2, target_epoch: int = 2, member_epoch: int | None = 2) -> ConsumerGroup:
    consumer_group = ConsumerGroup(GROUP)
    consumer_group.apply(*records.epoch(GROUP, epoch, 0))
    consumer_group.apply(*records.target_epoch(GROUP, target_epoch, 0))
    if member_epoch is not None:
        member = ConsumerMember(MemberId("m"), member_epoch, assigned={TopicId(b"t" * 16): {0: member_epoch}})
        consumer_group.apply(*records.subscription(GROUP, member))
        consumer_group.apply(*records.current_assignment(GROUP, member))
    return consumer_group


@pytest.mark.parametrize(
    ("consumer_group", "state"),
    [
        (group(member_epoch=None), "Empty"),
        (group(epoch=3), "Assigning"),
        (group(member_epoch=1), "Reconciling"),
        (group(), "Stable"),
    ],
)
def test_a_group_of_the_consumer_protocol_is_listed_with_its_state(consumer_group: ConsumerGroup, state: str) -> None:
    assert listing(consumer_group) == GroupListing(GROUP, "consumer", state, "consumer")


def test_only_classic_groups_are_described() -> None:
    for existing, reason in ((None, "Group g not found."), (group(), "Group g is not a classic group.")):
        assert description(GROUP, existing, lambda _: None) == GroupDescription(GROUP, "Dead", not_found=reason)
