"""ApiVersions, cluster, log directories, elections, features and producer ids, as bytes in every version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName, TopicPartition
from oncelog.core.controller.brokers.suspicions import suspect
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.cluster.versions import unsupported_version
from oncelog.handlers.logs import log_dirs
from oncelog.handlers.registry import APIS
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.unit.handlers.cluster_broker import HOST, NO_CLUSTER, PORT, ClusterBroker, Denying, configured_broker

TOPIC = 2
NAMED = {"client_software_name": "test", "client_software_version": "1.0"}


@pytest.fixture
def broker() -> ClusterBroker:
    return configured_broker()


class TestApiVersions:
    @pytest.mark.parametrize("version", range(6))
    def test_what_is_advertised_is_the_registry(self, broker: ClusterBroker, version: int) -> None:
        answer = broker.call(ApiVersionsRequest(**NAMED), version)
        result = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        assert result == {api.key: (api.min_version if api.key else 0, api.max_version) for api in APIS}, (
            "Produce from 0, whatever is implemented"
        )
        if version >= 3:
            assert answer.finalized_features_epoch == 0
            assert {f.name: f.max_version_level for f in answer.finalized_features} == broker.image.features
            assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == [
                *[("group.version", 0, 1)][: version >= 4],
                ("metadata.version", 7, 33),
                *[("share.version", 0, 2)][: version >= 4],
                *[("transaction.version", 0, 2)][: version >= 4],
            ], "before version 4 clients do not know ranges that begin at 0"

    @pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "ü", "x\n"])
    def test_odd_software_names_are_refused(self, broker: ClusterBroker, name: str) -> None:
        for request in (
            ApiVersionsRequest(client_software_name=name, client_software_version="1"),
            ApiVersionsRequest(client_software_name="a", client_software_version=name),
        ):
            answer = broker.call(request, 3)
            assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])

    @pytest.mark.parametrize(
        ("cluster_id", "node_id", "error"),
        [
            (None, -1, ErrorCode.NONE),
            ("of this broker", 1, ErrorCode.NONE),
            ("of this broker", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
            ("of this broker", -2, ErrorCode.REBOOTSTRAP_REQUIRED),
            ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
            ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
            ("", -1, ErrorCode.INVALID_REQUEST),
            ("of this broker", -1, ErrorCode.INVALID_REQUEST),
            (None, 1, ErrorCode.INVALID_REQUEST),
            (None, -2, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_a_client_that_expects_another_broker_bootstraps_again(
        self, broker: ClusterBroker, cluster_id: str | None, node_id: int, error: ErrorCode
    ) -> None:
        """The answers of Apache Kafka 4.4.0."""
        if cluster_id == "of this broker":
            cluster_id = broker.call(DescribeClusterRequest(), 0).cluster_id
        request = ApiVersionsRequest(**NAMED, cluster_id=cluster_id, node_id=node_id)
        answer = broker.call(request, 5)
        assert (answer.error_code, bool(answer.api_keys)) == (error, not error)
        if error:
            assert answer == ApiVersionsResponse(error_code=error)
        request.client_software_name = ""
        assert broker.call(request, 5).error_code == ErrorCode.INVALID_REQUEST
        assert not broker.call(ApiVersionsRequest(**NAMED, cluster_id="x"), 4).error_code

    def test_a_version_that_is_not_known_is_answered_in_version_0_with_the_range(self) -> None:
        encoded = b"".join(bytes(chunk) for chunk in unsupported_version().encode(0))
        answer = ApiVersionsResponse.decode(encoded, 0)
        (api,) = answer.api_keys
        assert (answer.error_code, api.api_key, api.min_version, api.max_version) == (35, 18, 0, 5)


class TestDescribeCluster:
    @pytest.mark.parametrize("version", range(3))
    def test_the_cluster(self, broker: ClusterBroker, version: int) -> None:
        answer = broker.call(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster", 1)
        assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(1, HOST, PORT)]
        assert answer.cluster_authorized_operations == 8096

    def test_a_broker_that_others_find_frozen_is_named_with_them(self, broker: ClusterBroker) -> None:
        (own,) = broker.image.brokers.values()
        for observer, since_ms in ((3, 700), (2, 900)):
            broker.commit(suspect(broker.image, own, BrokerId(observer), since_ms))
        (described,) = broker.call(DescribeClusterRequest(), 2).brokers
        assert (described.suspected_by, described.suspected_since_ms) == ([2, 3], 700)

    @pytest.mark.parametrize(("kind", "code"), [(2, 114), (3, 115)])
    def test_controllers_are_not_asked_here(self, broker: ClusterBroker, kind: int, code: int) -> None:
        answer = broker.call(DescribeClusterRequest(endpoint_type=kind), 1)
        assert (answer.error_code, answer.brokers) == (code, [])


class TestDescribeTopicPartitions:
    def ask(
        self, broker: ClusterBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsResponse:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        answer: DescribeTopicPartitionsResponse = broker.call(request, 0)
        return answer

    def test_pages_cover_every_partition_once(self, broker: ClusterBroker) -> None:
        for limit in (1, 2, 3, 4, 6, 7):
            seen, cursor = [], None
            while True:
                page = self.ask(broker, limit=limit, cursor=cursor)
                seen += [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
                assert sum(len(t.partitions) for t in page.topics) <= limit
                if page.next_cursor is None:
                    break
                cursor = (page.next_cursor.topic_name, page.next_cursor.partition_index)
            assert seen == [(name, index) for name in "tu" for index in range(3)]

    def test_named_topics_in_order_with_errors(self, broker: ClusterBroker) -> None:
        answer = self.ask(broker, "u", "nope", "a b")
        assert [(t.name, t.error_code, t.topic_authorized_operations) for t in answer.topics] == [
            ("a b", 17, 3576),
            ("nope", 3, 3576),
            ("u", 0, 3576),
        ]

    def test_a_limit_below_one_is_one(self, broker: ClusterBroker) -> None:
        assert len(self.ask(broker, "t", limit=-5).topics[0].partitions) == 1

    def test_a_cursor_must_be_possible(self, broker: ClusterBroker) -> None:
        for cursor in (("t", -1), ("zz", 0)):
            assert [t.error_code for t in self.ask(broker, "t", cursor=cursor).topics] == [42]


class TestDescribeLogDirs:
    @pytest.mark.parametrize("version", range(1, 6))
    def test_sizes_of_the_partitions_it_has(self, broker: ClusterBroker, version: int) -> None:
        broker.sizes = {TopicPartition(TopicName("t"), 0): 5, TopicPartition(TopicName("u"), 2): 7}
        (result,) = broker.call(DescribeLogDirsRequest(topics=None), version).results
        assert [(t.name, [(p.partition_index, p.partition_size) for p in t.partitions]) for t in result.topics] == [
            ("t", [(0, 5)]),
            ("u", [(2, 7)]),
        ]
        assert (result.total_bytes, result.usable_bytes) == ((1000, 400) if version >= 4 else (-1, -1))
        expected = [DescribableLogDirTopic(topic="u", partitions=[0, 2, 2, 9]), DescribableLogDirTopic(topic="x")]
        (some,) = broker.call(DescribeLogDirsRequest(topics=expected), version).results
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in some.topics] == [("u", [2])]

    def test_a_topic_that_is_named_twice_is_answered_once(self, broker: ClusterBroker) -> None:
        broker.sizes = {TopicPartition(TopicName("t"), 0): 5, TopicPartition(TopicName("t"), 1): 6}
        expected = [DescribableLogDirTopic(topic="t", partitions=partitions) for partitions in ([0], [1, 0])]
        (result,) = broker.call(DescribeLogDirsRequest(topics=expected), 4).results
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [("t", [0, 1])]

    def test_a_large_list_is_gathered_a_slice_at_a_time(self, broker: ClusterBroker) -> None:
        gathered = []

        class Counted(list[int]):
            def __iter__(self) -> Iterator[int]:
                for index in super().__iter__():
                    gathered.append(index)
                    yield index

        request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=Counted(range(2500)))])
        slices = log_dirs.describe(request, broker.context(request.API_KEY, 4))
        next(slices)
        assert len(gathered) == 1000
        assert len(list(slices)) == 1
        assert len(gathered) == 2500

    def test_who_may_not(self, broker: ClusterBroker) -> None:
        answer = broker.call(DescribeLogDirsRequest(topics=None), 3, NO_CLUSTER[Operation.DESCRIBE])
        assert (answer.error_code, answer.results) == (31, [])


class TestElectLeaders:
    @pytest.mark.parametrize("version", range(3))
    def test_where_the_preferred_replica_leads_no_election_is_needed(self, broker: ClusterBroker, version: int) -> None:
        requests = [TopicPartitions(topic="t", partitions=[0, 9]), TopicPartitions(topic="x", partitions=[0])]
        answer = broker.call(ElectLeadersRequest(topic_partitions=requests), version)
        result = [
            (topic.topic, partition.partition_id, partition.error_code)
            for topic in answer.replica_election_results
            for partition in topic.partition_result
        ]
        assert result == [("t", 0, 84), ("t", 9, 3), ("x", 0, 3)]

    def test_for_all_partitions_only_news_is_told(self, broker: ClusterBroker) -> None:
        answer = broker.call(ElectLeadersRequest(topic_partitions=None), 2)
        assert [(t.topic, t.partition_result) for t in answer.replica_election_results] == [("t", []), ("u", [])]

    def test_an_unknown_type_and_who_may_not(self, broker: ClusterBroker) -> None:
        requests = [TopicPartitions(topic="t", partitions=[0])]
        assert broker.call(ElectLeadersRequest(election_type=3, topic_partitions=requests), 2).error_code == 42
        denied = broker.call(ElectLeadersRequest(topic_partitions=requests), 2, NO_CLUSTER[Operation.ALTER])
        assert denied.replica_election_results[0].partition_result[0].error_code == 31


class TestUpdateFeatures:
    @pytest.mark.parametrize("version", range(3))
    def test_a_refusal_and_a_level_it_has(self, broker: ClusterBroker, version: int) -> None:
        lower = FeatureUpdateKey(feature="metadata.version", max_version_level=29, allow_downgrade=True)
        refused = broker.call(UpdateFeaturesRequest(feature_updates=[lower]), version)
        assert (refused.error_code, refused.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        same = FeatureUpdateKey(feature="metadata.version", max_version_level=33)
        done = broker.call(UpdateFeaturesRequest(feature_updates=[same]), version)
        assert (done.error_code, done.error_message) == (0, None)
        assert [result.feature for result in done.results] == (["metadata.version"] if version < 2 else [])

    def test_who_may_not(self, broker: ClusterBroker) -> None:
        assert broker.call(UpdateFeaturesRequest(), 1, NO_CLUSTER[Operation.ALTER]).error_code == 31


class TestInitProducerId:
    def ask(self, broker: ClusterBroker, version: int = 5, **fields: object) -> InitProducerIdResponse:
        request = InitProducerIdRequest(**{"transactional_id": None, **fields})  # type: ignore[arg-type]  # by name
        answer: InitProducerIdResponse = broker.call(request, version)
        return answer

    @pytest.mark.parametrize("version", range(7))
    def test_every_producer_gets_an_id_of_its_own(self, broker: ClusterBroker, version: int) -> None:
        answers = [self.ask(broker, version) for _ in range(3)]
        assert [(a.error_code, a.producer_id, a.producer_epoch) for a in answers] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]

    def test_a_producer_that_names_its_id_gets_a_new_one(self, broker: ClusterBroker) -> None:
        assert self.ask(broker).producer_id == 0
        again = self.ask(broker, producer_id=0, producer_epoch=4)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, 1, 0)

    def test_two_thousand_ids_differ(self, broker: ClusterBroker) -> None:
        broker.call(InitProducerIdRequest(transactional_id=None), 4)
        ids = {broker._producer_id() for _ in range(2000)}
        assert len(ids) == 2000
        assert broker.image.producer_id_block == (2000, 2999)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
            ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
            ({"transactional_id": "", "transaction_timeout_ms": 1}, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_refusals(self, broker: ClusterBroker, fields: dict[str, object], code: ErrorCode) -> None:
        answer = self.ask(broker, **fields)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)

    def test_without_a_block_the_client_is_asked_to_come_again(self, broker: ClusterBroker) -> None:
        broker.producer_ids = None
        assert self.ask(broker).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def test_who_may_not(self, broker: ClusterBroker) -> None:
        no_cluster = (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, None)
        request = InitProducerIdRequest(transactional_id=None)
        assert broker.call(request, 5, Denying(no_cluster)).error_code == 0, "who may write to a topic may do it"
        nothing = Denying(no_cluster, (Operation.WRITE, ResourceType.TOPIC, None))
        assert broker.call(request, 5, nothing).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_every_handler_says_its_errors() -> None:
    for api in APIS:
        assert callable(api.load_handler())
        assert all(isinstance(code, ErrorCode) and text for code, text in api.load_errors().items()), api.name


def test_who_may_unregister_a_broker(broker: ClusterBroker) -> None:
    answer = broker.call(UnregisterBrokerRequest(broker_id=9), 0, NO_CLUSTER[Operation.ALTER])
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "Cluster authorization failed.",
    )
    answer = broker.call(UnregisterBrokerRequest(broker_id=9), 0)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
