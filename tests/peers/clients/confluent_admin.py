"""confluent-kafka (librdkafka): the admin client."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.peers.clients.confluent import TIMEOUT_S, consume, make_topic, produce_all
from tests.peers.clients.scenario import Scenario, expect, expect_equal, wait_until


def _refusal(future: Any) -> int:
    try:
        future.result(TIMEOUT_S)
    except KafkaException as refused:
        code: int = refused.args[0].code()
        return code
    return 0


def topics(bootstrap: str) -> None:
    """Create, describe, extend, shrink the front of, and delete topics; refusals by their codes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic("ca-one", 2, 1), NewTopic("ca bad", 1, 1), NewTopic("ca-many", 1, 9)])
    expect_equal(_refusal(created["ca-one"]), 0, "create")
    expect_equal(_refusal(created["ca bad"]), KafkaError.TOPIC_EXCEPTION, "a bad name")
    expect_equal(_refusal(created["ca-many"]), KafkaError.INVALID_REPLICATION_FACTOR, "too many replicas")
    checked = admin.create_topics([NewTopic("ca-checked", 1, 1)], validate_only=True)
    expect_equal(_refusal(checked["ca-checked"]), 0, "validate only")
    expect("ca-checked" not in admin.list_topics(timeout=TIMEOUT_S).topics, "validate only creates nothing")
    bad = admin.create_topics([NewTopic("ca-config", 1, 1, config={"retention.ms": "soon"})])
    expect_equal(_refusal(bad["ca-config"]), KafkaError.INVALID_CONFIG, "a bad config")
    unknown = admin.create_topics([NewTopic("ca-config", 1, 1, config={"no.such.key": "1"})])
    expect_equal(_refusal(unknown["ca-config"]), KafkaError.INVALID_CONFIG, "an unknown config")
    expect_equal(_refusal(admin.create_partitions([NewPartitions("ca-one", 4)])["ca-one"]), 0, "more partitions")
    fewer = admin.create_partitions([NewPartitions("ca-one", 1)])["ca-one"]
    expect_equal(_refusal(fewer), KafkaError.INVALID_PARTITIONS, "fewer partitions")
    expect_equal(len(admin.list_topics("ca-one", timeout=TIMEOUT_S).topics["ca-one"].partitions), 4, "partitions")
    expect_equal(_refusal(admin.delete_topics(["ca-one"])["ca-one"]), 0, "delete")
    again = admin.delete_topics(["ca-one"])["ca-one"]
    expect_equal(_refusal(again), KafkaError.UNKNOWN_TOPIC_OR_PART, "delete what is gone")


def configs(bootstrap: str) -> None:
    """Describe, alter one key, replace all keys; where a value comes from."""
    make_topic(bootstrap, "ca-configs", retention_ms="1000")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "ca-configs")

    def values() -> dict[str, tuple[str | None, bool]]:
        entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: (entry.value, entry.is_default) for name, entry in entries.items()}

    expect_equal(values()["retention.ms"], ("1000", False), "a value given at creation")
    expect_equal(values()["cleanup.policy"], ("delete", True), "a default")
    change = ConfigResource(ConfigResource.Type.TOPIC, "ca-configs")
    change.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    change.add_incremental_config(ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE))
    expect_equal(_refusal(admin.incremental_alter_configs([change])[change]), 0, "incremental alter")
    wait_until(lambda: values()["cleanup.policy"] == ("delete,compact", False), "the appended policy")
    expect_equal(values()["retention.ms"], ("604800000", True), "a value deleted")
    bad = ConfigResource(ConfigResource.Type.TOPIC, "ca-configs")
    bad.add_incremental_config(ConfigEntry("min.insync.replicas", "none", incremental_operation=AlterConfigOpType.SET))
    expect_equal(_refusal(admin.incremental_alter_configs([bad])[bad]), KafkaError.INVALID_CONFIG, "a bad value")
    missing = ConfigResource(ConfigResource.Type.TOPIC, "ca-nowhere")
    expect_equal(
        _refusal(admin.describe_configs([missing])[missing]), KafkaError.UNKNOWN_TOPIC_OR_PART, "configs of no topic"
    )
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([broker])[broker].result(TIMEOUT_S)
    expect_equal(described["num.partitions"].value, "1", "a broker default")


def records(bootstrap: str) -> None:
    """Delete records and ask where a log begins and ends."""
    make_topic(bootstrap, "ca-records")
    produce_all(Producer({"bootstrap.servers": bootstrap}), "ca-records", [b"x"] * 10, timestamp=5000)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition("ca-records", 0)

    def offset(spec: OffsetSpec) -> int:
        answer: int = admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset
        return answer

    expect_equal([offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())], [0, 10], "bounds")
    expect_equal(offset(OffsetSpec.max_timestamp()), 0, "offset of the first record with the highest timestamp")
    expect_equal(offset(OffsetSpec.for_timestamp(5001)), -1, "no record so late")
    target = TopicPartition("ca-records", 0, 4)
    expect_equal(admin.delete_records([target])[target].result(TIMEOUT_S).low_watermark, 4, "low watermark")
    expect_equal(offset(OffsetSpec.earliest()), 4, "earliest afterwards")
    beyond = TopicPartition("ca-records", 0, 11)
    expect_equal(_refusal(admin.delete_records([beyond])[beyond]), KafkaError.OFFSET_OUT_OF_RANGE, "beyond the end")


def groups(bootstrap: str) -> None:
    """List, describe, move the offsets of, and delete groups."""
    topic, group = "ca-groups", "ca-group"
    make_topic(bootstrap, topic)
    produce_all(Producer({"bootstrap.servers": bootstrap}), topic, [b"x"] * 5)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "client.id": "me"}
    )
    consumer.subscribe([topic])
    consume(consumer, 5)
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    expect_equal((described.state.name, len(described.members)), ("STABLE", 1), "state of a live group")
    expect_equal(described.members[0].client_id, "me", "client id of the member")
    partitions = [(part.topic, part.partition) for part in described.members[0].assignment.topic_partitions]
    expect_equal(partitions, [(topic, 0)], "assignment")
    expect_equal(_refusal(admin.delete_consumer_groups([group])[group]), KafkaError.NON_EMPTY_GROUP, "a live group")
    consumer.close()
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    expect(group in [item.group_id for item in listed.valid], "the group is listed")
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([moved])[group].result(TIMEOUT_S)
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(TIMEOUT_S)
    expect_equal([part.offset for part in committed.topic_partitions], [2], "moved offset")
    expect_equal(_refusal(admin.delete_consumer_groups([group])[group]), 0, "delete")
    expect_equal(_refusal(admin.delete_consumer_groups([group])[group]), KafkaError.GROUP_ID_NOT_FOUND, "delete again")


def cluster(bootstrap: str) -> None:
    """Describe the cluster and topics."""
    make_topic(bootstrap, "ca-cluster", 3)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_cluster().result(TIMEOUT_S)
    expect_equal(len(described.nodes), 1, "nodes")
    expect(bool(described.cluster_id), "a cluster id")
    listed = admin.list_topics(timeout=TIMEOUT_S)
    expect_equal(listed.topics["ca-cluster"].partitions[2].leader, described.nodes[0].id, "leader")


SCENARIOS: Final[dict[str, Scenario]] = {
    "admin-topics": topics,
    "admin-configs": configs,
    "admin-records": records,
    "admin-groups": groups,
    "admin-cluster": cluster,
}
