"""Questions about topics, partitions and where their replicas are."""

from __future__ import annotations

from typing import Any

from tests.conformance.authorization.questions.asking import Known, Question, make
from tests.conformance.authorization.world import DOOMED, HIDDEN, TOPIC, UNKNOWN
from tests.peers.clients.sweep.wire import NOWHERE


def _metadata(topics: Any) -> Any:
    return make(
        "metadata.MetadataRequest",
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def metadata(_version: int, _known: Known) -> Any:
    names = (TOPIC, HIDDEN, UNKNOWN)
    return _metadata([make("metadata.MetadataRequestTopic", name=name) for name in names])


def metadata_of_all(version: int, _known: Known) -> Any:
    return _metadata([] if version == 0 else None)


def metadata_by_id(version: int, known: Known) -> Any:
    if version < 12:
        return None
    ids = [known.topic_ids[name] for name in (TOPIC, HIDDEN)]
    return _metadata([make("metadata.MetadataRequestTopic", name=None, topic_id=id_) for id_ in (*ids, NOWHERE)])


def create_topics(_version: int, _known: Known) -> Any:
    topics = [
        make("create_topics.CreatableTopic", name=name, num_partitions=1, replication_factor=1)
        for name in (TOPIC, DOOMED, HIDDEN, UNKNOWN)
    ]
    return make("create_topics.CreateTopicsRequest", topics=topics, timeout_ms=10_000, validate_only=True)


def delete_topics(version: int, known: Known) -> Any:
    names = [DOOMED, HIDDEN + "-not", UNKNOWN]
    states = [make("delete_topics.DeleteTopicState", name=name) for name in names]
    return make("delete_topics.DeleteTopicsRequest", topic_names=names, topics=states, timeout_ms=10_000)


def delete_topics_by_id(version: int, known: Known) -> Any:
    if version < 6:
        return None
    ids = (known.topic_ids[DOOMED], NOWHERE)
    topics = [make("delete_topics.DeleteTopicState", name=None, topic_id=id_) for id_ in ids]
    return make("delete_topics.DeleteTopicsRequest", topics=topics, timeout_ms=10_000)


def create_partitions(_version: int, _known: Known) -> Any:
    topics = [
        make("create_partitions.CreatePartitionsTopic", name=name, count=2, assignments=None)
        for name in (TOPIC, HIDDEN, UNKNOWN)
    ]
    return make("create_partitions.CreatePartitionsRequest", topics=topics, timeout_ms=10_000, validate_only=True)


def describe_log_dirs(_version: int, _known: Known) -> Any:
    topics = [make("describe_log_dirs.DescribableLogDirTopic", topic=HIDDEN, partitions=[0])]
    return make("describe_log_dirs.DescribeLogDirsRequest", topics=topics)


def alter_replica_log_dirs(_version: int, _known: Known) -> Any:
    topics = [make("alter_replica_log_dirs.AlterReplicaLogDirTopic", name=HIDDEN, partitions=[0])]
    nowhere = make("alter_replica_log_dirs.AlterReplicaLogDir", path="/nowhere", topics=topics)
    return make("alter_replica_log_dirs.AlterReplicaLogDirsRequest", dirs=[nowhere])


def elect_leaders(_version: int, _known: Known) -> Any:
    topics = [make("elect_leaders.TopicPartitions", topic=name, partitions=[0]) for name in (TOPIC, UNKNOWN)]
    return make("elect_leaders.ElectLeadersRequest", topic_partitions=topics, timeout_ms=10_000)


def alter_partition_reassignments(_version: int, _known: Known) -> Any:
    part = make("alter_partition_reassignments.ReassignablePartition", partition_index=0, replicas=None)
    topics = [
        make("alter_partition_reassignments.ReassignableTopic", name=name, partitions=[part])
        for name in (TOPIC, UNKNOWN)
    ]
    module = "alter_partition_reassignments.AlterPartitionReassignmentsRequest"
    return make(module, topics=topics, timeout_ms=10_000)


def list_partition_reassignments(_version: int, _known: Known) -> Any:
    return make("list_partition_reassignments.ListPartitionReassignmentsRequest", topics=None, timeout_ms=10_000)


def describe_topic_partitions(*names: str) -> Question:
    def question(_version: int, _known: Known) -> Any:
        topics = [make("describe_topic_partitions.TopicRequest", name=name) for name in names]
        return make("describe_topic_partitions.DescribeTopicPartitionsRequest", topics=topics)

    return question
