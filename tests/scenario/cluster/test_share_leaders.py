"""Leaders of share partitions that die or are replaced: records come again, acknowledged ones do not (KIP-932)."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import SHARE_GROUP_STATE, TopicPartition
from oncelog.records.batch import iter_headers
from oncelog.records.record import Record, read_records
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import create_replicated, replace_unheard, replica, state, write
from tests.scenario.share.members import ACCEPT, REJECT, RELEASE, Member, acquired, errors, set_group_configs
from tests.unit.storage.replication import log_bytes

P = TopicPartition("t", 0)
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.replication.factor": "3",
}


@pytest.fixture
def cluster() -> Cluster:
    """Three brokers: 1 leads ``t``, 2 leads ``u``; their group ``g`` begins with the first record."""
    cluster = Cluster(3, CONFIG)
    peer = cluster.connect(1)
    create_replicated(peer, [1, 2, 3])
    create_replicated(peer, [2, 3, 1], "u")
    set_group_configs(peer, "g", share_auto_offset_reset="earliest")
    join(cluster)
    return cluster


def join(cluster: Cluster) -> None:
    """Let a member join, so that the group's share partitions have a state."""
    finder = cluster.connect(cluster.running[0].broker_id)
    answer = finder.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    cluster.advance(1_000)
    answer = finder.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    peer = cluster.connect(answer.coordinators[0].node_id)
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t", "u"])
    peer.send(request, 1)
    cluster.advance(5_000)
    assert peer.responses.popleft().error_code == 0


def leader(cluster: Cluster, partition: TopicPartition = P) -> int:
    return state(cluster.running[0], partition).leader


def fetched(cluster: Cluster, member: Member, topic: str = "t"):
    """A ShareFetch that may wait for the state."""
    member.send_fetch((topic, 0), max_wait_ms=500)
    cluster.advance(500)
    return member.answer()


def acknowledged(cluster: Cluster, member: Member, *acks) -> list[E]:
    member.send_acknowledge(*acks)
    cluster.advance(100)
    return errors(member.answer())


def test_a_leader_dies(cluster) -> None:
    write(cluster, 1, b"a", b"b", b"c")
    member = Member(cluster[1])
    assert acquired(fetched(cluster, member)) == [(0, 2, 1)]
    assert acknowledged(cluster, member, ("t", 0, 0, 1, ACCEPT, RELEASE)) == [E.NONE]
    cluster.kill(1)
    cluster.advance(1_000)
    successor = Member(cluster[leader(cluster)])
    # The released record's count is kept; the held one's was in memory alone.
    assert acquired(fetched(cluster, successor)) == [(1, 1, 2), (2, 2, 1)]
    assert acknowledged(cluster, successor, ("t", 0, 1, 2, ACCEPT)) == [E.NONE]


def test_a_leader_is_replaced(cluster) -> None:
    write(cluster, 1, b"a", b"b")
    member = Member(cluster[1])
    assert acquired(fetched(cluster, member)) == [(0, 1, 1)]
    member.send_fetch(max_wait_ms=60_000)
    replace_unheard(cluster, cluster[1], cluster[2], [2, 3])
    cluster[1].hold_changes = False
    cluster[1].dispatch_changes()
    cluster.advance(100)
    gone = member.answer()
    assert errors(gone) == [E.NOT_LEADER_OR_FOLLOWER]
    hint = gone.responses[0].partitions[0].current_leader
    assert (hint.leader_id, [node.node_id for node in gone.node_endpoints]) == (2, [2])
    assert acquired(fetched(cluster, Member(cluster[2]))) == [(0, 1, 1)]


def test_an_unaware_leader_cannot_acknowledge(cluster) -> None:
    write(cluster, 1, b"a", b"b")
    member = Member(cluster[1])
    fetched(cluster, member)
    replace_unheard(cluster, cluster[1], cluster[2], [2, 3])
    assert acquired(fetched(cluster, Member(cluster[2]))) == [(0, 1, 1)]
    # The new leader has read the state: the coordinator refuses the old one's epoch.
    assert acknowledged(cluster, member, ("t", 0, 0, 1, ACCEPT)) == [E.NOT_LEADER_OR_FOLLOWER]
    assert len(cluster[1].node.share.partitions.led_partitions) == 0


def test_the_share_coordinator_dies(cluster) -> None:
    coordinator = leader(cluster, TopicPartition(SHARE_GROUP_STATE, 0))
    broker_id, topic = (1, "t") if coordinator != 1 else (2, "u")
    write(cluster, broker_id, b"a", b"b", topic=topic)
    member = Member(cluster[broker_id])
    fetched(cluster, member, topic)
    assert acknowledged(cluster, member, (topic, 0, 0, 0, ACCEPT)) == [E.NONE]
    cluster.kill(coordinator)
    member.send_acknowledge((topic, 0, 1, 1, ACCEPT))
    cluster.advance(10_000)
    assert errors(member.answer()) == [E.NONE]


def test_everything_dies_and_comes_back(cluster) -> None:
    write(cluster, 1, b"a", b"b", b"c")
    member = Member(cluster[1])
    fetched(cluster, member)
    assert acknowledged(cluster, member, ("t", 0, 0, 1, ACCEPT)) == [E.NONE]
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    cluster.advance(5_000)
    assert acquired(fetched(cluster, Member(cluster[leader(cluster)]))) == [(2, 2, 1)]


def test_dead_letters_for_another_broker(cluster) -> None:
    create_replicated(cluster.connect(1), [2], "dlq.t", errors_deadletterqueue_group_enable="true")
    set_group_configs(
        cluster.connect(1),
        "g",
        errors_deadletterqueue_topic_name="dlq.t",
        errors_deadletterqueue_copy_record_enable="true",
    )
    write(cluster, 1, b"a", b"b")
    member = Member(cluster[1])
    fetched(cluster, member)
    assert acknowledged(cluster, member, ("t", 0, 0, 1, REJECT)) == [E.NONE]
    cluster.advance(1_000)
    data = log_bytes(replica(cluster[2], TopicPartition("dlq.t", 0)))
    letters: list[Record] = [
        record for at, header in iter_headers(data) for record in read_records(data, at, header, 1 << 20)
    ]
    assert [letter.value for letter in letters] == [b"a", b"b"]
    assert cluster[1].node.share.partitions.counters.dead_letters == 2


@pytest.mark.parametrize("returns", [True, False])
def test_dead_letters_wait_for_a_leader_for_a_while(cluster, returns) -> None:
    create_replicated(cluster.connect(1), [2], "dlq.t", errors_deadletterqueue_group_enable="true")
    set_group_configs(cluster.connect(1), "g", errors_deadletterqueue_topic_name="dlq.t")
    write(cluster, 1, b"a", b"b")
    member = Member(cluster[1])
    fetched(cluster, member)
    cluster.kill(2)
    cluster.advance(1_000)
    member.send_acknowledge(("t", 0, 0, 1, REJECT))
    cluster.advance(5_000)
    assert errors(member.answer()) == [E.NONE]
    counters = cluster[1].node.share.partitions.counters
    assert (counters.dead_letters, counters.failed_dead_letters) == (0, 0)
    if returns:
        cluster.start(2)
    cluster.advance(20_000)
    assert (counters.dead_letters, counters.failed_dead_letters) == ((2, 0) if returns else (0, 2))
