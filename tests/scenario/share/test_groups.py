"""Share groups with a node: members, the state of their partitions, and requests of other kinds of groups."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share_state.model import ShareKey
from oncelog.node.kernel.events import DeadlineReached
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.wire.messages.share_group_describe import ShareGroupDescribeRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic
from tests.scenario.share.groups import (
    Coordinators,
    alter,
    assigned,
    beat,
    broker,
    delete_offsets,
    describe_offsets,
    join,
    settled,
    topic_id,
)
from tests.scenario.share.members import set_group_configs


@pytest.fixture
def shares() -> Coordinators:
    return Coordinators()


@pytest.fixture
def driver(shares: Coordinators) -> Driver:
    return broker(shares)


def test_partitions_are_assigned_once_they_have_share_state(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    first = join(peer)
    assert (first.member_epoch, assigned(first), first.heartbeat_interval_ms) == (2, [], 5000)
    assert shares.states == {ShareKey("g", topic_id(driver), number): (2, -1) for number in range(2)}
    second = settled(driver, peer)
    assert (second.member_epoch, assigned(second)) == (3, [0, 1])
    third = beat(peer, 3)
    assert (third.member_epoch, assigned(third)) == (3, None), "a steady member is told nothing new"


def test_the_answer_does_not_wait_for_the_share_coordinators(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    shares.holds = True
    join(peer)
    assert len(shares.held) == 2
    assert assigned(settled(driver, peer)) is None
    for answer in shares.held:
        answer()
    driver.dispatch(DeadlineReached())
    assert assigned(beat(peer, 2)) == [0, 1]


def test_a_failed_initialization_is_repeated_from_the_same_place(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    shares.errors[1] = E.COORDINATOR_NOT_AVAILABLE
    join(peer)
    assert shares.starts(topic_id(driver)) == {0: -1}
    shares.errors.clear()
    response = settled(driver, peer)
    assert assigned(response) == [0]
    assert shares.starts(topic_id(driver)) == {0: -1, 1: -1}, "not at 0: nobody asked for the whole partition"
    assert assigned(settled(driver, peer, epoch=response.member_epoch)) == [0, 1]


def test_a_group_made_again_gets_above_the_state_of_the_former_one(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    shares.errors = {0: E.FENCED_STATE_EPOCH, 1: E.FENCED_STATE_EPOCH}
    shares.states = {ShareKey("g", topic_id(driver), number): (7 + number, 3) for number in range(2)}
    shares.knows_fenced = True
    join(peer)
    shares.errors.clear()
    response = settled(driver, peer)
    assert response.member_epoch == 9
    assert shares.states == {ShareKey("g", topic_id(driver), number): (9, -1) for number in range(2)}
    assert assigned(settled(driver, peer, epoch=9)) == [0, 1]


def test_state_that_may_have_been_made_goes_with_its_group(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    shares.errors[1] = E.COORDINATOR_NOT_AVAILABLE
    join(peer)
    shares.errors.clear()
    shares.states[ShareKey("g", topic_id(driver), 1)] = 2, -1
    beat(peer, -1)
    (result,) = peer.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == 0
    assert not shares.states


def test_state_is_not_made_while_it_is_being_deleted(driver: Driver, shares: Coordinators) -> None:
    peer, admin = driver.connect(), driver.connect()
    for request in (
        DeleteGroupsRequest(groups_names=["g"]),
        DeleteShareGroupOffsetsRequest(group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name="t")]),
    ):
        join(peer)
        beat(peer, -1)
        shares.holds = True
        admin.send(request, 2 if isinstance(request, DeleteGroupsRequest) else 0)
        epoch = join(peer).member_epoch
        assert not shares.states, "a deletion that is repeated would delete it"
        shares.holds = False
        for answer in shares.held:
            answer()
        shares.held.clear()
        driver.dispatch(DeadlineReached())
        admin.responses.popleft()
        beat(peer, epoch)
        assert len(shares.states) == 2
        beat(peer, -1)


def test_an_initialization_without_an_outcome_is_repeated_after_a_while(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    shares.holds = True
    join(peer)
    shares.held.clear()
    shares.holds = False
    for _ in range(5):
        driver.advance(5_000)
        beat(peer, 2)
    assert not shares.states
    driver.advance(5_000)
    beat(peer, 2)
    assert shares.starts(topic_id(driver)) == {0: -1, 1: -1}, "not at 0: nobody asked for the whole topic"


def test_new_partitions_and_restarts(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    join(peer)
    settled(driver, peer)
    driver.crash_and_restart(seed=1)
    driver.node.share.persister = shares
    peer = driver.connect()
    response = beat(peer, 3)
    assert (response.error_code, response.member_epoch, assigned(response)) == (0, 3, None)
    driver.advance(45_000)
    assert beat(peer, 3).error_code == E.UNKNOWN_MEMBER_ID, "the session of a loaded member ends, too"


def test_epochs_leaving_and_sessions(driver: Driver) -> None:
    peer = driver.connect()
    join(peer)
    assert settled(driver, peer).member_epoch == 3
    assert beat(peer, 2).member_epoch == 3, "the answer was lost"
    assert beat(peer, 1).error_code == E.FENCED_MEMBER_EPOCH
    assert beat(peer, 9).error_code == E.FENCED_MEMBER_EPOCH
    assert beat(peer, 1, "other").error_code == E.UNKNOWN_MEMBER_ID
    assert beat(peer, 1, group="h").error_code == E.GROUP_ID_NOT_FOUND
    left = beat(peer, -1)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (0, -1, 0)
    assert beat(peer, 3).error_code == E.UNKNOWN_MEMBER_ID
    join(peer)
    driver.advance(44_999)
    assert beat(peer, 5).error_code == 0
    driver.advance(45_000)
    assert beat(peer, 5).error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_id": ""}, E.INVALID_REQUEST, None),
        ({"member_id": "m" * 37}, E.INVALID_REQUEST, None),
        ({"member_id": " "}, E.INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": " "}, E.INVALID_REQUEST, "GroupId can't be empty."),
        ({"rack_id": ""}, E.INVALID_REQUEST, "RackId can't be empty."),
        ({"subscribed_topic_names": []}, E.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": None}, E.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, E.INVALID_REQUEST, "MemberEpoch is invalid."),
    ],
)
def test_invalid_heartbeats(driver: Driver, fields: dict, code: E, message: str | None) -> None:
    named = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"], **fields}
    response = driver.connect().ask(ShareGroupHeartbeatRequest(**named), 1)
    assert (response.error_code, response.error_message) == (code, message)


def test_a_full_group(shares: Coordinators) -> None:
    driver = Driver({"group.share.max.size": "2"})
    driver.node.share.persister = shares
    peer = driver.connect()
    create_topic(peer, "t", 2)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    join(peer, "a")
    join(peer, "b")
    assert beat(peer, 0, "c", ["t"]).error_code == E.GROUP_MAX_SIZE_REACHED
    join(peer, "a")


def test_members_that_stay_do_without_partitions_beyond_the_bound(shares: Coordinators) -> None:
    driver = Driver({"oncelog.group.share.partitions.max": "4"})
    driver.node.share.persister = shares
    peer = driver.connect()
    create_topic(peer, "t", 2)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    join(peer, topics=("t", "late"))
    epoch = settled(driver, peer).member_epoch
    create_topic(peer, "late", 2)
    for _ in range(5):
        response = beat(peer, epoch)
        assert response.error_code == E.NONE, response
        epoch = response.member_epoch
        driver.advance(30_000)
    assert len(shares.states) == 2
    lines = [line for line in driver.reports if "oncelog.group.share.partitions.max" in line]
    assert len(lines) == 1, "not again within ten minutes"
    assert "share group 'g' does not get all of its topics" in lines[0]


def test_configs_of_the_group_count_at_once(driver: Driver) -> None:
    peer = driver.connect()
    set_group_configs(peer, "g", share_session_timeout_ms="50000", share_heartbeat_interval_ms="6000")
    assert join(peer).heartbeat_interval_ms == 6000
    driver.advance(49_000)
    assert beat(peer, 2).error_code == 0


def test_the_feature_forbids_share_groups(driver: Driver) -> None:
    peer = driver.connect()
    update = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    assert peer.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == 0
    assert beat(peer, 0, topics=["t"]).error_code == E.UNSUPPORTED_VERSION
    (group,) = peer.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert group.error_code == E.UNSUPPORTED_VERSION
    assert describe_offsets(peer, None).error_code == E.UNSUPPORTED_VERSION
    assert alter(peer, {"t": {0: 1}}).error_code == E.UNSUPPORTED_VERSION
    assert delete_offsets(peer, "t").error_code == E.UNSUPPORTED_VERSION


def test_a_group_is_described_and_listed(driver: Driver) -> None:
    peer = driver.connect()
    join(peer)
    settled(driver, peer)
    (group,) = peer.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        3,
        3,
        "simple",
    )
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("m", 3, ["t"])
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [("t", [0, 1])]
    beat(peer, -1)
    (listed,) = peer.ask(ListGroupsRequest(types_filter=["Share"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g",
        "share",
        "Empty",
        "share",
    )
    assert not peer.ask(ListGroupsRequest(states_filter=["Stable"]), 5).groups
    (missing,) = peer.ask(ShareGroupDescribeRequest(group_ids=["h"]), 1).groups
    assert (missing.error_code, missing.error_message) == (E.GROUP_ID_NOT_FOUND, "Group h not found.")


def test_requests_of_other_kinds_of_groups(driver: Driver) -> None:
    peer = driver.connect()
    join(peer)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    joined = peer.ask(
        JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols, session_timeout_ms=10_000), 9
    )
    assert joined.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="c", rebalance_timeout_ms=1000, topic_partitions=[], subscribed_topic_names=["t"]
    )
    response = peer.ask(consumer, 1)
    assert (response.error_code, response.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    (group,) = peer.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (group.error_code, group.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    (topic,) = peer.ask(commit, 9).topics
    assert [part.error_code for part in topic.partitions] == [E.GROUP_ID_NOT_FOUND]
    # And the other way round.
    peer.ask(consumer.__class__(**{**_fields(consumer), "group_id": "c"}), 1)
    refused = beat(peer, 0, topics=["t"], group="c")
    assert (refused.error_code, refused.error_message) == (E.GROUP_ID_NOT_FOUND, "Group c is not a share group.")


def _fields(message) -> dict:
    return {name: getattr(message, name) for name in message.__slots__}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "share.session.timeout.ms",
            "44999",
            "share.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        ("share.delivery.count.limit", "11", "share.delivery.count.limit must be in the range 2 to 10 inclusive."),
        ("share.auto.offset.reset", "none", "Invalid value none for configuration share.auto.offset.reset"),
        ("share.isolation.level", "serializable", "String must be one of: read_committed, read_uncommitted"),
        (
            "errors.deadletterqueue.topic.name",
            "__dlq",
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
    ],
)
def test_configs_of_a_group_are_checked(driver: Driver, key: str, value: str, message: str) -> None:
    change = AlterableConfig(name=key, value=value)
    resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[change])
    (answer,) = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == E.INVALID_CONFIG
    assert message in answer.error_message
