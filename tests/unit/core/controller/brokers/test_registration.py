from __future__ import annotations

import pytest

from oncelog.base.ids import NO_BROKER, BrokerId, TopicName, TopicPartition
from oncelog.base.tree import Check, Delete
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.brokers.registration import BrokerIdInUse, Registration, RegistrationRefused, register
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, load_image
from oncelog.core.controller.replicas.failover import end_fencing, settle_partitions
from oncelog.core.controller.resources import ALL_BROKERS, ConfigResourceType, Resource, current, write_configs
from oncelog.core.controller.topics.changes import NewTopic, create_topics
from tests.unit.core.controller.cluster import CONFIG, applied, cluster, ids

T0 = TopicPartition(TopicName("t"), 0)
BROKER = Resource(ConfigResourceType.BROKER, "1")


def joined(image: ClusterImage, min_insync_replicas: int) -> ClusterImage:
    """The image after broker 1, gone before, has joined again."""
    left = applied(image, [Delete(layout.broker_path(BrokerId(1)), image.brokers[BrokerId(1)].version)])
    return applied(
        left, register(left, Registration(BrokerId(1), "h", 1, None, "the-cluster", min_insync_replicas), now_ms=0)
    )


def setting(image: ClusterImage, resource: Resource, **configs: str) -> ClusterImage:
    """The image where ``resource`` sets exactly ``configs``, as an earlier version may have written it."""
    named = {key.replace("_", "."): text for key, text in configs.items()}
    return applied(image, [write_configs(current(image, resource), named)])


def test_the_first_broker_says_min_insync_replicas_for_all() -> None:
    image = cluster()
    assert current(image, ALL_BROKERS).configs == {"min.insync.replicas": "1"}
    assert current(joined(image, 3), ALL_BROKERS).configs == {"min.insync.replicas": "1"}


def test_a_cluster_of_an_earlier_version_gets_what_was_set_for_the_broker_that_joins() -> None:
    image = setting(
        setting(cluster(), ALL_BROKERS, log_retention_ms="5"), BROKER, min_insync_replicas="2", log_roll_ms="7"
    )
    image = joined(image, 1)
    assert current(image, ALL_BROKERS).configs == {"log.retention.ms": "5", "min.insync.replicas": "2"}
    assert current(image, BROKER).configs == {"log.roll.ms": "7"}


def test_a_cluster_of_an_earlier_version_gets_what_the_broker_is_configured_with() -> None:
    image = joined(setting(cluster(), ALL_BROKERS, log_retention_ms="5"), 2)
    assert current(image, ALL_BROKERS).configs == {"log.retention.ms": "5", "min.insync.replicas": "2"}


def who(number: int = 1, directory_id: str = "d", **other: object) -> Registration:
    """A broker that joins."""
    return Registration(BrokerId(number), "h", 9092, None, "the-cluster", directory_id=directory_id, **other)  # type: ignore[arg-type]  # of their types


def replicated(directory_id: str = "d") -> ClusterImage:
    """Brokers 1 and 2, and a partition that both have in sync; broker 1 has died."""
    image = EMPTY_IMAGE
    for broker in (who(1, directory_id), who(2, "two")):
        image = applied(image, register(image, broker, now_ms=0))
    image = applied(image, create_topics(image, CONFIG, [NewTopic("t", assignments=[(0, [1, 2])])], ids()).operations)
    return applied(image, [Delete(layout.broker_path(BrokerId(1)), 0)])


def flags(image: ClusterImage, number: int = 1) -> tuple[bool, bool]:
    """Fenced, and with a new directory; the same in the broker's record."""
    broker, record = image.brokers[BrokerId(number)], image.broker_records[BrokerId(number)]
    assert (record.fenced, record.is_new_directory) == (broker.fenced, broker.is_new_directory)
    return broker.fenced, broker.is_new_directory


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        (who(), (False, False)),
        (who(was_clean=False), (False, False)),
        (who(was_clean=False, sync_policy="none"), (False, False)),
        (who(directory_id="e"), (True, True)),
        (who(last_epoch=0), (False, False)),
        (who(last_epoch=7), (True, False)),
        (who(was_clean=False, lost=[T0]), (False, False)),
    ],
)
def test_a_directory_that_may_lack_records_is_fenced(broker: Registration, expected: tuple[bool, bool]) -> None:
    """The last registration, of a process that synced before it acknowledged, was in epoch 0."""
    image = replicated()
    assert flags(applied(image, register(image, broker, now_ms=0))) == expected


def test_who_has_lost_records_joins_and_leaves_the_sets_of_these_partitions_in_one_commit() -> None:
    image = replicated()
    operations = register(image, who(lost=[T0]), now_ms=0)
    (partition,) = applied(image, operations).topics[T0.topic].partitions
    assert (partition.leader, partition.isr) == (NO_BROKER, (2,))
    assert [operation.path for operation in operations if isinstance(operation, Check)] == [layout.DELETED_TOPICS]
    assert register(image, who(lost=[T0]).again(), now_ms=0) == register(image, who(), now_ms=0)


def test_losses_in_more_partitions_than_fit_a_commit_fence_the_broker() -> None:
    image = EMPTY_IMAGE
    for broker in (who(), who(2, "two")):
        image = applied(image, register(image, broker, now_ms=0))
    for topic in range(10):
        new = NewTopic(f"{topic}" * 200, assignments=[(number, [1, 2]) for number in range(100)])
        image = applied(image, create_topics(image, CONFIG, [new], ids()).operations)
    lost = [TopicPartition(topic.name, number) for topic in image.topics.values() for number in range(100)]
    operations = register(image, who(lost=lost), now_ms=0)
    assert len(operations) < 10
    assert flags(applied(image, operations)) == (True, False)
    assert flags(applied(image, register(image, who(lost=lost[:100]), now_ms=0))) == (False, False)


def test_the_policy_of_the_last_run_counts() -> None:
    image = EMPTY_IMAGE
    for broker in (who(sync_policy="none"), who(2, "two")):
        image = applied(image, register(image, broker, now_ms=0))
    image = applied(image, create_topics(image, CONFIG, [NewTopic("t", assignments=[(0, [1, 2])])], ids()).operations)
    image = applied(image, [Delete(layout.broker_path(BrokerId(1)), 0)])
    assert flags(applied(image, register(image, who(was_clean=True), now_ms=0))) == (False, False)
    assert flags(applied(image, register(image, who(was_clean=False), now_ms=0))) == (True, False)


def test_who_was_fenced_is_fenced_again_until_the_controller_has_looked() -> None:
    image = replicated()
    new = who(directory_id="e")
    image = applied(image, register(image, new, now_ms=0))
    again = applied(image, register(image, new.again(), now_ms=0))
    assert flags(again) == (True, True)
    while commits := settle_partitions(again, list(again.topics), lambda _topic: False):
        for operations in commits:
            again = applied(again, operations)
    released = applied(again, end_fencing(again, lambda _topic: False, 0))
    assert flags(released) == (False, False)
    (partition,) = released.topics[TopicName("t")].partitions
    assert (partition.isr, partition.leader) == ((2,), 2)
    assert flags(applied(released, register(released, new.again(), now_ms=0))) == (False, False)


def test_a_broker_whose_replicas_are_the_only_ones_is_not_fenced() -> None:
    image = applied(EMPTY_IMAGE, register(EMPTY_IMAGE, who(sync_policy="none"), now_ms=0))
    image = applied(image, create_topics(image, CONFIG, [NewTopic("t", 3, 1)], ids()).operations)
    image = applied(image, [Delete(layout.broker_path(BrokerId(1)), 0)])
    for broker in (who(sync_policy="none", was_clean=False), who(directory_id="e")):
        assert flags(applied(image, register(image, broker, now_ms=0))) == (False, False)


def test_the_dead_process_of_the_same_directory_is_replaced_in_one_commit() -> None:
    tree = MemoryTree()
    first, second = tree.session(), tree.session()
    first.commit(register(load_image([]), who(), now_ms=0))
    before = load_image(second.subtree("/"))
    second.commit(register(before, who(), now_ms=0))
    image = load_image(second.subtree("/"))
    assert image.brokers[BrokerId(1)].epoch == before.brokers[BrokerId(1)].epoch + 1
    assert (image.controller_id, image.controller_epoch) == (1, before.controller_epoch + 1)
    first.close()
    assert load_image(second.subtree("/")) == image, "the new nodes are the new session's"


def test_another_live_directory_and_another_cluster_are_refused_in_one_line() -> None:
    image = applied(EMPTY_IMAGE, register(EMPTY_IMAGE, who(), now_ms=0))
    with pytest.raises(BrokerIdInUse, match=r"^a broker with id 1 is already running .* change this broker's node\.id"):
        register(image, who(directory_id="e"), now_ms=0)
    stranger = Registration(BrokerId(2), "h", 1, None, "elsewhere")
    with pytest.raises(RegistrationRefused, match=r"^the data directory belongs to cluster elsewhere, .* another data"):
        register(image, stranger, now_ms=0)
