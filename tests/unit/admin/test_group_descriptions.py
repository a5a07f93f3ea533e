"""Lists and descriptions of groups from scripted brokers: both protocols, other types, older versions."""

from __future__ import annotations

import pytest

from oncelog.admin.group_descriptions import GroupDescription, Handover, MemberRow, describe_group, list_groups
from oncelog.admin.groups import ResetRow, delete_groups, delete_offsets, execute_reset, group_lag, share_offsets
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.client.machine.requests import EARLIEST
from oncelog.client.machine.versions import Versions
from oncelog.records.internal.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from oncelog.wire.messages import alter_share_group_offsets as alter_wire
from oncelog.wire.messages import consumer_group_describe as wire
from oncelog.wire.messages import delete_share_group_offsets as delete_wire
from oncelog.wire.messages import describe_share_group_offsets as offsets_wire
from oncelog.wire.messages import share_group_describe as share_wire
from oncelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
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
    share: share_wire.DescribedGroup | None = None,
    listed: tuple[ListedGroup, ...] = (),
) -> None:
    """Let the coordinator answer so: without a description of a type, that it has no such group."""
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
        share_wire.ShareGroupDescribeRequest: lambda *_: share_wire.ShareGroupDescribeResponse(
            groups=[share or share_wire.DescribedGroup(group_id="g", error_code=NO_GROUP)]
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


def refusing_commits(runner: Runner) -> None:
    """Let the coordinator refuse committed offsets, as that of a share group does."""
    partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=NO_GROUP)]
    commit = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])
    runner.brokers.answers |= {
        OffsetCommitRequest: lambda *_: commit,
        OffsetDeleteRequest: lambda *_: OffsetDeleteResponse(error_code=NO_GROUP),
    }


@pytest.mark.parametrize(("group_type", "says"), [("share", "share groups are off in this"), ("", "no such group")])
def test_offsets_of_a_share_group_whose_cluster_has_them_off(runner: Runner, group_type: str, says: str) -> None:
    answers(
        runner,
        share=share_wire.DescribedGroup(group_id="g", error_code=ErrorCode.UNSUPPORTED_VERSION),
        listed=(ListedGroup(group_id="g", group_type=group_type),) if group_type else (),
    )
    refusing_commits(runner)
    for program in (
        execute_reset(runner.cluster, "g", [ResetRow("t", 0, None, 1)]),
        delete_offsets(runner.cluster, "g", at(0)),
    ):
        with pytest.raises(BrokerRefused, match=f"'g'.*: .*{says}"):
            runner.run(program)


MEMBER = share_wire.Member(
    member_id="m1",
    rack_id="r1",
    member_epoch=4,
    client_id="worker",
    client_host="/10.0.0.7",
    subscribed_topic_names=["t"],
    assignment=share_wire.Assignment(
        topic_partitions=[share_wire.TopicPartitions(topic_id=bytes(16), topic_name="t", partitions=[0, 1])]
    ),
)


def a_share_group(runner: Runner, *members: share_wire.Member) -> None:
    group = share_wire.DescribedGroup(
        group_id="g",
        group_state="Stable" if members else "Empty",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="simple",
        members=list(members),
    )
    answers(runner, share=group)
    refusing_commits(runner)


def test_members_of_a_share_group_have_partitions_in_common(runner: Runner) -> None:
    a_share_group(runner, MEMBER, share_wire.Member(member_id="m2", member_epoch=5, assignment=MEMBER.assignment))
    described = runner.run(describe_group(runner.cluster, "g"))
    first, second = described.members
    assert (described.group_type, described.state, described.epoch, described.target_epoch) == ("share", "Stable", 5, 4)
    assert first == MemberRow("m1", None, "worker", "/10.0.0.7", at(0, 1), "share", "r1", ("t",), epoch=4)
    assert (second.partitions, described.handovers) == (first.partitions, [])
    assert (described.has_members_shown, described.commits_offsets) == (True, False)


def described_offsets(*partitions: tuple[int, int, int, int]) -> offsets_wire.DescribeShareGroupOffsetsResponse:
    rows = [
        offsets_wire.DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=start, lag=lag, error_code=code
        )
        for index, start, lag, code in partitions
    ]
    topic = offsets_wire.DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=rows)
    group = offsets_wire.DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic])
    return offsets_wire.DescribeShareGroupOffsetsResponse(groups=[group])


def test_start_offsets_of_a_share_group(runner: Runner) -> None:
    a_share_group(runner)
    log_from_to(runner, 0, 20)
    answer = described_offsets((0, 3, 14, 0), (1, -1, -1, 0), (2, 0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    runner.brokers.answers[offsets_wire.DescribeShareGroupOffsetsRequest] = lambda *_: answer
    first, second, third = runner.run(share_offsets(runner.cluster, "g"))
    assert (first.start_offset, first.lag, first.log_end, first.error) == (3, 14, 20, None)
    assert (second.start_offset, second.lag) == (None, None)
    assert (third.start_offset, third.lag) == (None, None)
    assert third.error is not None


def log_from_to(runner: Runner, start: int, end: int) -> None:
    """Let three partitions of the topic ``t`` have records between these offsets."""
    runner.brokers.leaders["t"] = {0: 1, 1: 1, 2: 1}

    def list_offsets(_: int, message: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            offset=start if partition.timestamp == EARLIEST else end,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    runner.brokers.answers[ListOffsetsRequest] = list_offsets


def test_a_reset_of_a_share_group_sets_its_start_offsets(runner: Runner) -> None:
    a_share_group(runner)
    seen: list[tuple[str, int, int]] = []

    def alter(_: int, message: alter_wire.AlterShareGroupOffsetsRequest) -> alter_wire.AlterShareGroupOffsetsResponse:
        seen.extend(
            (topic.topic_name, partition.partition_index, partition.start_offset)
            for topic in message.topics
            for partition in topic.partitions
        )
        return alter_wire.AlterShareGroupOffsetsResponse()

    runner.brokers.answers |= {
        offsets_wire.DescribeShareGroupOffsetsRequest: lambda *_: described_offsets((0, 3, 14, 0)),
        alter_wire.AlterShareGroupOffsetsRequest: alter,
    }
    runner.run(execute_reset(runner.cluster, "g", [ResetRow("t", 0, 3, 1), ResetRow("t", 1, None, 2)]))
    assert seen == [("t", 0, 1), ("t", 1, 2)]


def test_offsets_of_a_share_group_with_members_stay(runner: Runner) -> None:
    a_share_group(runner, *[MEMBER] * 5)
    code = ErrorCode.NON_EMPTY_GROUP
    runner.brokers.answers |= {
        offsets_wire.DescribeShareGroupOffsetsRequest: lambda *_: described_offsets((0, 3, 14, 0)),
        alter_wire.AlterShareGroupOffsetsRequest: lambda *_: alter_wire.AlterShareGroupOffsetsResponse(error_code=code),
        delete_wire.DeleteShareGroupOffsetsRequest: lambda *_: delete_wire.DeleteShareGroupOffsetsResponse(
            error_code=code
        ),
    }
    for program in (
        execute_reset(runner.cluster, "g", [ResetRow("t", 0, None, 1)]),
        delete_offsets(runner.cluster, "g", at(0)),
    ):
        with pytest.raises(BrokerRefused, match=r"it has members \('worker' on 10\.0\.0\.7.* and 2 more\)") as refused:
            runner.run(program)
        assert refused.value.code == code


def test_a_share_group_forgets_whole_topics(runner: Runner) -> None:
    a_share_group(runner)
    responses = [
        delete_wire.DeleteShareGroupOffsetsResponseTopic(topic_name="t"),
        delete_wire.DeleteShareGroupOffsetsResponseTopic(topic_name="u", error_code=3, error_message="not here"),
    ]
    runner.brokers.answers |= {
        offsets_wire.DescribeShareGroupOffsetsRequest: lambda *_: described_offsets((0, 3, 14, 0)),
        delete_wire.DeleteShareGroupOffsetsRequest: lambda *_: delete_wire.DeleteShareGroupOffsetsResponse(
            responses=responses
        ),
    }
    outcomes = runner.run(delete_offsets(runner.cluster, "g", [*at(0, 1), TopicPartition(TopicName("u"), 0)]))
    assert [(outcome.name, outcome.error) for outcome in outcomes] == [("t", None), ("u", "not here")]


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
