"""Compares two images, after a gap in the changes or in a new session, when the new image was loaded as a whole."""

from __future__ import annotations

from oncelog.base.ids import TopicName
from oncelog.core.controller.image.client_entities import ClientEntity
from oncelog.core.controller.image.cluster_image import ClusterImage, ImageDelta, configs_of


def delta_between(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    """A topic with another id is a different topic."""
    created: list[TopicName] = []
    altered: list[TopicName] = []
    configs: list[TopicName] = []
    deleted = [
        topic
        for name, topic in old.topics.items()
        if name not in new.topics or new.topics[name].topic_id != topic.topic_id
    ]
    for name, topic in new.topics.items():
        before = old.topics.get(name)
        if before is None or before.topic_id != topic.topic_id:
            created.append(name)
            continue
        if before.partitions != topic.partitions:
            altered.append(name)
        if before.configs != topic.configs:
            configs.append(name)
    return ImageDelta(
        image=new,
        created=tuple(created),
        deleted=tuple(deleted),
        altered=tuple(altered),
        configs=tuple(configs),
        client_entities=_changed_entities(old, new),
        broker_configs=old.broker_configs != new.broker_configs,
        brokers=old.brokers != new.brokers,
        features=old.features != new.features,
    )


def _changed_entities(old: ClusterImage, new: ClusterImage) -> tuple[ClientEntity, ...]:
    before, after = old.client_entities, new.client_entities
    return tuple(entity for entity in {**before, **after} if configs_of(old, entity) != configs_of(new, entity))
