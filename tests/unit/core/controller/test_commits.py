from __future__ import annotations

import pytest

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicName
from oncelog.base.tree import Check, Conflict
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.commits import Changes, commits_of, size_bytes
from oncelog.core.controller.entities.config_changes import Alteration, ConfigChange, alter_configs
from oncelog.core.controller.fencing import controller_check, topics_check
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, load_image
from oncelog.core.controller.resources import ConfigResourceType, Resource
from oncelog.core.controller.topics.changes import NewTopic, create_topics, delete_topics
from oncelog.ports import Coordination
from tests.unit.core.controller.cluster import CONFIG, ids


def tree_with(*topics: NewTopic) -> tuple[Coordination, ClusterImage]:
    session = MemoryTree().session()
    for number in (1, 2, 3):
        broker = Registration(BrokerId(number), "h", 1, None, "c", directory_id=f"d{number}")
        session.commit(register(load_image(session.subtree("/")), broker, now_ms=0))
    session.commit(create_topics(load_image(session.subtree("/")), CONFIG, topics, ids()).operations)
    return session, load_image(session.subtree("/"))


def led_by_three(image: ClusterImage) -> Changes:
    """Broker 3 leads everything, and some of it moves."""
    return {
        name: {
            index: each._replace(
                leader=BrokerId(3),
                leader_epoch=LeaderEpoch(each.leader_epoch + 1),
                removing=each.replicas[:1] if index % 2 else (),
            )
            for index, each in enumerate(topic.partitions)
        }
        for name, topic in image.topics.items()
    }


@pytest.mark.parametrize("limit_bytes", [2_000, 20_000, 256 * 1024])
def test_many_changes_are_commits_of_bounded_size_that_give_what_was_decided(limit_bytes: int) -> None:
    session, image = tree_with(NewTopic("a", 120, 3), NewTopic("b", 5, 3), NewTopic("c", 60, 2))
    changes = led_by_three(image)
    rights = [*controller_check(image), *topics_check(image)]
    commits = commits_of(image, changes, rights, limit_bytes)
    largest = max(map(size_bytes, commits))
    topic_node = 120 * 20  # changes with each group of partitions that move
    assert largest < limit_bytes + topic_node + 1_000
    for operations in commits:
        assert operations[:2] == rights
        session.commit(operations)
        seen = load_image(session.subtree("/"))
        assert {name: len(topic.partitions) for name, topic in seen.topics.items()} == {"a": 120, "b": 5, "c": 60}
    after = load_image(session.subtree("/"))
    for name, partitions in changes.items():
        for index, expected in partitions.items():
            partition = after.topics[name].partitions[index]
            assert partition == expected._replace(version=expected.version + 1)


def test_nothing_to_change_is_no_commit() -> None:
    _, image = tree_with(NewTopic("a", 3, 3))
    assert commits_of(image, {}) == []
    assert commits_of(image, {TopicName("a"): dict(enumerate(image.topics[TopicName("a")].partitions))}) == []
    assert EMPTY_IMAGE.topics == {}


def test_a_deletion_decided_before_the_topic_got_configs_is_refused() -> None:
    """They would be left behind, and be those of the next topic of that name (found by the simulator)."""
    session, image = tree_with(NewTopic("a", 1, 3))
    deletion = delete_topics(image, list(image.topics.values()))
    change = Alteration(Resource(ConfigResourceType.TOPIC, "a"), [ConfigChange("index.interval.bytes", "100")])
    session.commit(alter_configs(image, CONFIG, BrokerId(1), [change]).operations)
    with pytest.raises(Conflict):
        session.commit(deletion)
    session.commit(delete_topics(after := load_image(session.subtree("/")), list(after.topics.values())))
    assert session.subtree("/config/topics") == []


def test_a_commit_decided_before_a_topic_was_made_anew_is_refused() -> None:
    session, image = tree_with(NewTopic("a", 1, 3))
    commits = commits_of(image, led_by_three(image), [*controller_check(image), *topics_check(image)])
    session.commit(delete_topics(image, list(image.topics.values())))
    session.commit(create_topics(load_image(session.subtree("/")), CONFIG, [NewTopic("a", 1, 3)], ids()).operations)
    with pytest.raises(Conflict) as conflict:
        session.commit(commits[0])
    assert isinstance(conflict.value.operation, Check)


def test_a_lower_min_insync_replicas_ends_eligibility_in_the_same_commit() -> None:
    """From then on the high watermark may rise past those who are out of the set (KIP-966)."""
    topics = [NewTopic(name, 1, 3, configs=[("min.insync.replicas", "3")]) for name in "ab"]
    session, image = tree_with(*topics)
    partition = image.topics[TopicName("a")].partitions[0]
    behind = {
        name: {0: partition._replace(isr=partition.replicas[:2], elr=partition.replicas[2:])} for name in image.topics
    }
    for operations in commits_of(image, behind):
        session.commit(operations)
    image = load_image(session.subtree("/"))
    topic_a = Resource(ConfigResourceType.TOPIC, "a")
    lower = Alteration(topic_a, [ConfigChange("min.insync.replicas", "2")])
    session.commit(alter_configs(image, CONFIG, BrokerId(1), [lower]).operations)
    after = load_image(session.subtree("/"))
    assert [after.topics[TopicName(name)].partitions[0].elr for name in "ab"] == [(), partition.replicas[2:]]
    other = Alteration(topic_a, [ConfigChange("retention.ms", "7")])
    assert len(alter_configs(after, CONFIG, BrokerId(1), [other]).operations) == 2, "a check and the configs"
