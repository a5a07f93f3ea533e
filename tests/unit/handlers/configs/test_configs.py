"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, as bytes in every version."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.handlers.api import Operation, ResourceType
from oncelog.wire.messages import alter_configs as alter
from oncelog.wire.messages import describe_configs as configs
from oncelog.wire.messages import incremental_alter_configs as incremental
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.unit.handlers.cluster_broker import NO_CLUSTER, ClusterBroker, Denying, configured_broker

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def broker() -> ClusterBroker:
    return configured_broker()


class TestDescribeConfigs:
    def ask(
        self, broker: ClusterBroker, kind: int, name: str, *keys: str, version: int = 4
    ) -> configs.DescribeConfigsResult:
        resource = configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        request = configs.DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=True
        )
        result: configs.DescribeConfigsResult = broker.call(request, version).results[0]
        return result

    @pytest.mark.parametrize("version", range(1, 5))
    def test_a_topic_shows_each_key_with_its_source(self, broker: ClusterBroker, version: int) -> None:
        result = self.ask(broker, TOPIC, "t", version=version)
        assert (result.error_code, len(result.configs)) == (0, 37)
        actual = {entry.name: entry for entry in result.configs}
        size = actual["max.message.bytes"]
        assert (size.value, size.config_source, size.read_only, size.is_sensitive) == ("2000000", 4, False, False)
        assert [(s.name, s.value, s.source) for s in size.synonyms] == [
            ("message.max.bytes", "2000000", 4),
            ("message.max.bytes", "1048588", 5),
        ]
        assert actual["retention.ms"].value == "3600000"
        if version >= 3:
            assert (size.config_type, bool(size.documentation)) == (3, True)

    def test_a_broker_shows_all_keys_and_no_secrets(self, broker: ClusterBroker) -> None:
        result = self.ask(broker, BROKER, "1")
        actual = {entry.name: entry for entry in result.configs}
        assert len(actual) == len(result.configs) > 340
        assert (actual["log.retention.hours"].value, actual["log.retention.hours"].read_only) == ("1", True)
        assert (actual["message.max.bytes"].config_source, actual["message.max.bytes"].read_only) == (4, False)
        assert (actual["unknown.key"].value, actual["unknown.key"].is_sensitive) == (None, True)
        assert (actual["ssl.key.password"].value, actual["ssl.key.password"].is_sensitive) == (None, True)
        for name in ("super.users", "allow.everyone.if.no.acl.found"):
            entry = actual[name]
            assert (entry.value, entry.is_sensitive, entry.config_type, entry.documentation) == (None, True, 0, None)
            assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [(name, None, 4)]
        assert actual["log.sync.policy"].value == "commit"

    def test_all_brokers_show_what_is_set_for_them(self, broker: ClusterBroker) -> None:
        change = incremental.AlterableConfig(name="message.max.bytes", value="9")
        resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
        broker.call(incremental.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        result = {entry.name: (entry.value, entry.config_source) for entry in self.ask(broker, BROKER, "").configs}
        assert result == {"min.insync.replicas": ("1", 3), "message.max.bytes": ("9", 3)}
        assert self.ask(broker, TOPIC, "t", "max.message.bytes").configs[0].value == "9"

    def test_all_brokers_show_their_own_value_as_it_was_set_also_where_this_broker_has_another(
        self, broker: ClusterBroker
    ) -> None:
        for name, value in (("", " 900000"), ("1", "800000")):
            change = incremental.AlterableConfig(name="message.max.bytes", value=value)
            resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[change])
            broker.call(incremental.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        (entry,) = self.ask(broker, BROKER, "", "message.max.bytes").configs
        assert (entry.value, entry.config_source) == (" 900000", 3)
        assert [(s.name, s.value, s.source) for s in entry.synonyms] == [("message.max.bytes", " 900000", 3)]
        (own,) = self.ask(broker, BROKER, "1", "message.max.bytes").configs
        assert (own.value, own.config_source) == ("800000", 2)
        assert [s.source for s in own.synonyms] == [2, 3, 4, 5]

    def test_a_broker_named_in_several_ways_is_answered_once(self, broker: ClusterBroker) -> None:
        names = ("1", "+1", "001", "", "2", "1+")
        resources = [configs.DescribeConfigsResource(resource_type=BROKER, resource_name=name) for name in names]
        results = broker.call(configs.DescribeConfigsRequest(resources=resources), 4).results
        assert [(r.resource_name.lstrip("+0"), bool(r.configs)) for r in results] == [
            ("1", True),
            ("", True),
            ("2", False),
            ("1+", False),
        ]

    def test_min_insync_replicas_come_from_the_cluster(self, broker: ClusterBroker) -> None:
        for kind, name in ((BROKER, "1"), (TOPIC, "t")):
            (entry,) = self.ask(broker, kind, name, "min.insync.replicas").configs
            assert (entry.value, [s.source for s in entry.synonyms]) == ("1", [3, 5])

    def test_internal_keys_are_shown_as_they_were_set_and_only_then(self) -> None:
        interval = "producer.id.expiration.check.interval.ms"
        assert self.ask(ClusterBroker(), BROKER, "1", interval).configs == []
        (entry,) = self.ask(ClusterBroker({interval: "500 "}), BROKER, "1", interval).configs
        assert (entry.value, entry.read_only, entry.config_source) == ("500 ", True, 4)
        assert [(s.value, s.source) for s in entry.synonyms] == [("500 ", 4), ("600000", 5)]

    def test_replication_throttles_are_shown_while_they_are_set(self, broker: ClusterBroker) -> None:
        throttle = "leader.replication.throttled.rate"
        assert self.ask(broker, BROKER, "1", throttle).configs == []
        for name, value in (("", "7"), ("1", "+5")):
            change = incremental.AlterableConfig(name=throttle, value=value)
            resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[change])
            broker.call(incremental.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        (entry,) = self.ask(broker, BROKER, "1", throttle).configs
        assert (entry.value, entry.read_only, entry.is_sensitive, entry.config_type) == ("+5", False, False, 5)
        assert [(s.value, s.source) for s in entry.synonyms] == [("+5", 2), ("7", 3)]
        assert entry.documentation is None

    def test_groups_and_client_metrics_have_defaults(self, broker: ClusterBroker) -> None:
        timeout = self.ask(broker, GROUP, "g", "consumer.session.timeout.ms").configs[0]
        assert (timeout.value, [s.name for s in timeout.synonyms]) == ("45000", ["group.consumer.session.timeout.ms"])
        assert {entry.name: entry.value for entry in self.ask(broker, METRICS, "m").configs} == {
            "interval.ms": "300000",
            "match": "",
            "metrics": "",
        }
        assert self.ask(broker, LOGGER, "1").configs == []

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "9", ErrorCode.INVALID_REQUEST),
            (BROKER, "x", ErrorCode.INVALID_REQUEST),
            (LOGGER, "", ErrorCode.INVALID_REQUEST),
            (LOGGER, "9", ErrorCode.INVALID_REQUEST),
            (METRICS, "", ErrorCode.INVALID_REQUEST),
            (GROUP, "", ErrorCode.INVALID_REQUEST),
            (7, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_what_cannot_be_described(self, broker: ClusterBroker, kind: int, name: str, code: ErrorCode) -> None:
        result = self.ask(broker, kind, name)
        assert (result.error_code, result.configs) == (code, [])

    def test_who_may_not_see(self, broker: ClusterBroker) -> None:
        resources = [
            configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in ((TOPIC, "t"), (GROUP, "g"), (BROKER, "1"))
        ]
        denying = Denying(
            *(
                (Operation.DESCRIBE_CONFIGS, r, None)
                for r in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
            )
        )
        results = broker.call(configs.DescribeConfigsRequest(resources=resources), 4, denying).results
        assert [(result.error_code, result.error_message) for result in results] == [
            (29, "Topic authorization failed."),
            (30, "Group authorization failed."),
            (31, "Cluster authorization failed."),
        ]


class TestAlterConfigs:
    @pytest.mark.parametrize("version", range(3))
    def test_all_of_a_topics_own_configs_are_replaced(self, broker: ClusterBroker, version: int) -> None:
        for key in ("retention.ms", "segment.ms"):
            config = alter.AlterableConfig(name=key, value="7")
            resource = alter.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
            (answer,) = broker.call(alter.AlterConfigsRequest(resources=[resource]), version).responses
            assert (answer.error_code, answer.error_message) == (0, None)
        assert dict(broker.image.topics[TopicName("t")].configs) == {"segment.ms": "7"}

    @pytest.mark.parametrize("version", range(2))
    def test_single_keys_are_changed_or_only_checked(self, broker: ClusterBroker, version: int) -> None:
        for key, check in (("retention.ms", False), ("segment.ms", False), ("flush.ms", True)):
            config = incremental.AlterableConfig(name=key, value="7")
            resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
            request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=check)
            assert broker.call(request, version).responses[0].error_code == 0
        assert dict(broker.image.topics[TopicName("t")].configs) == {"retention.ms": "7", "segment.ms": "7"}

    def test_answers_are_in_the_requests_order_also_for_who_may_not(self, broker: ClusterBroker) -> None:
        resources = [
            incremental.AlterConfigsResource(resource_type=kind, resource_name=name)
            for kind, name in ((TOPIC, "t"), (BROKER, "1"), (TOPIC, "u"), (GROUP, "g"))
        ]
        denying = Denying(
            (Operation.ALTER_CONFIGS, ResourceType.TOPIC, "t"),
            (Operation.ALTER_CONFIGS, ResourceType.GROUP, None),
            (Operation.ALTER_CONFIGS, ResourceType.CLUSTER, None),
        )
        answers = broker.call(incremental.IncrementalAlterConfigsRequest(resources=resources), 1, denying).responses
        assert [(a.resource_name, a.error_code) for a in answers] == [("t", 29), ("1", 31), ("u", 0), ("g", 30)]


class TestListConfigResources:
    def test_version_0_lists_client_metrics_only(self, broker: ClusterBroker) -> None:
        assert broker.call(ListConfigResourcesRequest(), 0).config_resources == []

    def test_version_1_lists_what_is_asked_for(self, broker: ClusterBroker) -> None:
        answer = broker.call(ListConfigResourcesRequest(), 1)
        result = [(resource.resource_type, resource.resource_name) for resource in answer.config_resources]
        assert result == [(LOGGER, "1"), (BROKER, "1"), (TOPIC, "t"), (TOPIC, "u")]
        some = broker.call(ListConfigResourcesRequest(resource_types=[TOPIC]), 1).config_resources
        assert [resource.resource_name for resource in some] == ["t", "u"]
        assert broker.call(ListConfigResourcesRequest(resource_types=[TOPIC, 5]), 1).error_code == 35
        denied = broker.call(ListConfigResourcesRequest(), 1, NO_CLUSTER[Operation.DESCRIBE_CONFIGS])
        assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def test_groups_whose_configs_were_taken_away_are_not_listed(self, broker: ClusterBroker) -> None:
        key = "consumer.session.timeout.ms"
        for operation, groups in ((0, ["g"]), (1, [])):
            change = AlterableConfig(name=key, config_operation=operation, value=None if operation else "50000")
            resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[change])
            answer = broker.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert [response.error_code for response in answer.responses] == [0]
            listed = broker.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1).config_resources
            assert [resource.resource_name for resource in listed] == groups
