"""Share groups with a node: members, the state of their partitions, offsets, deletion, and requests of other kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share_state.model import ShareKey
from oncelog.node.coordinators.share_state_requests import REQUESTS_PER_SLICE
from oncelog.node.kernel.events import DeadlineReached
from oncelog.wire.messages import describe_share_group_offsets as offsets_wire
from oncelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.delete_groups import DeleteGroupsRequest
from oncelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
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
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import batch, create_topic, produce
from tests.scenario.node.shares import set_group_configs


@dataclass
class Outcome:
    error_code: E = E.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = -1
    delivery_complete_count: int = -1


@dataclass
class Coordinators:
    """Share coordinators by hand: a partition's state is its epoch and its start offset."""

    states: dict[ShareKey, tuple[int, int]] = field(default_factory=dict)
    errors: dict[int, E] = field(default_factory=dict)
    """Errors by partition."""
    knows_fenced: bool = False
    """Summaries do not fail."""
    holds: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)

    cancelled: int = 0

    def cancel(self) -> None:
        self.cancelled += 1

    def initialize(self, key, state_epoch, start_offset, done):
        def answer() -> None:
            error = self.errors.get(key.partition, E.NONE)
            if error is E.NONE:
                self.states[key] = state_epoch, start_offset
            done(Outcome(error, "no" if error else None))

        self._answer(answer)
        return self.cancel

    def delete(self, key, done):
        error = self.errors.get(key.partition, E.NONE)
        if error is E.NONE:
            self.states.pop(key, None)
        self._answer(lambda: done(Outcome(error, "no" if error else None)))
        return self.cancel

    def summary(self, key, leader_epoch, done):
        error = E.NONE if self.knows_fenced else self.errors.get(key.partition, E.NONE)
        epoch, start = self.states.get(key, (0, -1))
        self._answer(lambda: done(Outcome(error, None, epoch, 3, start, -1 if start == -1 else 0)))
        return self.cancel

    def starts(self, topic_id: bytes) -> dict[int, int]:
        return {key.partition: start for key, (_, start) in self.states.items() if key.topic_id == topic_id}

    def _answer(self, answer: Callable[[], None]) -> None:
        if self.holds:
            self.held.append(answer)
        else:
            answer()


@pytest.fixture
def shares() -> Coordinators:
    return Coordinators()


@pytest.fixture
def driver(shares: Coordinators) -> Driver:
    driver = Driver()
    driver.node.share.persister = shares
    peer = driver.connect()
    create_topic(peer, "t", 2)
    peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    return driver


def beat(peer: Peer, epoch: int, member: str = "m", topics: list[str] | None = None, group: str = "g"):
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
    )
    response: ShareGroupHeartbeatResponse = peer.ask(request, 1)
    return response


def join(peer: Peer, member: str = "m", topics: tuple[str, ...] = ("t",), group: str = "g"):
    response = beat(peer, 0, member, list(topics), group)
    assert response.error_code == 0, response
    return response


def assigned(response: ShareGroupHeartbeatResponse) -> list[int] | None:
    """The partitions of the one topic, None if the answer has no assignment."""
    if response.assignment is None:
        return None
    return [number for topic in response.assignment.topic_partitions for number in topic.partitions]


def topic_id(driver: Driver, name: str = "t") -> bytes:
    return driver.node.cluster.image.topics[name].topic_id


def settled(driver: Driver, peer: Peer, member: str = "m", epoch: int = 2):
    """A member with all partitions: its second heartbeat brings them, once the assignment interval has passed."""
    driver.advance(1000)
    response = beat(peer, epoch, member)
    assert response.error_code == 0, response
    return response


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


def describe_offsets(peer: Peer, topics: dict[str, list[int]] | None, version: int = 1, group: str = "g"):
    named = None
    if topics is not None:
        named = [
            offsets_wire.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    request = offsets_wire.DescribeShareGroupOffsetsRequest(
        groups=[offsets_wire.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named)]
    )
    (answer,) = peer.ask(request, version).groups
    return answer


def alter(peer: Peer, starts: dict[str, dict[int, int]]):
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start)
                for number, start in partitions.items()
            ],
        )
        for name, partitions in starts.items()
    ]
    return peer.ask(AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0)


def delete_offsets(peer: Peer, *names: str):
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return peer.ask(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0)


def parts(answer) -> list[tuple]:
    return [
        (topic.topic_name, part.partition_index, part.start_offset, part.lag, part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    ]


def test_offsets_are_altered_described_with_their_lag_and_deleted(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    peer.ask(produce("t", batch(driver, b"a", b"b", b"c"), 1), 9)
    assert parts(describe_offsets(peer, None)) == []
    altered = alter(peer, {"t": {1: 2, 7: 0}, "missing": {0: 0}})
    assert altered.error_code == 0
    errors = {
        (topic.topic_name, part.partition_index): part.error_code
        for topic in altered.responses
        for part in topic.partitions
    }
    missing = E.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {("t", 1): 0, ("t", 7): missing, ("missing", 0): missing}
    assert shares.starts(topic_id(driver)) == {1: 2}
    assert parts(describe_offsets(peer, None)) == [("t", 1, 2, 1, 0)]
    assert parts(describe_offsets(peer, None, version=0)) == [("t", 1, 2, -1, 0)]
    named = describe_offsets(peer, {"t": [0, 1], "missing": [3]})
    assert parts(named) == [("t", 0, -1, -1, 0), ("t", 1, 2, 1, 0), ("missing", 3, -1, -1, 0)]
    assert parts(describe_offsets(peer, {"t": [9]})) == [("t", 9, -1, -1, 0)]
    twice = [offsets_wire.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)] * 2
    assert len(peer.ask(offsets_wire.DescribeShareGroupOffsetsRequest(groups=twice), 1).groups) == 1
    for impossible in ([-1], []):
        assert describe_offsets(peer, {"t": impossible}).error_code == E.UNKNOWN_SERVER_ERROR
    (group,) = peer.ask(ListGroupsRequest(), 5).groups
    assert (group.group_id, group.group_state) == ("g", "Empty")
    deleted = delete_offsets(peer, "t", "missing")
    assert {topic.topic_name: topic.error_code for topic in deleted.responses} == {"t": 0, "missing": missing}
    assert not shares.states
    assert parts(describe_offsets(peer, None)) == []
    (again,) = delete_offsets(peer, "t").responses
    assert (again.error_code, again.error_message) == (missing, "There is no offset information to delete.")


def test_lags_of_offsets_at_the_ends_of_the_numbers(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    peer.ask(produce("t", batch(driver, b"a"), 1), 9)
    largest = 2**63 - 1
    (topic,) = alter(peer, {"t": {0: -largest - 1, 1: largest}}).responses
    assert [part.error_code for part in topic.partitions] == [0, 0]
    assert parts(describe_offsets(peer, None)) == [
        ("t", 0, -largest - 1, largest, 0),
        ("t", 1, largest, 1 - largest, 0),
    ]


def test_offsets_of_a_group_with_members_stay(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    join(peer)
    for answer in (alter(peer, {"t": {0: 1}}), delete_offsets(peer, "t")):
        assert (answer.error_code, answer.error_message) == (E.NON_EMPTY_GROUP, "The group is not empty.")
    (result,) = peer.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == E.NON_EMPTY_GROUP
    assert len(shares.states) == 2


def test_a_partition_that_cannot_be_altered_stays_as_it_was(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    shares.errors[1] = E.FENCED_STATE_EPOCH
    (topic,) = alter(peer, {"t": {0: 5, 1: 5}}).responses
    assert [(part.error_code, part.error_message) for part in topic.partitions] == [
        (0, None),
        (E.FENCED_STATE_EPOCH, "no"),
    ]
    shares.errors.clear()
    assert parts(describe_offsets(peer, None)) == [("t", 0, 5, -5, 0)]
    driver.advance(40_000)
    join(peer)
    assert shares.starts(topic_id(driver)) == {0: 5, 1: 0}, "nothing is reset by the next member"


def test_a_group_is_deleted_with_its_state(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    join(peer)
    beat(peer, -1)
    shares.errors[0] = E.COORDINATOR_NOT_AVAILABLE
    (result,) = peer.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert len(peer.ask(ListGroupsRequest(), 5).groups) == 1
    shares.errors.clear()
    (result,) = peer.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == 0
    assert not shares.states
    assert not peer.ask(ListGroupsRequest(), 5).groups
    driver.crash_and_restart(seed=1)
    assert not driver.connect().ask(ListGroupsRequest(), 5).groups


def test_a_deleted_topic_is_forgotten(driver: Driver, shares: Coordinators) -> None:
    peer = driver.connect()
    create_topic(peer, "u", 1)
    join(peer, topics=("t", "u"))
    assert len(parts(describe_offsets(peer, None))) == 3
    deleted = peer.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    assert [topic.error_code for topic in deleted.responses] == [0]
    create_topic(peer, "t", 1)
    assert parts(describe_offsets(peer, None)) == [("u", 0, -1, -1, 0)]
    response = settled(driver, peer)
    assert shares.starts(topic_id(driver)) == {0: -1}, "the new topic begins where the group says"
    assert response.error_code == 0


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


def test_many_states_are_made_in_slices(driver, shares, monkeypatch) -> None:
    peer = driver.connect()
    create_topic(peer, "many", 2 * REQUESTS_PER_SLICE + 1)
    shares.holds = True
    handle, held = driver.node.handle, [0]

    def counted(event, now_ms):
        effects = handle(event, now_ms)
        held.append(len(shares.held))
        return effects

    monkeypatch.setattr(driver.node, "handle", counted)
    join(peer, topics=["many"])
    driver.advance(0)
    assert held[-1] == 2 * REQUESTS_PER_SLICE + 1
    assert max(after - before for before, after in pairwise(held)) == REQUESTS_PER_SLICE


def test_descriptions_end_with_their_peers_and_initializations_do_not(driver, shares) -> None:
    peer = driver.connect()
    shares.holds = True
    join(peer)
    driver.disconnect(peer)
    assert (len(shares.held), shares.cancelled) == (2, 0)
    for answer in shares.held:
        answer()
    driver.dispatch(DeadlineReached())
    other = driver.connect()
    other.send(
        offsets_wire.DescribeShareGroupOffsetsRequest(
            groups=[offsets_wire.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
        ),
        1,
    )
    assert shares.cancelled == 0
    driver.disconnect(other)
    assert shares.cancelled == 2
