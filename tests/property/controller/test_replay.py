"""Whatever is decided: the tree takes it, and following it live gives the image that a restart reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import BrokerId, TopicName
from oncelog.base.tree import Operation
from oncelog.coordination.memory import MemoryTree
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.brokers.features import FeatureUpdate, update_features
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.entities.config_changes import Alteration, ConfigChange, alter_configs
from oncelog.core.controller.image.cluster_image import EMPTY_IMAGE, ClusterImage, changes_of, load_image
from oncelog.core.controller.producer_ids import next_block
from oncelog.core.controller.replicas.elections import ElectionType, elect
from oncelog.core.controller.resources import ConfigResourceType, Resource
from oncelog.core.controller.topics.changes import (
    MorePartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)
from tests.unit.core.controller.cluster import ids

CONFIG = BrokerConfig()
NAMES = ["a", "b", "a.b", "a_b", "c-1"]

name = st.sampled_from(NAMES)
configs = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms", "nope"]), st.sampled_from(["5", "x"]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.lists(st.tuples(name, st.integers(-1, 5), configs), unique_by=lambda t: t[0])),
        st.tuples(st.just("delete"), st.lists(name, unique=True)),
        st.tuples(st.just("grow"), st.lists(st.tuples(name, st.integers(0, 9)), unique_by=lambda t: t[0])),
        st.tuples(st.just("configure"), st.lists(st.tuples(name, configs, st.booleans()), unique_by=lambda t: t[0])),
        st.tuples(st.just("brokers"), configs),
        st.tuples(st.just("elect"), st.lists(st.tuples(name, st.integers(0, 3)))),
        st.tuples(st.just("block"), st.none()),
        st.tuples(st.just("feature"), st.integers(0, 31)),
    ),
    max_size=20,
)


def decide(image: ClusterImage, kind: str, text: object, new_id: object) -> list[Operation]:
    match kind, text:
        case "create", list(topics):
            expected = [NewTopic(t, count, 1, configs=list(c.items())) for t, count, c in topics]
            return list(create_topics(image, CONFIG, expected, new_id).operations)  # type: ignore[arg-type]  # a callable
        case "delete", list(topics):
            return delete_topics(image, [image.topics[TopicName(t)] for t in topics if t in image.topics])
        case "grow", list(topics):
            return list(create_partitions(image, [MorePartitions(t, count) for t, count in topics]).operations)
        case "configure", list(topics):
            alterations = [
                Alteration(Resource(ConfigResourceType.TOPIC, t), [ConfigChange(*kv) for kv in c.items()], replace)
                for t, c, replace in topics
            ]
            return list(alter_configs(image, CONFIG, BrokerId(1), alterations).operations)
        case "brokers", dict(values):
            changes = [ConfigChange("log." + key, value) for key, value in values.items()]
            alteration = Alteration(Resource(ConfigResourceType.BROKER, ""), changes)
            return list(alter_configs(image, CONFIG, BrokerId(1), [alteration]).operations)
        case "elect", list(partitions):
            return list(elect(image, ElectionType.PREFERRED, partitions).operations)
        case "block", _:
            return [next_block(image, BrokerId(1))[0]]
        case _, int(level):
            return list(update_features(image, BrokerId(1), [FeatureUpdate("metadata.version", level, 1)]).operations)
    raise AssertionError(kind)


@pytest.mark.slow
@given(steps)
def test_following_changes_gives_what_a_restart_reads(script: list[tuple[str, object]]) -> None:
    session = MemoryTree().session()
    image = EMPTY_IMAGE
    new_id = ids()
    operations: list[Operation] = register(image, Registration(BrokerId(1), "h", 1, "rack", "c"), now_ms=0)
    for step in [None, *script]:
        if step is not None:
            operations = decide(image, *step, new_id)
        session.commit(operations)
        delta = image.apply(changes_of(operations))
        assert set(delta.created) == set(delta.image.topics) - set(image.topics)
        assert {topic.name for topic in delta.deleted} == set(image.topics) - set(delta.image.topics)
        image = delta.image
        assert image == load_image(session.subtree("/"))
        assert {topic.topic_id: topic.name for topic in image.topics.values()} == image.topic_names
