from __future__ import annotations

import time

import pytest

from oncelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicName
from oncelog.base.tree import Delete, Set, TreeNode
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.brokers.registration import Registration, RegistrationRefused, register
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage, changes_of, load_image
from oncelog.core.controller.topics.changes import NewTopic, create_topics, delete_topics
from tests.unit.core.controller.cluster import CONFIG, applied, cluster, ids

T = TopicName("t")


def test_a_broker_joins_as_controller_when_there_is_none() -> None:
    image = cluster(brokers=2)
    assert (image.controller_id, image.controller_epoch, image.cluster_id) == (1, 1, "the-cluster")
    assert [(b.host, b.port, b.epoch) for b in image.brokers.values()] == [("host1", 9092, 0), ("host2", 9092, 1)]
    assert image.features_epoch == 0


def test_a_restarted_broker_keeps_the_cluster_and_gets_a_new_epoch() -> None:
    tree = MemoryTree()
    for start in range(3):
        session = tree.session()
        image = load_image(session.subtree("/"))
        assert image.controller_id == NO_BROKER
        session.commit(register(image, Registration(BrokerId(1), "h", start, None, "id"), now_ms=start))
        image = load_image(session.subtree("/"))
        assert (image.cluster_id, image.brokers[BrokerId(1)].epoch) == ("id", start)
        assert (image.controller_id, image.controller_epoch) == (1, start + 1)
        session.close()


def test_a_second_broker_with_the_same_id_is_refused() -> None:
    with pytest.raises(RegistrationRefused, match="id 1 is already running"):
        register(cluster(), Registration(BrokerId(1), "h", 1, None, "the-cluster"), now_ms=0)


def test_what_changed_is_named() -> None:
    image = cluster()
    made = image.apply(changes_of(create_topics(image, CONFIG, [NewTopic("t"), NewTopic("u")], ids()).operations))
    assert (made.created, made.deleted, made.altered, made.configs) == (("t", "u"), (), (), ())
    image = made.image
    topic = image.topics[T]
    state = layout.state_value(topic.partitions[0]._replace(leader_epoch=LeaderEpoch(5)), 1)
    changed = image.apply(changes_of([Set(layout.state_path(T, 0), state, topic.partitions[0].version)]))
    assert (changed.created, changed.altered) == ((), ("t",))
    assert changed.image.topics[T].partitions[0].leader_epoch == 5
    gone = image.apply(changes_of(delete_topics(image, [topic])))
    assert (gone.deleted, gone.created) == ((topic,), ())
    assert gone.image.topic_of_id(topic.topic_id) is None


def test_a_topic_deleted_and_created_again_is_another() -> None:
    image = cluster(topics=[NewTopic("t", 2, 1, configs=[("retention.ms", "5")])])
    old = image.topics[T]
    without = applied(image, delete_topics(image, [old]))
    again = create_topics(without, CONFIG, [NewTopic("t", 1, 1)], lambda: old.topic_id[::-1])  # type: ignore[arg-type, return-value]  # bytes
    both = image.apply([*changes_of(delete_topics(image, [old])), *changes_of(again.operations)])
    assert (both.deleted, both.created) == ((old,), ("t",))
    new = both.image.topics[T]
    assert (len(new.partitions), dict(new.configs)) == (1, {})
    assert both.image.topic_of_id(old.topic_id) is None
    assert both.image.topic_of_id(new.topic_id) is new


def test_an_image_is_not_changed_by_what_follows() -> None:
    image = cluster(topics=[NewTopic("t")])
    before = (dict(image.topics), dict(image.topic_names), dict(image.brokers))
    image.apply(changes_of(delete_topics(image, list(image.topics.values()))))
    image.apply(changes_of([Delete(layout.broker_path(BrokerId(1)), 0)]))
    assert (image.topics, image.topic_names, image.brokers) == before


def test_topics_that_did_not_change_are_the_same_objects_and_what_was_derived_from_them_stays() -> None:
    image = cluster(topics=[NewTopic("t"), NewTopic("u")])
    calls = []

    def describe(topic: object, _brokers: object) -> object:
        calls.append(topic)
        return object()

    known = image.remembered(image.topics[T], describe)
    later = applied(image, delete_topics(image, [image.topics[TopicName("u")]]))
    assert later.remembered(later.topics[T], describe) is known
    assert len(calls) == 1
    gone = applied(later, delete_topics(later, [later.topics[T]]))
    assert not [key for key in gone.memory if key[1] == T]


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/topics/t",
        "/brokers/topics/t/partitions/0/state",
        "/config/topics/t",
        "/config/brokers/1",
        "/config/users/u",
        "/config/users/u/clients/c",
        "/config/ips/127.0.0.1",
        "/brokers/ids/1",
        "/cluster/id",
        "/controller",
        "/controller_epoch",
        "/feature",
        "/latest_producer_id_block",
        "/oncelog/broker_epoch",
    ],
)
@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"partitions":3,"config":3,"features":3}', b"\xff"])
def test_a_damaged_fact_is_named(path: str, value: bytes) -> None:
    with pytest.raises(layout.DamagedFact, match=path):
        load_image([TreeNode(path, value, 0)])


def test_a_topic_that_an_old_tool_has_made_in_the_tree_is_passed_over() -> None:
    made = TreeNode("/brokers/topics/made", b'{"version":1,"partitions":{"1":[1],"0":[1]}}', 0)
    config = TreeNode("/config/topics/made", b'{"version":1,"config":{}}', 0)
    assert not load_image([made, config]).topics


def test_a_topic_of_ours_over_which_an_old_tool_has_written_is_named() -> None:
    image = cluster(brokers=1)
    state = TreeNode("/brokers/topics/t/partitions/0/state", b'{"leader":1,"leader_epoch":0,"isr":[1]}', 0)
    written = TreeNode("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}', 1)
    with pytest.raises(layout.DamagedFact, match="/brokers/topics/t "):
        image.apply([written, state])


def test_nodes_of_consumers_are_no_metadata() -> None:
    assert not load_image([TreeNode("/consumers/g/offsets/t/0", b"5", 3)]).versions


def test_names_of_entities_survive_the_path() -> None:
    for name in ("", "g", "a/b", "<default>", "ü %", ".", "..", "...", "%2E"):
        node = layout.entity_name(name)
        assert layout.entity_of(node) == name
        assert node not in (".", "..")  # ZooKeeper refuses them


@pytest.mark.slow
@pytest.mark.parametrize("topics", [1000, 1])
def test_ten_thousand_partitions_load_quickly(topics: int) -> None:
    image = cluster()
    expected = [NewTopic(f"topic-{i}", 10_000 // topics, 1) for i in range(topics)]
    operations = create_topics(image, CONFIG, expected, ids()).operations
    nodes = [TreeNode(change.path, change.value or b"", 0) for change in changes_of(operations)]
    took_s = []
    for _ in range(3):  # the best of them: a collection of all the garbage of the tests before is no part of it
        started_s = time.thread_time()
        loaded = load_image(nodes)
        took_s.append(time.thread_time() - started_s)
    assert min(took_s) < 0.5
    assert sum(len(topic.partitions) for topic in loaded.topics.values()) == 10_000


def test_two_names_for_the_same_image_are_equal() -> None:
    assert ClusterImage() == load_image([])
