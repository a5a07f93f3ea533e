from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName
from oncelog.base.tree import Conflict
from oncelog.coordination.memory import MemoryTree
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, load_image
from oncelog.core.controller.outcomes import Refusal
from oncelog.core.controller.topics.changes import (
    MAX_PARTITIONS_PER_REQUEST,
    CreatedTopic,
    MorePartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)
from tests.unit.core.controller.cluster import CONFIG, applied, cluster, ids


def outcome(image: ClusterImage, topic: NewTopic, config: BrokerConfig = CONFIG) -> CreatedTopic | Refusal:
    return create_topics(image, config, [topic], ids()).outcomes[0]


def test_a_created_topic_is_in_the_image_with_everything_it_was_created_with() -> None:
    image = cluster(topics=[NewTopic("t", 3, 1, configs=[("retention.ms", "5")])])
    topic = image.topics[TopicName("t")]
    assert [(p.leader, p.leader_epoch, p.replicas, p.isr) for p in topic.partitions] == [(1, 0, (1,), (1,))] * 3
    assert topic.configs == {"retention.ms": "5"}
    assert image.topic_of_id(topic.topic_id) is topic


def test_numbers_that_are_not_given_are_the_brokers() -> None:
    config = BrokerConfig({"num.partitions": "7", "default.replication.factor": "2"})
    created = outcome(cluster(brokers=3), NewTopic("t"), config)
    assert isinstance(created, CreatedTopic)
    assert (len(created.assignment), created.replication_factor) == (7, 2)


def test_partitions_and_leaders_go_round_the_brokers() -> None:
    created = outcome(cluster(brokers=3), NewTopic("t", 6, 2))
    assert isinstance(created, CreatedTopic)
    assert sorted(replicas[0] for replicas in created.assignment) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(replicas)) == 2 for replicas in created.assignment)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (
            NewTopic("a/b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'",
        ),
        (
            NewTopic("x" * 250),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (
            NewTopic("a_b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'a_b' collides with existing topic: a.b",
        ),
        (NewTopic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."),
        (
            NewTopic("t", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("t", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("t", 1, 2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (
            NewTopic("t", 1, 1, configs=[("retention.ms", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic("t", 1, 1, configs=[("nope", "1")]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            NewTopic("t", 1, 1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", 1, -1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=[(1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            NewTopic("t", assignments=[(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("t", assignments=[(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
    ],
)
def test_refusals_are_apache_kafkas(topic: NewTopic, code: ErrorCode, message: str) -> None:
    assert outcome(cluster(topics=[NewTopic("a.b")]), topic) == Refusal(code, message)


def test_replicas_must_be_as_many_in_every_partition() -> None:
    topic = NewTopic("t", assignments=[(0, [1]), (1, [1, 2])])
    assert outcome(cluster(brokers=2), topic) == Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
        "previous partitions, which have 1 replica(s).",
    )


def test_one_refused_topic_does_not_hinder_the_others() -> None:
    image = cluster()
    decided = create_topics(image, CONFIG, [NewTopic("a"), NewTopic("b", 0, 1), NewTopic("c")], ids())
    assert sorted(applied(image, decided.operations).topics) == ["a", "c"]


def test_a_hostile_number_of_partitions_costs_nothing() -> None:
    exceeds_max_partitions = Refusal(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    topics = [NewTopic("a", 2**31 - 1, 1), NewTopic("b")]
    decided = create_topics(cluster(), CONFIG, topics, ids())
    assert (decided.operations, decided.outcomes) == ([], [exceeds_max_partitions, exceeds_max_partitions])
    spread = [NewTopic(f"t{i}", 100, 1) for i in range(MAX_PARTITIONS_PER_REQUEST // 100 + 1)]
    assert create_topics(cluster(), CONFIG, spread, ids()).operations == []
    grown = create_partitions(cluster(topics=[NewTopic("t")]), [MorePartitions("t", 2**31 - 1)])
    assert (grown.operations, grown.outcomes) == ([], [exceeds_max_partitions])


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    empty = cluster()
    image = cluster(topics=[NewTopic("t", 3, 1, configs=[("retention.ms", "5")])])
    after = applied(image, delete_topics(image, list(image.topics.values())))
    assert after.versions[layout.DELETED_TOPICS] == empty.versions[layout.DELETED_TOPICS] + 1
    assert replace(after, versions=empty.versions) == empty


def test_a_decision_on_a_deleted_topic_does_not_hit_its_successor() -> None:
    """A node made anew starts at version 0, as the node did that the decision was made on."""
    tree = MemoryTree().session()
    image = EMPTY_IMAGE
    tree.commit(register(image, Registration(BrokerId(1), "h", 1, None, "c"), now_ms=0))
    image = load_image(tree.subtree("/"))
    tree.commit(create_topics(image, CONFIG, [NewTopic("t", 1, 1)], ids()).operations)
    image = load_image(tree.subtree("/"))
    late = create_partitions(image, [MorePartitions("t", 2)]).operations
    tree.commit(delete_topics(image, list(image.topics.values())))
    tree.commit(create_topics(load_image(tree.subtree("/")), CONFIG, [NewTopic("t", 1, 1)], ids()).operations)
    with pytest.raises(Conflict):
        tree.commit(late)


def test_added_partitions_follow_those_there_are() -> None:
    image = cluster(brokers=2, topics=[NewTopic("t", 2, 1)])
    before = image.topics[TopicName("t")]
    grown = applied(image, create_partitions(image, [MorePartitions("t", 5)]).operations).topics[TopicName("t")]
    assert len(grown.partitions) == 5
    assert grown.partitions[:2] == before.partitions
    assert grown.topic_id == before.topic_id
    assert {partition.leader for partition in grown.partitions} == {1, 2}


def test_partitions_are_added_where_the_request_says() -> None:
    image = cluster(brokers=2, topics=[NewTopic("t", 1, 1)])
    grown = applied(image, create_partitions(image, [MorePartitions("t", 3, [[2], [1]])]).operations)
    partitions = grown.topics[TopicName("t")].partitions
    assert [partition.leader for partition in partitions[1:]] == [BrokerId(2), BrokerId(1)]


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        (MorePartitions("nope", 2), Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (MorePartitions("t", 2), Refusal(ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s).")),
        (
            MorePartitions("t", -1),
            Refusal(
                ErrorCode.INVALID_PARTITIONS,
                "The topic t currently has 2 partition(s); -1 would not be an increase.",
            ),
        ),
        (
            MorePartitions("t", 4, [[1]]),
            Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
            ),
        ),
        (
            MorePartitions("t", 3, [[9]]),
            Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes broker 9, but no such broker is registered.",
            ),
        ),
    ],
)
def test_partitions_that_cannot_be_added(wanted: MorePartitions, refusal: Refusal) -> None:
    image = cluster(topics=[NewTopic("t", 2, 1)])
    decided = create_partitions(image, [wanted])
    assert (decided.operations, decided.outcomes) == ([], [refusal])
