"""The replica that a consumer reads from best."""

from __future__ import annotations

import pytest

from oncelog.base.ids import BrokerId, Offset
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.core.replicas.selector import ReadReplica, preferred_read_replica

LEADER = BrokerId(1)
RACKS = {LEADER: "a", BrokerId(2): "b", BrokerId(3): "b", BrokerId(4): None}


def follower(broker_id: int, end: int = 10, behind_ms: int = 0) -> ReadReplica:
    return ReadReplica(BrokerId(broker_id), Offset(end), behind_ms)


@pytest.mark.parametrize(
    ("rack", "followers", "preferred"),
    [
        ("b", [follower(2), follower(3, 11)], 3),
        ("b", [follower(2, behind_ms=5), follower(3, behind_ms=6)], 2),
        ("b", [follower(4, 99), follower(2)], 2),
        ("b", [follower(9)], None),
        ("b", [], None),
        ("a", [follower(2)], None),
        ("", [follower(4)], None),
    ],
)
def test_the_follower_in_the_rack_that_has_most_and_caught_up_last(
    rack: str, followers: list[ReadReplica], preferred: int | None
) -> None:
    assert preferred_read_replica(rack, LEADER, followers, RACKS) == preferred


def test_only_followers_in_sync_that_have_the_offset() -> None:
    replicas = LeaderReplicas(LEADER, [LEADER, BrokerId(2), BrokerId(3)], [LEADER, BrokerId(2)], Offset(0))
    for broker_id in (2, 3):
        result = replicas.follower(BrokerId(broker_id))
        assert result is not None
        result.fetched(Offset(10), Offset(10), 1, 100)
        replicas.record_log_start(BrokerId(broker_id), Offset(5))
    assert [
        (replica.broker_id, replica.end, replica.behind_ms) for replica in replicas.read_replicas(Offset(10), 130)
    ] == [(2, 10, 30)]
    assert replicas.read_replicas(Offset(11), 130) == []
    assert replicas.read_replicas(Offset(4), 130) == []


def test_the_low_watermark_is_the_smallest_log_start_of_replicas_that_live() -> None:
    two, three = BrokerId(2), BrokerId(3)
    replicas = LeaderReplicas(LEADER, [LEADER, two, three], [LEADER, two, three], Offset(0))
    assert replicas.low_watermark(Offset(7), {LEADER, two, three}) == -1, "nobody has told yet"
    assert replicas.record_log_start(two, Offset(9))
    assert not replicas.record_log_start(two, Offset(9))
    assert replicas.record_log_start(three, Offset(3))
    assert replicas.low_watermark(Offset(7), {LEADER, two, three}) == 3
    assert replicas.low_watermark(Offset(7), {LEADER, two}) == 7
