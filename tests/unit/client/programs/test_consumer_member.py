"""The programs of a member of the consumer protocol, by both drivers and in virtual time."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, ConfigError, ConnectionLost
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.consumer_group import State
from oncelog.client.machine.group import GroupSettings
from oncelog.client.programs.classic_member import ClassicMemberPrograms
from oncelog.client.programs.consumer_member import ConsumerMemberPrograms
from oncelog.client.programs.group import MemberPrograms
from oncelog.client.programs.group_protocol import GroupProtocol, Subscription, choose_member
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest
from tests.unit.client.programs.fake_brokers import Runner
from tests.unit.client.programs.fake_brokers import runner as runner
from tests.unit.client.programs.fake_consumer_group import INTERVAL_MS, ConsumerCoordinator, topic_id
from tests.unit.client.programs.test_group import T0, T1


def programs_of(runner: Runner, subscription: Subscription) -> MemberPrograms:
    assigned = AssignedPartitions("g", subscription.settings.instance_id, "earliest", runner.now_ms())
    return runner.run(choose_member(runner.cluster, subscription, assigned, False))


def new_programs(runner: Runner, **settings: object) -> ConsumerMemberPrograms:
    expected = GroupSettings(**settings)  # type: ignore[arg-type]  # by name
    programs = programs_of(runner, Subscription("g", ["t"], protocol="consumer", settings=expected))
    assert isinstance(programs, ConsumerMemberPrograms)
    return programs


def follow(runner: Runner, programs: MemberPrograms) -> dict[TopicPartition, int]:
    """Do what a consumer does until nothing is due. Returns the start positions."""
    positions: dict[TopicPartition, int] = {}
    while True:
        if programs.revocable is not None:
            programs.release(programs.revocable)
        if programs.startable is not None:
            positions |= programs.take(runner.run(programs.start_positions(programs.startable))) or {}
        if programs.pause_ms(runner.now_ms()) > 0:
            return positions
        runner.run(programs.advance())


def joined(runner: Runner) -> ConsumerMemberPrograms:
    programs = new_programs(runner)
    follow(runner, programs)
    assert programs.assigned.owned == (T0, T1)
    return programs


def test_a_member_takes_what_it_is_assigned_and_begins_at_its_offsets(runner: Runner) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    coordinator.offsets = {0: 5}
    programs = new_programs(runner)
    assert follow(runner, programs) == {T0: 5, T1: 300}
    assert (programs.has_joined, coordinator.owned) == (True, {topic_id("t"): [0, 1]})
    assert programs.assigned.metadata.generation == coordinator.epoch == 1
    coordinator.target = {"t": [1]}
    programs.member.heartbeat_soon()
    assert follow(runner, programs) == {}
    assert (programs.assigned.owned, coordinator.owned) == ((T1,), {topic_id("t"): [1]})
    assert programs.assigned.metadata.generation == 2
    runner.run(programs.leave())
    programs.close()
    assert coordinator.heartbeats[-1].member_epoch == -1


def test_offsets_are_committed_under_the_newest_epoch(runner: Runner) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    programs = joined(runner)
    coordinator.epoch = 7  # the member hears of it by its next heartbeat
    programs.assigned.processed(T0, 3)
    assert runner.run(programs.commit())
    assert (coordinator.offsets, programs.assigned.metadata.generation) == ({0: 3}, 7)
    assert not programs.assigned.has_uncommitted


def test_committed_offsets_are_asked_for_again_with_the_newest_epoch(runner: Runner) -> None:
    """A client that takes the refusal for an absence begins at the wrong place (platformatic #267)."""
    coordinator = ConsumerCoordinator(runner.brokers)
    coordinator.offsets = {0: 5, 1: 6}
    programs = new_programs(runner)
    runner.run(programs.advance())
    assert programs.startable == (T0, T1)
    coordinator.epoch = 9
    assert runner.run(programs.start_positions((T0, T1))) == {T0: 5, T1: 6}


def test_a_stale_epoch_is_refused_in_the_end(runner: Runner) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    programs = joined(runner)
    programs.assigned.processed(T0, 3)
    coordinator.commit_codes = [ErrorCode.STALE_MEMBER_EPOCH] * 10_000
    with pytest.raises(BrokerRefused):
        runner.run(programs.commit())
    assert programs.assigned.has_uncommitted
    coordinator.commit_codes = []
    assert runner.run(programs.commit())


@pytest.mark.parametrize("where", ["heartbeat", "commit", "start"])
def test_a_member_that_is_none_loses_its_partitions_and_joins_again(runner: Runner, where: str) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    programs = joined(runner)
    if where == "heartbeat":
        coordinator.codes = [ErrorCode.FENCED_MEMBER_EPOCH]
        programs.member.heartbeat_soon()
        runner.run(programs.advance())
    elif where == "commit":
        coordinator.commit_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
        programs.assigned.processed(T0, 3)
        assert not runner.run(programs.commit())
    else:
        coordinator.fetch_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
        assert runner.run(programs.start_positions((T0, T1))) == {}
    assert (programs.is_lost, programs.revocable) == (True, (T0, T1))
    before, epoch = len(coordinator.heartbeats), programs.assigned.metadata.generation
    runner.run(programs.advance())
    assert len(coordinator.heartbeats) == before, "it does not join before they are released"
    programs.assigned.processed(T0, 4)
    assert programs.assigned.metadata.generation == epoch
    assert follow(runner, programs) == {T0: 100, T1: 300}
    assert [message.member_epoch for message in coordinator.heartbeats[before:]] == [0, 2]


def test_a_lost_coordinator_is_told_everything(runner: Runner) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    programs = joined(runner)
    heartbeat = runner.brokers.answers[ConsumerGroupHeartbeatRequest]
    failures = [ConnectionLost("the connection broke")]

    def failing(broker: int, message: ConsumerGroupHeartbeatRequest) -> object:
        if failures:
            raise failures.pop()
        return heartbeat(broker, message)

    runner.brokers.answers[ConsumerGroupHeartbeatRequest] = failing  # type: ignore[assignment]  # as it is
    before = len(runner.brokers.asked(FindCoordinatorRequest))
    coordinator.codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    programs.member.heartbeat_soon()
    runner.run(programs.advance())
    assert len(runner.brokers.asked(FindCoordinatorRequest)) == before + 2
    last = coordinator.heartbeats[-1]
    assert (last.subscribed_topic_names, last.member_epoch, coordinator.owned) == (["t"], 1, {topic_id("t"): [0, 1]})
    assert programs.revocable is None


def test_a_partition_that_the_metadata_lacks_is_taken_when_it_is_there(runner: Runner) -> None:
    """franz-go 1.21.6 never took such a partition."""
    coordinator = ConsumerCoordinator(runner.brokers)
    coordinator.target = {"t": [0, 1, 2], "new": [0]}
    programs = new_programs(runner)
    assert set(follow(runner, programs)) == {T0, T1}
    assert not programs.has_joined
    assert 0 < programs.pause_ms(runner.now_ms()) <= 1_000 < INTERVAL_MS
    count = len(runner.brokers.asked(MetadataRequest))
    runner.run(programs.advance())
    assert len(runner.brokers.asked(MetadataRequest)) == count, "once in a while"
    runner.brokers.leaders |= {"t": {0: 1, 1: 3, 2: 1}, "new": {0: 2}}
    programs._metadata_due_ms = 0
    started = follow(runner, programs)
    assert {str(partition) for partition in started} == {"t-2", "new-0"}
    assert (programs.has_joined, coordinator.owned) == (True, {topic_id("t"): [0, 1, 2], topic_id("new"): [0]})


def test_a_caller_that_works_too_long_leaves(runner: Runner) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    programs = joined(runner)
    runner.run(programs.give_up())
    assert (coordinator.heartbeats[-1].member_epoch, programs.is_lost) == (-1, True)
    assert follow(runner, programs) == {T0: 100, T1: 300}


@pytest.mark.parametrize(
    ("protocol", "pattern", "features", "answer", "wanted"),
    [
        ("classic", None, 1, ErrorCode.UNKNOWN_MEMBER_ID, ClassicMemberPrograms),
        ("consumer", None, 0, ErrorCode.UNSUPPORTED_VERSION, ConsumerMemberPrograms),
        (None, "t.*", 0, ErrorCode.UNSUPPORTED_VERSION, ConsumerMemberPrograms),
        (None, None, 0, ErrorCode.UNKNOWN_MEMBER_ID, ClassicMemberPrograms),
        (None, None, 1, ErrorCode.UNKNOWN_MEMBER_ID, ConsumerMemberPrograms),
        (None, None, 1, ErrorCode.GROUP_ID_NOT_FOUND, ClassicMemberPrograms),
        (None, None, 1, ErrorCode.UNSUPPORTED_VERSION, ClassicMemberPrograms),
        (None, None, 1, ErrorCode.GROUP_AUTHORIZATION_FAILED, ClassicMemberPrograms),
    ],
)
def test_the_group_decides_the_protocol_unless_the_caller_does(
    runner: Runner, protocol: GroupProtocol | None, pattern: str | None, features: int, answer: int, wanted: type
) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    runner.brokers.features = {"group.version": features}
    coordinator.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, answer]
    programs = programs_of(runner, Subscription("g", ["t"], pattern, protocol))
    assert type(programs) is wanted
    asks = protocol is None and pattern is None and features
    assert [message.member_epoch for message in coordinator.heartbeats] == ([-1, -1] if asks else [])


def test_a_subscription_says_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="a pattern needs the group protocol 'consumer'"):
        Subscription("g", pattern="t.*", protocol="classic")
    with pytest.raises(ConfigError, match="group protocol 'streams': use classic or consumer"):
        Subscription("g", ["t"], protocol="streams")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError, match=r"give a list of names, \['t'\]"):
        Subscription("g", "t")


def test_a_coordinator_without_the_protocol_is_named(runner: Runner) -> None:
    coordinator = ConsumerCoordinator(runner.brokers)
    coordinator.codes = [ErrorCode.UNSUPPORTED_VERSION]
    programs = new_programs(runner)
    with pytest.raises(BrokerRefused, match="the cluster does not serve the consumer protocol"):
        runner.run(programs.advance())
    assert programs.member.state is State.UNJOINED


def test_an_error_of_the_answer_is_no_response(runner: Runner) -> None:
    ConsumerCoordinator(runner.brokers)
    programs = new_programs(runner)
    runner.brokers.answers[ConsumerGroupHeartbeatRequest] = lambda *_: ConsumerGroupHeartbeatResponse(error_code=999)
    with pytest.raises(BrokerRefused, match="error code 999"):
        runner.run(programs.advance())
