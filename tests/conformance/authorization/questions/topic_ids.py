"""Questions with topic ids: none (zero), one that no topic has, and one of a topic that may not be seen."""

from __future__ import annotations

from typing import Any

from tests.conformance.authorization.questions.asking import NO_UUID, Known, make
from tests.conformance.authorization.world import ELSE, GROUP, HIDDEN, TOPIC
from tests.peers.clients.sweep.wire import NOWHERE, batch

_BY_ID_SINCE = {"produce": 13, "fetch": 13, "metadata": 10, "offset_commit": 10, "offset_fetch": 10}


def _ids(known: Known) -> tuple[bytes, ...]:
    return NO_UUID, NOWHERE, known.topic_ids[HIDDEN], known.topic_ids[TOPIC]


def produce_by_id(version: int, known: Known) -> Any:
    """A batch without a producer, to each topic."""
    if version < _BY_ID_SINCE["produce"]:
        return None
    part = make("produce.PartitionProduceData", index=0, records=batch(b"v"))
    topics = [make("produce.TopicProduceData", topic_id=id_, partition_data=[part]) for id_ in _ids(known)]
    return make("produce.ProduceRequest", acks=-1, timeout_ms=5000, topic_data=topics)


def fetch_by_id(version: int, known: Known) -> Any:
    """The zero id is asked for alone (``fetch_without_id``): Apache Kafka fails a request with others beside it."""
    return _fetch(version, _ids(known)[1:])


def fetch_without_id(version: int, _known: Known) -> Any:
    """The zero id."""
    return _fetch(version, (NO_UUID,))


def _fetch(version: int, ids: tuple[bytes, ...]) -> Any:
    if version < _BY_ID_SINCE["fetch"]:
        return None
    partition = make("fetch.FetchPartition", partition=0, partition_max_bytes=1)
    topics = [make("fetch.FetchTopic", topic_id=id_, partitions=[partition]) for id_ in ids]
    return make("fetch.FetchRequest", max_bytes=1, session_epoch=-1, topics=topics)


def metadata_by_any_id(version: int, known: Known) -> Any:
    """Versions 10 and 11 have ids and do not take them."""
    if version < _BY_ID_SINCE["metadata"]:
        return None
    topics = [make("metadata.MetadataRequestTopic", name=None, topic_id=id_) for id_ in _ids(known)]
    return make("metadata.MetadataRequest", topics=topics, allow_auto_topic_creation=False)


def metadata_without_id(version: int, _known: Known) -> Any:
    """Neither a name nor an id."""
    if version < _BY_ID_SINCE["metadata"]:
        return None
    topics = [make("metadata.MetadataRequestTopic", name=None)]
    return make("metadata.MetadataRequest", topics=topics, allow_auto_topic_creation=False)


def delete_topics_without_id(version: int, _known: Known) -> Any:
    """Ids that no topic has: none is deleted."""
    if version < 6:
        return None
    topics = [make("delete_topics.DeleteTopicState", name=None, topic_id=item) for item in (NO_UUID, NOWHERE)]
    return make("delete_topics.DeleteTopicsRequest", topics=topics, timeout_ms=10_000)


def offset_commit_by_id(version: int, known: Known) -> Any:
    """From outside of the group."""
    if version < _BY_ID_SINCE["offset_commit"]:
        return None
    part = make("offset_commit.OffsetCommitRequestPartition", partition_index=0, committed_offset=1)
    topics = [make("offset_commit.OffsetCommitRequestTopic", partitions=[part], topic_id=id_) for id_ in _ids(known)]
    return make("offset_commit.OffsetCommitRequest", group_id=GROUP, topics=topics)


def offset_fetch_by_id(version: int, known: Known) -> Any:
    """Offsets of a group that has some, and of one that has none."""
    if version < _BY_ID_SINCE["offset_fetch"]:
        return None
    topics = [make("offset_fetch.OffsetFetchRequestTopics", partition_indexes=[0], topic_id=id_) for id_ in _ids(known)]
    groups = [make("offset_fetch.OffsetFetchRequestGroup", group_id=group, topics=topics) for group in (GROUP, ELSE)]
    return make("offset_fetch.OffsetFetchRequest", groups=groups)
