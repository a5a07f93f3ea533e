from __future__ import annotations

import pytest

from oncelog.core.configs.broker import BrokerConfig, Source, Synonym
from oncelog.core.configs.keys import TOPIC_KEYS
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.topic import TopicConfigs, check_topic_configs, topic_config, topic_synonyms


def test_a_topic_has_the_brokers_values_unless_it_sets_its_own() -> None:
    broker = BrokerConfig({"log.retention.hours": "1", "log.segment.bytes": "2000000", "message.max.bytes": "5000"})
    config = topic_config(broker, {"max.message.bytes": "6000", "cleanup.policy": "compact,delete"})
    assert config.retention_ms == 3_600_000
    assert config.segment_bytes == 2_000_000
    assert config.max_message_bytes == 6000
    assert config.cleanup_compact
    assert config.cleanup_delete


def test_an_empty_policy_keeps_everything() -> None:
    config = topic_config(BrokerConfig(), {"cleanup.policy": ""})
    assert not config.cleanup_compact
    assert not config.cleanup_delete


def test_a_test_may_have_tiny_segments() -> None:
    assert topic_config(BrokerConfig(), {"internal.segment.bytes": "100"}).segment_bytes == 100


def test_topics_that_set_the_same_share_one_config() -> None:
    configs = TopicConfigs(BrokerConfig())
    assert configs.of({"retention.ms": "5"}) is configs.of({"retention.ms": "5"})
    assert configs.of({}) is not configs.of({"retention.ms": "5"})


def test_where_a_value_comes_from() -> None:
    broker = BrokerConfig({"log.retention.ms": "9"})
    key = TOPIC_KEYS["retention.ms"]
    assert topic_synonyms(broker, {"retention.ms": "5"}, key) == [
        Synonym("retention.ms", "5", Source.TOPIC),
        Synonym("log.retention.ms", "9", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]
    assert topic_synonyms(BrokerConfig(), {}, key) == []


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            {"cleanup.policy": "compact,foo"},
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"segment.bytes": "99999999999"},
            "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"compression.gzip.level": "0"},
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            {"leader.replication.throttled.replicas": "xx"},
            "Invalid value [xx] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage.",
        ),
    ],
)
def test_refusals_are_apache_kafkas(configs: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_topic_configs(BrokerConfig(), configs)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": ""},
        {"cleanup.policy": " compact , delete "},
        {"preallocate": "TRUE"},
        {"leader.replication.throttled.replicas": "*"},
        {"follower.replication.throttled.replicas": "0:1,0:2"},
        {"segment.bytes": " 2000000 "},
        {"max.compaction.lag.ms": "5"},
    ],
)
def test_what_apache_kafka_accepts(configs: dict[str, str]) -> None:
    check_topic_configs(BrokerConfig(), configs)
    topic_config(BrokerConfig(), configs)
