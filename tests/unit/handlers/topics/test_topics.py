"""CreateTopics, DeleteTopics, CreatePartitions and Metadata, as bytes in every version."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, NO_TOPIC_ID, TRANSACTION_STATE, TopicName
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.handlers.api import CLUSTER_NAME, Operation, ResourceType
from oncelog.handlers.topics.creation import auto_create, ensure_internal_topic, new_topic_id
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.handlers.cluster_broker import HOST, PORT, ClusterBroker, Denying

CLUSTER, TOPIC = ResourceType.CLUSTER, ResourceType.TOPIC


@pytest.fixture
def broker() -> ClusterBroker:
    return ClusterBroker()


def create(broker: ClusterBroker, *names: str, version: int = 7, partitions: int = 1) -> list[CreatableTopicResult]:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    topics_made: list[CreatableTopicResult] = broker.call(CreateTopicsRequest(topics=topics), version).topics
    return topics_made


def describe(broker: ClusterBroker, *names: str, version: int = 13, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer: MetadataResponse = broker.call(MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
    return answer


class TestCreateTopics:
    @pytest.mark.parametrize("version", range(2, 8))
    def test_a_topic_is_created_and_described_by_what_the_version_knows(
        self, broker: ClusterBroker, version: int
    ) -> None:
        topic = CreatableTopic(
            name="t",
            num_partitions=2,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="5")],
        )
        (result,) = broker.call(CreateTopicsRequest(topics=[topic]), version).topics
        assert (result.error_code, result.error_message) == (0, None)
        image = broker.image.topics[TopicName("t")]
        assert len(image.partitions) == 2
        assert result.topic_id == (image.topic_id if version >= 7 else NO_TOPIC_ID)
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 1)
            shown = {config.name: (config.value, config.config_source) for config in result.configs}
            assert shown["retention.ms"] == ("5", 1)
            assert shown["segment.bytes"] == ("1073741824", 5)

    def test_validation_alone_creates_nothing(self, broker: ClusterBroker) -> None:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        (result,) = broker.call(CreateTopicsRequest(topics=[topic], validate_only=True), 7).topics
        assert result.error_code == 0
        assert not broker.image.topics

    def test_a_name_twice_is_refused_once_and_the_rest_created(self, broker: ClusterBroker) -> None:
        results = create(broker, "a", "t", "t", "__cluster_metadata")
        assert {result.name: (result.error_code, result.error_message) for result in results} == {
            "a": (0, None),
            "t": (42, "Duplicate topic name."),
            "__cluster_metadata": (42, "Creation of internal topic __cluster_metadata is prohibited."),
        }
        assert list(broker.image.topics) == ["a"]

    def test_a_conflict_is_decided_again_on_the_new_image(self, broker: ClusterBroker) -> None:
        broker.before_commit = lambda: create(broker, "t") and None
        (result,) = create(broker, "t")
        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    def test_topic_ids_are_version_4_uuids(self, broker: ClusterBroker) -> None:
        for _ in range(20):
            value = new_topic_id(broker)  # type: ignore[arg-type]  # only what it asks for
            assert (value[6] >> 4, value[8] >> 6) == (4, 2)

    def test_who_may_not_create_and_who_may_not_see_configs(self, broker: ClusterBroker) -> None:
        denying = Denying((Operation.CREATE, CLUSTER, CLUSTER_NAME), (Operation.CREATE, TOPIC, "secret"))
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("secret", "mine")]
        results = broker.call(CreateTopicsRequest(topics=topics), 7, denying).topics
        assert {r.name: r.error_code for r in results} == {"mine": 0, "secret": 29}
        blind = Denying((Operation.DESCRIBE_CONFIGS, TOPIC, None))
        topic = CreatableTopic(name="other", num_partitions=1, replication_factor=1)
        (result,) = broker.call(CreateTopicsRequest(topics=[topic]), 7, blind).topics
        assert (result.error_code, result.topic_config_error_code, result.num_partitions) == (0, 29, -1)


class TestDeleteTopics:
    @pytest.mark.parametrize("version", range(1, 6))
    def test_by_name(self, broker: ClusterBroker, version: int) -> None:
        create(broker, "t", "u")
        results = broker.call(DeleteTopicsRequest(topic_names=["t", "nope"], timeout_ms=1000), version).responses
        assert {result.name: result.error_code for result in results} == {"t": 0, "nope": 3}
        assert list(broker.image.topics) == ["u"]

    def test_by_id_or_name(self, broker: ClusterBroker) -> None:
        create(broker, "t", "u", "v")
        ids = {name: broker.image.topics[TopicName(name)].topic_id for name in "tuv"}
        topics = [
            DeleteTopicState(name=None, topic_id=ids["t"]),
            DeleteTopicState(name="u"),
            DeleteTopicState(name="v"),
            DeleteTopicState(name=None, topic_id=ids["v"]),
            DeleteTopicState(name=None, topic_id=b"9" * 16),
            DeleteTopicState(name="x", topic_id=b"9" * 16),
            DeleteTopicState(name=None),
            DeleteTopicState(name="twice"),
            DeleteTopicState(name="twice"),
        ]
        results = broker.call(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses
        actual = {(result.name, result.topic_id): (result.error_code, result.error_message) for result in results}
        mapped = (42, "The provided topic name maps to an ID that was already supplied.")
        assert actual == {
            ("t", ids["t"]): (0, None),
            ("u", ids["u"]): (0, None),
            ("v", NO_TOPIC_ID): mapped,
            (None, ids["v"]): mapped,
            (None, b"9" * 16): (100, "This server does not host this topic ID."),
            ("x", b"9" * 16): (42, "You may not specify both topic name and topic id."),
            (None, NO_TOPIC_ID): (42, "Neither topic name nor id were specified."),
            ("twice", NO_TOPIC_ID): (42, "Duplicate topic name."),
        }
        assert list(broker.image.topics) == ["v"]

    def test_internal_topics_may_be_deleted(self, broker: ClusterBroker) -> None:
        create(broker, CONSUMER_OFFSETS)
        (result,) = broker.call(DeleteTopicsRequest(topic_names=[CONSUMER_OFFSETS], timeout_ms=1000), 5).responses
        assert (result.error_code, dict(broker.image.topics)) == (0, {})

    @pytest.mark.parametrize(
        ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
    )
    def test_deletion_can_be_disabled(self, version: int, code: ErrorCode) -> None:
        broker = ClusterBroker({"delete.topic.enable": "false"})
        create(broker, "t")
        (result,) = broker.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), version).responses
        assert (result.error_code, list(broker.image.topics)) == (code, ["t"])

    def test_what_may_not_be_seen_or_deleted_is_refused(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        no_cluster = (Operation.DELETE, CLUSTER, CLUSTER_NAME)
        for denying in (
            Denying(no_cluster, (Operation.DELETE, TOPIC, "t")),
            Denying(no_cluster, (Operation.DESCRIBE, TOPIC, None)),
        ):
            results = broker.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, denying).responses
            assert [result.error_code for result in results] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


class TestCreatePartitions:
    @pytest.mark.parametrize("version", range(4))
    def test_partitions_are_added(self, broker: ClusterBroker, version: int) -> None:
        create(broker, "t")
        topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ("t", "nope")]
        results = broker.call(CreatePartitionsRequest(topics=topics, timeout_ms=1000), version).results
        assert {result.name: result.error_code for result in results} == {"t": 0, "nope": 3}
        assert len(broker.image.topics[TopicName("t")].partitions) == 3

    def test_validation_alone_adds_nothing(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        topics = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
        (result,) = broker.call(CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True), 3).results
        assert (result.error_code, len(broker.image.topics[TopicName("t")].partitions)) == (0, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_that_gives_no_time_is_not_carried_out(broker: ClusterBroker, timeout_ms: int) -> None:
    create(broker, "t")
    new = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    more = CreatePartitionsTopic(name="t", count=3, assignments=None)
    answers = [
        *broker.call(CreateTopicsRequest(topics=[new, new], timeout_ms=timeout_ms), 7).topics,
        *broker.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms), 5).responses,
        *broker.call(CreatePartitionsRequest(topics=[more], timeout_ms=timeout_ms), 3).results,
    ]
    assert [(a.error_code, a.error_message) for a in answers] == [(ErrorCode.REQUEST_TIMED_OUT, None)] * 4
    assert {name: len(topic.partitions) for name, topic in broker.image.topics.items()} == {"t": 1}


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_all_topics_in_every_version(self, broker: ClusterBroker, version: int) -> None:
        create(broker, "t", "u", CONSUMER_OFFSETS, partitions=2)
        everything = MetadataRequest(topics=[] if version == 0 else None)
        for _ in range(2):  # the second answer is the remembered one
            answer = broker.call(everything, version)
            assert [topic.name for topic in answer.topics] == [CONSUMER_OFFSETS, "t", "u"]
            assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, HOST, PORT)]
            if version >= 1:
                assert answer.controller_id == 1
                assert [topic.is_internal for topic in answer.topics] == [True, False, False]
            if version >= 2:
                assert answer.cluster_id == "cluster"
            if version >= 10:
                assert answer.topics[1].topic_id == broker.image.topics[TopicName("t")].topic_id
            partition = answer.topics[1].partitions[1]
            assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, 1, 1)
            assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])

    def test_a_remembered_answer_is_forgotten_with_a_change(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        assert len(broker.call(MetadataRequest(topics=None), 12).topics) == 1
        create(broker, "u")
        assert len(broker.call(MetadataRequest(topics=None), 12).topics) == 2

    def test_no_topics_are_asked_for_with_an_empty_list(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        assert broker.call(MetadataRequest(topics=[]), 1).topics == []

    def test_names_once_each_with_their_errors(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        answer = describe(broker, "t", "nope", "a b", "t", "", version=4)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("t", 0),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]

    def test_by_id(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        known = broker.image.topics[TopicName("t")].topic_id
        topics = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in (known, b"1" * 16, known)]
        answer = broker.call(MetadataRequest(topics=topics), 12)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
            ("t", known, 0),
            (None, b"1" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    @pytest.mark.parametrize(
        "topic", [MetadataRequestTopic(name=None), MetadataRequestTopic(name="t", topic_id=b"1" * 16)]
    )
    def test_ids_and_null_names_need_version_12(self, broker: ClusterBroker, topic: MetadataRequestTopic) -> None:
        answer = broker.call(MetadataRequest(topics=[topic]), 11)
        assert ([t.error_code for t in answer.topics], answer.brokers) == ([ErrorCode.INVALID_REQUEST], [])

    def test_neither_name_nor_id_is_what_apache_kafka_does_not_expect(self, broker: ClusterBroker) -> None:
        answer = broker.call(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 13)
        assert (answer.error_code, [t.error_code for t in answer.topics], answer.brokers) == (-1, [-1], [])

    def test_asking_creates_when_client_and_broker_allow(self, broker: ClusterBroker) -> None:
        assert describe(broker, "t", "a b", create=True).topics[0].partitions[0].leader_id == 1
        assert describe(broker, "u", create=False).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        closed = ClusterBroker({"auto.create.topics.enable": "false"})
        assert describe(closed, "t", create=True).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert describe(broker, "u", version=3).topics[0].error_code == 0, "clients before version 4 always allow"
        assert list(broker.image.topics) == ["t", "u"]

    def test_a_creation_that_fails_says_why(self) -> None:
        broker = ClusterBroker({"default.replication.factor": "3"})
        assert describe(broker, "t", create=True).topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR

    def test_of_two_that_create_at_once_both_are_answered(self, broker: ClusterBroker) -> None:
        broker.before_commit = lambda: create(broker, "t") and None
        assert describe(broker, "t", "u", create=True).topics[0].error_code == 0
        assert sorted(broker.image.topics) == ["t", "u"]

    def test_what_may_not_be_seen_is_not_there_or_refused(self, broker: ClusterBroker) -> None:
        create(broker, "t", "u")
        hidden = Denying((Operation.DESCRIBE, TOPIC, "t"))
        assert [topic.name for topic in broker.call(MetadataRequest(topics=None), 12, hidden).topics] == ["u"]
        named = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        (topic,) = broker.call(named, 12, hidden).topics
        assert (topic.error_code, topic.topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_TOPIC_ID)
        cannot = Denying((Operation.CREATE, CLUSTER, CLUSTER_NAME), (Operation.CREATE, TOPIC, "new"))
        new = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        assert broker.call(new, 12, cannot).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def test_what_the_requester_may_do(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="t")],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        answer = broker.call(request, 8)
        assert (answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations) == (8096, 3576)
        assert broker.call(request, 12).topics[0].topic_authorized_operations == 3576
        plain = broker.call(MetadataRequest(topics=None), 8)
        assert plain.topics[0].topic_authorized_operations == -(2**31)


class TestOwnTopics:
    def test_on_one_broker_they_have_one_replica_unless_it_is_said_otherwise(self, broker: ClusterBroker) -> None:
        for topic, partitions in ((CONSUMER_OFFSETS, 50), (TRANSACTION_STATE, 50)):
            steps = ensure_internal_topic(broker, topic)  # type: ignore[arg-type]  # only what it asks for
            assert broker._drive(steps) == ErrorCode.NONE
            image = broker.image.topics[topic]
            assert len(image.partitions) == partitions
            assert all(len(partition.replicas) == 1 for partition in image.partitions)
            assert image.configs["cleanup.policy"] == "compact"
        assert broker.image.topics[TRANSACTION_STATE].configs["min.insync.replicas"] == "1"

    def test_a_factor_that_is_set_and_cannot_be_had_leaves_the_coordinator_unavailable(self) -> None:
        broker = ClusterBroker({"offsets.topic.replication.factor": "3"})
        steps = ensure_internal_topic(broker, CONSUMER_OFFSETS)  # type: ignore[arg-type]  # only what it asks for
        assert broker._drive(steps) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_a_topic_that_exists_counts_as_created(self, broker: ClusterBroker) -> None:
        create(broker, "t")
        before: ClusterImage = broker.image
        assert broker._drive(auto_create(broker, ["t"])) == {}  # type: ignore[arg-type]  # only what it asks for
        assert broker.image is before
