"""The cluster's topics as consumer groups see them, from the newest metadata."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import BrokerId, TopicId, TopicName
from oncelog.core.controller.image.model import TopicImage
from oncelog.node.cluster.metadata import Metadata


class GroupTopics:
    """Implements ``core.groups.modern.topics.Topics``. Versions are positions in the commit order of metadata: they
    rise across restarts, too.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._names: Mapping[TopicId, TopicName] | None = None
        self._topics: Mapping[TopicName, TopicImage] = {}
        self._records: object = None
        self._racks: dict[BrokerId, str] = {}
        self._version = self._version_with_new_topics = 0
        # The hash of each topic, and the topic that it is of.
        self._hashes: dict[TopicName, tuple[TopicImage, int]] = {}

    @property
    def version(self) -> int:
        self._follow()
        return self._version

    @property
    def version_with_new_topics(self) -> int:
        self._follow()
        return self._version_with_new_topics

    def id_of(self, name: TopicName) -> TopicId | None:
        topic = self._metadata.image.topics.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic: TopicId) -> TopicName | None:
        return self._metadata.image.topic_names.get(topic)

    def partitions_of(self, topic: TopicId) -> int:
        image = self._metadata.image.topic_of_id(topic)
        return 0 if image is None else len(image.partitions)

    def hash_of(self, name: TopicName) -> int:
        self._follow()
        topic = self._metadata.image.topics[name]
        cached = self._hashes.get(name)
        if cached is not None and cached[0] is topic:
            return cached[1]
        # The library is loaded for the first consumer group.
        from oncelog.core.groups.modern.topics import hash_of_topic

        racks = [
            {self._racks[replica] for replica in partition.replicas if replica in self._racks}
            for partition in topic.partitions
        ]
        topic_hash = hash_of_topic(topic.topic_id, name, racks)
        self._hashes[name] = (topic, topic_hash)
        return topic_hash

    def _follow(self) -> None:
        image = self._metadata.image
        if image.topics is self._topics and image.broker_records is self._records:
            return
        self._version = max(self._version + 1, self._metadata.position)
        if self._names is None or not image.topic_names.keys() <= self._names.keys():
            self._version_with_new_topics = self._version
        # The records of brokers outlive them: a broker that stops for a while moves no partition to another rack.
        racks = {broker_id: broker.rack for broker_id, broker in image.broker_records.items() if broker.rack}
        if racks != self._racks:
            self._racks = racks
            self._hashes.clear()
        for name in self._hashes.keys() - image.topics.keys():
            del self._hashes[name]
        self._topics, self._names, self._records = image.topics, image.topic_names, image.broker_records
