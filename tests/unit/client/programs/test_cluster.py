"""Look-ups and retries, by both drivers and in virtual time."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import (
    BrokerRefused,
    Closed,
    ConnectionLost,
    NoBrokerReachable,
    RebootstrapRequired,
    RequestTimedOut,
    UnknownTopic,
)
from oncelog.client.programs.cluster import TRANSACTION_KEY
from oncelog.client.programs.steps import Program, Sleep, parallel
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.wire.messages.metadata import MetadataRequest
from tests.unit.client.programs.fake_brokers import CONFIG, LATENCY_MS, Runner
from tests.unit.client.programs.fake_brokers import runner as runner

T0, T1 = (TopicPartition(TopicName("t"), index) for index in range(2))


def groups(broker: int, _: object) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=f"of {broker}")])


def list_groups(runner: Runner, broker: int) -> Program[str]:
    response = yield from runner.cluster.request(ListGroupsRequest(), broker=broker)
    return str(response.groups[0].group_id)


def test_leaders_are_looked_up_once_and_again_when_forgotten(runner: Runner) -> None:
    runner.brokers.leaders["t"] = {0: 1, 1: 2}
    assert runner.run(runner.cluster.leader(T0)) == 1
    assert runner.run(runner.cluster.by_leader([T0, T1])) == {1: [T0], 2: [T1]}
    assert len(runner.brokers.asked(MetadataRequest)) == 1
    runner.brokers.leaders["t"] = {0: 3, 1: 2}
    runner.cluster.view.forget("t")
    assert runner.run(runner.cluster.leader(T0)) == 3


def test_connections_to_known_brokers_say_which_broker_is_meant(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = groups
    runner.brokers.cluster_id = "c"
    assert runner.run(list_groups(runner, 2)) == "of 2"
    assert runner.brokers.expected == [None, ("c", 2)], "a bootstrap address may lead to any broker"


def test_a_client_of_another_cluster_bootstraps_again(runner: Runner) -> None:
    brokers = runner.brokers
    brokers.answers[ListGroupsRequest] = groups
    brokers.cluster_id, brokers.leaders = "old", {"t": {0: 1}, "gone": {0: 1}}
    runner.run(runner.cluster.all_topics(60_000))
    shared = runner.run(runner.cluster.link())
    brokers.cluster_id, brokers.leaders = "new", {"t": {0: 3}}
    with pytest.raises(RebootstrapRequired):
        runner.run(list_groups(runner, 2))
    assert not shared.is_open
    assert (runner.cluster.view.brokers, runner.cluster.view.topics) == ({}, {})
    assert runner.run(runner.cluster.retrying(lambda: list_groups(runner, 3))) == "of 3"
    assert runner.cluster.view.cluster_id == "new"
    assert set(runner.run(runner.cluster.all_topics(60_000))) == {"t"}, "those of the old cluster were just fetched"
    assert runner.run(runner.cluster.leader(T0)) == 3
    assert brokers.expected == [None, ("old", 2), None, ("new", 3)]


def test_metadata_that_asks_for_it_makes_the_client_bootstrap_again(runner: Runner) -> None:
    """KIP-1102."""
    brokers = runner.brokers
    brokers.leaders["t"] = {0: 1}
    assert runner.run(runner.cluster.leader(T0)) == 1
    brokers.metadata_error, brokers.leaders["t"] = ErrorCode.REBOOTSTRAP_REQUIRED, {0: 2}
    with pytest.raises(RebootstrapRequired):
        runner.run(runner.cluster.refresh())
    assert runner.cluster.view.brokers == {}

    def recover() -> Program[None]:
        yield Sleep(CONFIG.retry_backoff_ms / 2)
        brokers.metadata_error = 0

    def program() -> Program[int | None]:
        results = yield from parallel([runner.cluster.leader(T0), recover()])
        return results[0]

    assert runner.run(program()) == 2
    assert brokers.connections >= 3


def test_a_topic_may_appear_within_its_grace(runner: Runner) -> None:
    def program() -> Program[int]:
        def appear() -> Program[None]:
            yield Sleep(CONFIG.unknown_topic_grace_ms / 2)
            runner.brokers.leaders["t"] = {0: 2}

        results = yield from parallel([runner.cluster.leader(T0), appear()])
        leader = results[0]
        assert leader is not None
        return leader

    assert runner.run(program()) == 2
    with pytest.raises(UnknownTopic, match="topic 'absent'"):
        runner.run(runner.cluster.topic("absent"))
    with pytest.raises(UnknownTopic, match="partition 1 of topic 't'"):
        runner.run(runner.cluster.leader(T1))


def test_a_partition_without_a_leader_may_get_one(runner: Runner) -> None:
    runner.brokers.leaders["t"] = {0: -1}
    with pytest.raises(BrokerRefused, match="partition t-0"):
        runner.run(runner.cluster.leader(T0))
    runner.brokers.leaders["t"] = {0: 1}
    assert runner.run(runner.cluster.leader(T0)) == 1


def test_a_coordinator_is_looked_up_with_patience_and_once(runner: Runner) -> None:
    codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

    def find(_: int, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        answer = Coordinator(key=message.coordinator_keys[0], node_id=2, error_code=codes.pop(0) if codes else 0)
        return FindCoordinatorResponse(coordinators=[answer])

    runner.brokers.answers[FindCoordinatorRequest] = find
    for _ in range(2):
        assert runner.run(runner.cluster.coordinator("g")) == 2
    assert len(runner.brokers.asked(FindCoordinatorRequest)) == 3
    assert runner.run(runner.cluster.coordinator("g", TRANSACTION_KEY)) == 2
    runner.cluster.forget_coordinator("g")
    assert runner.run(runner.cluster.coordinator("g")) == 2
    assert len(runner.brokers.asked(FindCoordinatorRequest)) == 5


def test_requests_go_to_any_the_controller_or_a_broker(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = groups
    runner.brokers.controller_id = 3
    for broker in ("any", "controller", 2):
        runner.run(runner.cluster.request(ListGroupsRequest(), broker=broker))  # type: ignore[arg-type]
    assert runner.brokers.asked(ListGroupsRequest) == [1, 3, 2]
    with pytest.raises(ConnectionLost, match="broker 9 is not in the cluster"):
        runner.run(runner.cluster.link(9))


def test_brokers_that_are_down_are_passed_over_and_given_time(runner: Runner) -> None:
    runner.brokers.down = {1, 2, 3}
    with pytest.raises(NoBrokerReachable, match="none of the 3 brokers can be reached"):
        runner.run(runner.cluster.link())
    assert runner.now_ms() >= CONFIG.bootstrap_timeout_ms
    runner.brokers.down = {1}
    assert runner.run(runner.cluster.link()).address.port == 2


def test_an_error_that_may_pass_is_retried_after_pauses_that_grow(runner: Runner) -> None:
    attempts: list[int] = []

    def attempt() -> Program[str]:
        yield Sleep(0)
        attempts.append(runner.cluster.now_ms())
        if len(attempts) < 4:
            raise BrokerRefused(ErrorCode.NOT_ENOUGH_REPLICAS, "t")
        return "done"

    assert runner.run(runner.cluster.retrying(attempt)) == "done"
    assert attempts == [0, 100, 300, 700]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_an_error_is_raised_at_once_or_in_the_end(runner: Runner, code: ErrorCode) -> None:
    def attempt() -> Program[None]:
        yield Sleep(1)
        raise BrokerRefused(code, "t")

    with pytest.raises(BrokerRefused):
        runner.run(runner.cluster.retrying(attempt, 1000))
    is_final = code == ErrorCode.INVALID_CONFIG
    assert runner.now_ms() == 1 if is_final else 1000 <= runner.now_ms() < 3000


def test_brokers_are_asked_side_by_side(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = groups
    runner.run(runner.cluster.refresh_brokers())
    begun_ms = runner.now_ms()
    runner.brokers.slow_ms = {1: 50, 2: 20, 3: 90}
    retryings = (runner.cluster.retrying(lambda broker=broker: list_groups(runner, broker)) for broker in (3, 1, 2))  # type: ignore[misc]
    assert runner.run(parallel(retryings)) == ["of 3", "of 1", "of 2"]
    assert runner.now_ms() - begun_ms == LATENCY_MS + 90
    assert runner.brokers.connections == 4  # and the first one, to learn of them


def test_side_by_side_within_side_by_side(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = groups
    ended: list[int] = []

    def pause(milliseconds: int) -> Program[int]:
        yield Sleep(milliseconds)
        ended.append(milliseconds)
        return milliseconds

    def both(least: int) -> Program[list[int]]:
        return (yield from parallel([pause(least), pause(least + 20)]))

    assert runner.run(parallel([both(30), both(40), parallel([])])) == [[30, 50], [40, 60], []]
    assert ended == [30, 40, 50, 60]
    assert runner.now_ms() == 60


def test_the_first_error_is_raised_once_all_have_ended(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = lambda broker, _: groups(broker, _) if broker != 2 else None
    runner.run(runner.cluster.refresh_brokers())
    ended: list[str] = []

    def asked(broker: int) -> Program[str]:
        try:
            return (yield from list_groups(runner, broker))
        finally:
            ended.append(f"{broker} at {runner.cluster.now_ms()}")

    def refused() -> Program[str]:
        yield Sleep(20)
        raise BrokerRefused(ErrorCode.INVALID_CONFIG, "t")

    with pytest.raises(RequestTimedOut):
        runner.run(parallel([asked(1), asked(2), refused(), asked(3)]))
    assert ended == ["1 at 20", "3 at 20", "2 at 3010"]
    assert runner.run(list_groups(runner, 3)) == "of 3"


def test_a_link_is_opened_once_for_all_that_wait_for_it(runner: Runner) -> None:
    links = runner.run(parallel([runner.cluster.link(2) for _ in range(3)]))
    assert links[0] is links[1] is links[2]
    assert runner.brokers.connections == 2  # one of them to learn who broker 2 is


def test_a_program_that_is_given_up_cleans_up_and_its_links_close(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = groups
    runner.run(runner.cluster.refresh_brokers())
    cleaned: list[int] = []

    def asked(broker: int) -> Program[str]:
        try:
            return (yield from list_groups(runner, broker))
        finally:
            cleaned.append(broker)

    def interrupted() -> Program[str]:
        yield Sleep(5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(parallel([asked(1), asked(2), interrupted()]))
    if (loop := getattr(runner, "loop", None)) is not None:
        loop.end()
    assert sorted(cleaned) == [1, 2]
    assert {broker: link.is_open for broker, link in runner.cluster.links.items()} == {"any": True, 1: False, 2: False}


def test_after_close_everything_is_refused(runner: Runner) -> None:
    runner.run(runner.cluster.link())
    assert [link.is_open for link in runner.cluster.close()] == [True]
    with pytest.raises(Closed):
        runner.run(runner.cluster.metadata(["t"]))


def test_a_broker_that_has_moved_is_connected_anew(runner: Runner) -> None:
    runner.run(runner.cluster.link(2))
    moved = runner.brokers.addresses[2]
    runner.brokers.addresses[2] = runner.brokers.addresses[3]
    runner.run(runner.cluster.refresh())
    assert runner.run(runner.cluster.link(2)).address != moved


def test_metadata_of_all_topics_that_has_not_changed_is_decoded_once(runner: Runner) -> None:
    def leader(topic: str) -> int:
        return runner.run(runner.cluster.metadata(None))[TopicName(topic)].partitions[0].leader

    runner.brokers.leaders = {"a": {0: 1}, "b": {0: 2}}
    assert (leader("a"), leader("b")) == (1, 2)
    runner.cluster.view.forget("a")
    assert leader("a") == 1
    assert runner.cluster.view.age_ms("a", runner.now_ms()) is not None
    runner.brokers.leaders = {"a": {0: 2}}
    runner.run(runner.cluster.metadata(["a"]))  # another answer in between: the last one of all topics is void
    runner.brokers.leaders = {"a": {0: 1}, "b": {0: 2}}
    assert leader("a") == 1
    assert runner.cluster.view.leader_moved(TopicPartition(TopicName("b"), 0), 1, 5)
    assert leader("b") == 2
    assert [*runner.run(runner.cluster.all_topics(1000))] == ["a", "b"]
    runner.brokers.metadata_error = 31
    for _ in range(2):
        with pytest.raises(BrokerRefused):
            runner.run(runner.cluster.metadata(None))
    assert [*runner.cluster.view.topics] == ["a", "b"]
