"""Lists and descriptions of groups from scripted brokers: both protocols, other types, older versions."""

from __future__ import annotations

import pytest

from oncelog.admin.group_descriptions import (
    GroupDescription,
    Handover,
    MemberRow,
    describe_group,
    list_groups,
)
from oncelog.admin.groups import ResetRow, delete_groups, delete_offsets, execute_reset, group_lag
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.client.machine.versions import Versions
from oncelog.records.internal.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from oncelog.wire.messages import consumer_group_describe as wire
from oncelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tests.unit.client.programs.fake_answers import COORDINATOR, coordinated
from tests.unit.client.programs.fake_brokers import Runner
from tests.unit.client.programs.fake_brokers import runner as runner

NO_GROUP = ErrorCode.GROUP_ID_NOT_FOUND


def at(*indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(TopicName("t"), index) for index in indexes)


def assignment(*indexes: int) -> wire.Assignment:
    topics = [wire.TopicPartitions(topic_id=bytes(16), topic_name="t", partitions=list(indexes))]
    return wire.Assignment(topic_partitions=topics if indexes else [])


def answers(
    runner: Runner,
    *,
    consumer: wire.DescribedGroup | None = None,
    classic: DescribedGroup | None = None,
    listed: tuple[ListedGroup, ...] = (),
) -> None:
    """Let the coordinator answer so: without ``consumer`` and ``classic``, that it has no such group."""
    coordinated(runner.brokers)

    def list_filtered(broker: int, message: ListGroupsRequest) -> ListGroupsResponse:
        rows = listed if broker == COORDINATOR else ()
        types = message.types_filter
        return ListGroupsResponse(
            groups=[row for row in rows if not row.group_type or not types or row.group_type in types]
        )

    runner.brokers.answers |= {
        wire.ConsumerGroupDescribeRequest: lambda *_: wire.ConsumerGroupDescribeResponse(
            groups=[consumer or wire.DescribedGroup(group_id="g", error_code=NO_GROUP)]
        ),
        DescribeGroupsRequest: lambda *_: DescribeGroupsResponse(
            groups=[classic or DescribedGroup(group_id="g", error_code=NO_GROUP, group_state="Dead")]
        ),
        ListGroupsRequest: list_filtered,
    }


def with_versions(runner: Runner, **highest: int) -> None:
    """Let all brokers have lower versions of some requests, or (-1) not have them."""
    keys = {"ListGroups": 16, "DescribeGroups": 15, "ConsumerGroupDescribe": 69}
    ranges = dict.fromkeys(range(100), (0, 99)) | {keys[name]: (0, version) for name, version in highest.items()}
    ranges = {key: bounds for key, bounds in ranges.items() if bounds[1] >= 0}
    for broker in (1, 2, 3):
        link = runner.run(runner.cluster.link(broker))
        link.versions = Versions(ranges)  # type: ignore[misc]  # a fake


def test_a_consumer_group_with_a_partition_on_its_way(runner: Runner) -> None:
    first = wire.Member(
        member_id="m1",
        instance_id="i1",
        rack_id="r1",
        member_epoch=6,
        client_id="app",
        client_host="/10.0.0.7",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="",
        assignment=assignment(0, 1, 2),
        target_assignment=assignment(0, 1),
        member_type=0,
    )
    second = wire.Member(
        member_id="m2",
        member_epoch=7,
        subscribed_topic_regex="t.*",
        assignment=assignment(),
        target_assignment=assignment(2, 3),
        member_type=1,
    )
    away = wire.Member(member_id="m3", instance_id="i3", member_epoch=-2, member_type=1)
    answers(
        runner,
        consumer=wire.DescribedGroup(
            group_id="g",
            group_state="Reconciling",
            group_epoch=8,
            assignment_epoch=7,
            assignor_name="uniform",
            members=[first, second, away],
        ),
    )
    described = runner.run(describe_group(runner.cluster, "g"))
    assert described == GroupDescription(
        "g",
        "Reconciling",
        "consumer",
        "consumer",
        "uniform",
        COORDINATOR,
        [
            MemberRow(
                "m1", "i1", "app", "/10.0.0.7", at(0, 1, 2), "classic", "r1", ("t",), None, epoch=6, target=at(0, 1)
            ),
            MemberRow("m2", None, "", "", (), "consumer", None, (), "t.*", epoch=7, target=at(2, 3)),
            MemberRow("m3", "i3", "", "", (), "consumer", epoch=-2, target=()),
        ],
        epoch=8,
        target_epoch=7,
    )
    one, two, three = described.members
    assert [member.to_give_up for member in (one, two)] == [at(2), ()]
    assert [member.awaited for member in (one, two)] == [(), at(2, 3)]
    assert [member.is_away for member in (one, two, three)] == [False, False, True]
    assert described.handovers == [Handover(at(2)[0], "m1", "m2"), Handover(at(3)[0], None, "m2")]
    assert not runner.brokers.asked(DescribeGroupsRequest)


def test_a_partition_of_no_target_is_given_up_to_no_member(runner: Runner) -> None:
    member = wire.Member(member_id="m1", assignment=assignment(1, 0), target_assignment=assignment(1))
    answers(runner, consumer=wire.DescribedGroup(group_id="g", group_state="Reconciling", members=[member]))
    assert runner.run(describe_group(runner.cluster, "g")).handovers == [Handover(at(0)[0], "m1", None)]


@pytest.mark.parametrize("refusal", [NO_GROUP, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID, None])
def test_a_classic_group_is_described_by_the_classic_request(runner: Runner, refusal: ErrorCode | None) -> None:
    members = [
        DescribedGroupMember(
            member_id="m1",
            client_id="app",
            client_host="/h",
            member_metadata=encode_subscription(Subscription((TopicName("t"),), rack="r1")),
            member_assignment=encode_assignment(Assignment(at(0)), 1),
        ),
        DescribedGroupMember(member_id="m2", member_metadata=b"\x00"),
    ]
    classic = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range", members=members
    )
    if refusal is None:
        answers(runner, classic=classic)
        with_versions(runner, ConsumerGroupDescribe=-1, ListGroups=4, DescribeGroups=5)
    else:
        answers(runner, classic=classic, consumer=wire.DescribedGroup(group_id="g", error_code=refusal))
    described = runner.run(describe_group(runner.cluster, "g"))
    assert described == GroupDescription(
        "g",
        "Stable",
        "classic",
        "consumer",
        "range",
        COORDINATOR,
        [
            MemberRow("m1", None, "app", "/h", at(0), "classic", "r1", ("t",)),
            MemberRow("m2", None, "", "", (), "classic"),
        ],
    )
    assert (described.handovers, described.members[0].to_give_up, described.members[0].awaited) == ([], (), ())


def test_members_of_other_protocol_types_are_not_decoded(runner: Runner) -> None:
    member = DescribedGroupMember(member_id="m1", member_metadata=b"\xff", member_assignment=b"\xff")
    answers(
        runner, classic=DescribedGroup(group_id="g", group_state="Stable", protocol_type="connect", members=[member])
    )
    (row,) = runner.run(describe_group(runner.cluster, "g")).members
    assert (row.partitions, row.topics) == ((), ())


@pytest.mark.parametrize("group_type", ["share", "streams"])
@pytest.mark.parametrize("error_code", [NO_GROUP, ErrorCode.NONE])
def test_a_group_of_another_type_is_shown_with_its_type(runner: Runner, group_type: str, error_code: ErrorCode) -> None:
    """Before version 6 of DescribeGroups it is Dead, without an error."""
    answers(
        runner,
        classic=DescribedGroup(group_id="g", error_code=error_code, group_state="Dead"),
        listed=(
            ListedGroup(group_id="f", group_type="classic", group_state="Empty"),
            ListedGroup(group_id="g", group_type=group_type, group_state="Stable", protocol_type=group_type),
        ),
    )
    described = runner.run(describe_group(runner.cluster, "g"))
    assert described == GroupDescription("g", "Stable", group_type, group_type, "", COORDINATOR, [])
    assert (described.has_members_shown, described.commits_offsets) == (False, group_type == "streams")
    assert runner.brokers.asked(ListGroupsRequest) == [COORDINATOR]
    if group_type == "share":
        assert runner.run(group_lag(runner.cluster, described)) == []


@pytest.mark.parametrize("highest", [4, 5])
def test_a_missing_group_is_not_found(runner: Runner, highest: int) -> None:
    answers(runner, listed=(ListedGroup(group_id="g2", group_type="share"),))
    with_versions(runner, ListGroups=highest)
    with pytest.raises(BrokerRefused, match="no such group") as refused:
        runner.run(describe_group(runner.cluster, "g"))
    assert refused.value.code == NO_GROUP


def test_a_refusal_has_the_brokers_words(runner: Runner) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answers(runner, consumer=wire.DescribedGroup(group_id="g", error_code=code, error_message="not your topic"))
    with pytest.raises(BrokerRefused, match="group 'g': not your topic"):
        runner.run(describe_group(runner.cluster, "g"))


@pytest.mark.parametrize(("group_type", "says"), [("share", "a share group has no committed"), ("", "no such group")])
def test_offsets_of_a_share_group_are_refused_by_its_type(runner: Runner, group_type: str, says: str) -> None:
    answers(runner, listed=(ListedGroup(group_id="g", group_type=group_type),) if group_type else ())
    partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=NO_GROUP)]
    commit = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])
    runner.brokers.answers |= {
        OffsetCommitRequest: lambda *_: commit,
        OffsetDeleteRequest: lambda *_: OffsetDeleteResponse(error_code=NO_GROUP),
    }
    for program in (
        execute_reset(runner.cluster, "g", [ResetRow("t", 0, None, 1)]),
        delete_offsets(runner.cluster, "g", at(0)),
    ):
        with pytest.raises(BrokerRefused, match=f"'g'.*: {says}") as refused:
            runner.run(program)
        assert refused.value.code == NO_GROUP


@pytest.mark.parametrize(("message", "says"), [(None, "still has members"), ("not now", "not now")])
def test_a_group_that_is_not_deleted_has_the_brokers_words_if_it_sent_any(
    runner: Runner, message: str | None, says: str
) -> None:
    coordinated(runner.brokers)
    result = DeletableGroupResult(group_id="g", error_code=ErrorCode.NON_EMPTY_GROUP, error_message=message)
    runner.brokers.answers[DeleteGroupsRequest] = lambda *_: DeleteGroupsResponse(results=[result])
    (outcome,) = runner.run(delete_groups(runner.cluster, ["g"]))
    assert (outcome.name, outcome.error_code, says in (outcome.error or "")) == ("g", ErrorCode.NON_EMPTY_GROUP, True)


def test_lists_are_filtered_by_the_brokers(runner: Runner) -> None:
    answers(
        runner,
        listed=(
            ListedGroup(group_id="b", group_type="consumer", group_state="Stable", protocol_type="consumer"),
            ListedGroup(group_id="a", group_type="classic", group_state="Empty", protocol_type="consumer"),
        ),
    )
    rows = runner.run(list_groups(runner.cluster))
    assert [(row.group, row.group_type, row.coordinator) for row in rows] == [("a", "classic", 2), ("b", "consumer", 2)]
    assert runner.brokers.asked(ListGroupsRequest) == [1, 2, 3]
    (row,) = runner.run(list_groups(runner.cluster, ["Stable"], ["consumer", "share"]))
    assert (row.group, row.state) == ("b", "Stable")
    sent = runner.brokers.requests[-1][1]
    assert isinstance(sent, ListGroupsRequest)
    assert (sent.states_filter, sent.types_filter) == (["Stable"], ["consumer", "share"])


def test_an_older_broker_has_classic_groups_only(runner: Runner) -> None:
    """As with Apache Kafka's own client, the filter is left out where it would remove nothing."""
    answers(runner, listed=(ListedGroup(group_id="g", group_state="Stable"),))
    with_versions(runner, ListGroups=4)
    (row,) = runner.run(list_groups(runner.cluster, ["Stable"], ["classic", "share"]))
    assert (row.group, row.group_type) == ("g", "")
    with pytest.raises(UnsupportedRequest, match=r"groups of broker 1 by type.*version 4.*needs 5.*include classic"):
        runner.run(list_groups(runner.cluster, types=["consumer"]))
    with_versions(runner, ListGroups=3)
    with pytest.raises(UnsupportedRequest, match=r"groups of broker 1 by state.*version 3.*needs 4"):
        runner.run(list_groups(runner.cluster, ["Empty"]))
    assert len(runner.run(list_groups(runner.cluster))) == 1
