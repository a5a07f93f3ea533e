from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicName
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import Change, ClusterImage, PartitionImage
from oncelog.core.controller.outcomes import Refusal
from oncelog.core.controller.replicas.elections import ElectionType, elect
from oncelog.core.controller.topics.changes import NewTopic
from tests.unit.core.controller.cluster import applied, cluster

T = TopicName("t")


def led_by(leader: int, isr: list[int], gone: int | None = None) -> ClusterImage:
    """Topic t with one partition on brokers 1 and 2, led by ``leader``; broker ``gone`` is not alive."""
    image = cluster(brokers=2, topics=[NewTopic("t", assignments=[(0, [1, 2])])])
    in_sync = tuple(map(BrokerId, isr))
    state = layout.state_value(PartitionImage(BrokerId(leader), LeaderEpoch(4), (), in_sync), 1)
    changes = [Change(layout.state_path(T, 0), state, 1)]
    if gone is not None:
        changes.append(Change(layout.broker_path(BrokerId(gone)), None, -1))
    return image.apply(changes).image


def run(image: ClusterImage, election: ElectionType) -> tuple[object, tuple[int, int, tuple[int, ...]]]:
    decided = elect(image, election, [(T, 0), (T, 0)])
    partition = applied(image, decided.operations).topics[T].partitions[0]
    assert decided.outcomes[0] == decided.outcomes[1]
    return decided.outcomes[0], (partition.leader, partition.leader_epoch, partition.isr)


def code(outcome: object) -> ErrorCode:
    assert isinstance(outcome, Refusal)
    return outcome.error_code


def test_the_preferred_replica_leads_again_in_a_new_epoch() -> None:
    assert run(led_by(2, [1, 2]), ElectionType.PREFERRED) == (1, (1, 5, (1, 2)))


def test_no_election_where_the_preferred_replica_leads() -> None:
    outcome, after = run(led_by(1, [1, 2]), ElectionType.PREFERRED)
    assert (code(outcome), after) == (ErrorCode.ELECTION_NOT_NEEDED, (1, 4, (1, 2)))


def test_a_preferred_replica_that_is_dead_or_behind_does_not_lead() -> None:
    for image in (led_by(2, [1, 2], gone=1), led_by(2, [2])):
        assert code(run(image, ElectionType.PREFERRED)[0]) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_takes_a_live_replica_though_it_is_behind() -> None:
    assert run(led_by(NO_BROKER, [1], gone=1), ElectionType.UNCLEAN) == (2, (2, 5, (2,)))
    assert run(led_by(NO_BROKER, [1]), ElectionType.UNCLEAN) == (1, (1, 5, (1,)))
    assert code(run(led_by(2, [2]), ElectionType.UNCLEAN)[0]) == ErrorCode.ELECTION_NOT_NEEDED


def test_what_does_not_exist_has_no_election() -> None:
    decided = elect(cluster(topics=[NewTopic("t")]), ElectionType.PREFERRED, [(TopicName("x"), 0), (T, 1), (T, -1)])
    assert decided.outcomes == [
        Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as x"),
        Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-1"),
        Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t--1"),
    ]
