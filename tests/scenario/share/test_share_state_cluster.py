"""Share coordinators in a cluster: found and asked by other brokers, moved with their leader, losing nothing."""

from __future__ import annotations

from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import SHARE_GROUP_STATE, GroupId, LeaderEpoch, Offset
from oncelog.core.share.model import ShareState
from oncelog.core.share_state.model import ShareKey
from oncelog.handlers.api import Api
from oncelog.handlers.broker.context import Context
from oncelog.node.requests.lazy_apis import Handle
from oncelog.records.internal.share_state_records import StateBatch
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.node.requests import create_topic
from tests.scenario.share.state_requests import Persister, ask, find, initialize, key_of, read, write

FENCED = ErrorCode.FENCED_LEADER_EPOCH
EPOCH = LeaderEpoch(0)


class Bench:
    """Brokers with a topic, and coordinators with a replica on each broker."""

    def __init__(self, count: int, **config: str) -> None:
        replicated = {
            "share.coordinator.state.topic.replication.factor": str(count),
            "share.coordinator.state.topic.min.isr": "1",
        }
        self.cluster = Cluster(count, {**replicated, **{key.replace("_", "."): text for key, text in config.items()}})
        peer = self.cluster.connect(1)
        create_topic(peer, "t", 3)
        self.key = key_of(self.cluster[1])
        find(peer, self.key.coordinator_key)
        self.cluster.advance(2_000)

    @property
    def coordinator(self) -> int:
        topic = self.cluster.running[0].node.cluster.image.topics[SHARE_GROUP_STATE]
        return topic.partitions[0].leader

    @property
    def elsewhere(self) -> int:
        return next(driver.broker_id for driver in self.cluster.running if driver.broker_id != self.coordinator)

    def persister(self, broker_id: int) -> Persister:
        return Persister(self.cluster[broker_id])


def state(*batches: tuple[int, int, int, int], start: int = 0) -> ShareState:
    stored = [StateBatch(Offset(first), Offset(last), state, count) for first, last, state, count in batches]
    return ShareState(0, Offset(start), 0, tuple(stored))


def test_every_broker_finds_the_same_coordinator() -> None:
    bench = Bench(3)
    found = {
        coordinator.node_id
        for broker_id in (1, 2, 3)
        for coordinator in find(bench.cluster.connect(broker_id), bench.key.coordinator_key)
    }
    assert found == {bench.coordinator}
    (refused,) = ask(bench.cluster.connect(bench.elsewhere), read(bench.key))
    assert refused.error_code is ErrorCode.NOT_COORDINATOR


def test_another_broker_reads_and_writes_by_the_network_without_waiting() -> None:
    bench = Bench(2)
    persister, now_ms = bench.persister(bench.elsewhere), bench.cluster.now_ms
    persister.call("initialize", bench.key, 0, Offset(5))
    persister.call("read", bench.key, EPOCH)
    persister.call("write", bench.key, EPOCH, state((5, 9, 2, 1), (10, 12, 0, 2), start=5))
    persister.call("read", bench.key, EPOCH)
    persister.call("summary", bench.key, EPOCH)
    persister.call("delete", bench.key)
    persister.call("read", bench.key, EPOCH)
    refused = "Error in read state RPC. Read operation on uninitialized share partition not allowed."
    read_back = state((5, 9, 2, 1), (10, 12, 0, 2), start=5)._replace(delivery_complete_count=-1)
    assert persister.answers == [
        (ErrorCode.NONE, None),
        (ErrorCode.NONE, None, state(start=5)._replace(delivery_complete_count=-1)),
        (ErrorCode.NONE, None),
        (ErrorCode.NONE, None, read_back),
        (ErrorCode.NONE, None, 0, 0, 5, 0),
        (ErrorCode.NONE, None),
        (ErrorCode.INVALID_REQUEST, refused, None),
    ]
    assert bench.cluster.now_ms == now_ms


def test_requests_of_one_event_share_a_message() -> None:
    bench = Bench(2)
    elsewhere = bench.cluster[bench.elsewhere]
    keys = [bench.key._replace(partition=index, group_id=GroupId(group)) for index in range(3) for group in "ab"]
    answers: list[Any] = []

    def begin(_now_ms: int) -> None:
        for key in (*keys, keys[0]):
            elsewhere.node.share.persister.initialize(key, 0, Offset(0), answers.append)

    handled: list[int] = []

    def around(api: Api, handle: Handle) -> Handle:
        def counted(request: Any, context: Context) -> Any:
            handled.append(api.key)
            return handle(request, context)

        return counted

    bench.cluster[bench.coordinator].node.put_around_handlers(around)
    elsewhere.node._deadlines.at(elsewhere.now_ms, begin)
    bench.cluster.advance(0)
    # The later initialization of a key has superseded the earlier one.
    assert answers[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answers[1:] == [(ErrorCode.NONE, None)] * 6
    assert handled.count(83) == 2  # one for each group; the superseded request was not sent


def test_a_write_is_acknowledged_once_the_replicas_have_it() -> None:
    bench = Bench(2, share_coordinator_state_topic_min_isr="2")
    persister = bench.persister(bench.coordinator)
    other = bench.elsewhere
    bench.cluster[other].hold_syncs = True
    persister.call("initialize", bench.key, 0, Offset(0))
    assert persister.answers == []
    bench.cluster[other].release()
    bench.cluster.advance(100)
    assert persister.answers == [(ErrorCode.NONE, None)]


def test_the_state_moves_with_its_leader_and_nothing_acknowledged_is_lost() -> None:
    bench = Bench(3)
    persister = bench.persister(bench.elsewhere)
    persister.call("initialize", bench.key, 0, Offset(0))
    persister.call("read", bench.key, LeaderEpoch(4))
    persister.call("write", bench.key, LeaderEpoch(4), state((0, 9, 2, 1)))
    before = bench.coordinator
    bench.cluster.kill(before)
    bench.cluster.advance(1_000)
    assert bench.coordinator != before
    again = bench.persister(bench.elsewhere)
    again.call("read", bench.key, LeaderEpoch(5))
    bench.cluster.advance(500)
    (answer,) = again.answers
    assert answer.state == state((0, 9, 2, 1))._replace(delivery_complete_count=-1)
    persister = bench.persister(bench.elsewhere)
    persister.call("write", bench.key, LeaderEpoch(4), state((10, 10, 2, 1)))
    assert [answer.error_code for answer in persister.answers] == [FENCED]


def test_a_request_to_a_dead_coordinator_goes_to_its_successor_at_once() -> None:
    bench = Bench(3)
    before, elsewhere = bench.coordinator, bench.elsewhere
    persister = bench.persister(elsewhere)
    persister.call("initialize", bench.key, 0, Offset(0))
    bench.cluster.kill(before, session_ends=False)
    persister.call("write", bench.key, EPOCH, state((0, 0, 2, 1)))
    bench.cluster.end_session(before)
    bench.cluster.advance(900)  # sooner than the pause of two seconds
    assert persister.answers == [(ErrorCode.NONE, None)] * 2


def test_without_any_leader_a_request_fails_after_thirty_seconds() -> None:
    bench = Bench(2, share_coordinator_state_topic_replication_factor="1")
    before, elsewhere = bench.coordinator, bench.elsewhere
    bench.cluster.kill(before)
    persister = bench.persister(elsewhere)
    persister.call("read", bench.key, EPOCH)
    bench.cluster.advance(29_999)
    assert persister.answers == []
    bench.cluster.advance(1)
    message = "Error in find coordinator. Exhausted max retries to find coordinator without success."
    assert persister.answers == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, message, None)]


def test_a_coordinator_that_comes_back_answers_before_the_pause_is_over() -> None:
    bench = Bench(2, share_coordinator_state_topic_replication_factor="1")
    before, elsewhere = bench.coordinator, bench.elsewhere
    ask(bench.cluster.connect(before), initialize(bench.key))
    ask(bench.cluster.connect(before), write(bench.key, (0, 3, 2, 1)))
    bench.cluster.kill(before)
    persister = bench.persister(elsewhere)
    persister.call("read", bench.key, EPOCH)
    bench.cluster.advance(7_000)
    bench.cluster.start(before)
    bench.cluster.advance(1_000)
    (answer,) = persister.answers
    assert answer.state == state((0, 3, 2, 1))._replace(delivery_complete_count=-1)


def test_followers_drop_the_records_that_their_leader_has_pruned() -> None:
    bench = Bench(2, share_coordinator_snapshot_update_records_per_snapshot="0")
    peer = bench.cluster.connect(bench.coordinator)
    ask(peer, initialize(bench.key))
    for offset in range(5):
        ask(peer, write(bench.key, (offset, offset, 2, 1)))
    bench.cluster.advance(300_000)
    starts = {
        driver.broker_id: log.log_start_offset
        for driver in bench.cluster.running
        for partition, log in driver.node.logs.logs.items()
        if partition.topic == SHARE_GROUP_STATE
    }
    assert starts == {1: 5, 2: 5}


def test_the_topic_grows_with_the_cluster() -> None:
    unset = {
        "share.coordinator.state.topic.replication.factor": "",
        "share.coordinator.state.topic.min.isr": "",
    }
    cluster = Cluster(1, unset)
    peer = cluster.connect(1)
    create_topic(peer, "t")
    key: ShareKey = key_of(cluster[1])
    find(peer, key.coordinator_key)
    ask(peer, initialize(key))
    for broker_id in (2, 3):
        cluster.start(broker_id)
        cluster.advance(3_000)
    topic = cluster[3].node.cluster.image.topics[SHARE_GROUP_STATE]
    assert sorted(topic.partitions[0].replicas) == [1, 2, 3]
    assert topic.configs["min.insync.replicas"] == "2"
