from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import oncelog
from oncelog.core.configs import kafka_documentation
from oncelog.core.configs.broker import BrokerConfig, Source, Synonym, parse_broker_config
from oncelog.core.configs.combinations import GROUP_BOUNDS
from oncelog.core.configs.keys import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    DOCUMENTATION,
    GROUP_KEYS,
    NAMES_WITHOUT_EFFECT,
    NO_EFFECT,
    TOPIC_KEYS,
    documentation_of,
    has_no_effect,
)
from oncelog.core.configs.kinds import ConfigError, ConfigKey, ConfigType, canonical
from oncelog.core.configs.limits import between

KEYS_BY_TEXTS: Final = (
    (kafka_documentation.BROKER, tuple(BROKER_KEYS.values())),
    (kafka_documentation.TOPIC, tuple(TOPIC_KEYS.values())),
    (kafka_documentation.GROUP, tuple(GROUP_KEYS.values())),
    (kafka_documentation.CLIENT_METRICS, tuple(CLIENT_METRICS_KEYS.values())),
)


def test_every_default_passes_its_own_limits_and_reads_back_as_itself() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values(), *CLIENT_METRICS_KEYS.values()):
        assert canonical(key.default_value()) == key.default, key.name


def test_every_key_is_documented_and_every_synonym_exists() -> None:
    for texts, keys in KEYS_BY_TEXTS:
        for key in keys:
            assert documentation_of(key, texts) or key.internal, key.name
            assert key.synonym is None or key.synonym in BROKER_KEYS


def test_documentation_is_apache_kafkas_but_where_a_key_does_something_else_here() -> None:
    told = {key.name: documentation_of(key, kafka_documentation.BROKER) for key in BROKER_KEYS.values()}
    assert told["log.segment.bytes"] == "The maximum size of a single log file"
    assert told["num.io.threads"] == f"{kafka_documentation.BROKER['num.io.threads']} {NO_EFFECT}"
    assert told["log.dir"] == DOCUMENTATION["log.dir"]
    assert told["leader.replication.throttled.rate"] is None
    for texts, keys in KEYS_BY_TEXTS:
        assert {key.name for key in keys if key.documentation}.isdisjoint(texts), "a text that is never shown"
        assert set(texts) <= {key.name for key in keys}


def test_keys_that_differ_here_exist_and_their_words_are_not_apache_kafkas() -> None:
    names = {key.name for _, keys in KEYS_BY_TEXTS for key in keys}
    assert names >= set(DOCUMENTATION)
    assert all(any(name.startswith(given) for name in names) for given in NAMES_WITHOUT_EFFECT)
    for texts, _ in KEYS_BY_TEXTS:
        assert not texts.items() & DOCUMENTATION.items()


def test_bounds_of_group_configs_are_broker_keys() -> None:
    assert set(GROUP_BOUNDS) < set(GROUP_KEYS)
    assert all(bound is None or bound in BROKER_KEYS for bounds in GROUP_BOUNDS.values() for bound in bounds)


def test_a_topic_key_has_the_type_and_the_default_of_its_broker_key() -> None:
    derived = {"retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"}
    for key in TOPIC_KEYS.values():
        if key.synonym is not None and key.name not in derived:
            broker_key = BROKER_KEYS[key.synonym]
            assert (broker_key.type, broker_key.default) == (key.type, key.default), key.name


def test_unknown_keys_and_keys_without_effect_are_warned_about() -> None:
    given = {"no.such.key": "1", "num.io.threads": "4", "num.partitions": "3", "log.retention.hour": "1"}
    config, warnings = parse_broker_config(given)
    assert warnings == [
        "ignoring unknown configuration key no.such.key",
        "num.io.threads has no effect here",
        "ignoring unknown configuration key log.retention.hour; did you mean log.retention.hours?",
    ]
    assert config.get("num.partitions") == 3


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("num.partitions", "x", "Invalid value x for configuration num.partitions: Not a number of type INT"),
        ("num.partitions", "0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("num.partitions", "1_0", "Invalid value 1_0 for configuration num.partitions: Not a number of type INT"),
        ("num.partitions", "٣", "Invalid value ٣ for configuration num.partitions: Not a number of type INT"),
        (
            "log.sync.policy",
            "always",
            "Invalid value always for configuration log.sync.policy: String must be one of: commit, none",
        ),
        (
            "auto.create.topics.enable",
            "yes",
            "Invalid value yes for configuration auto.create.topics.enable: Expected value to be either true or false",
        ),
        (
            "log.cleaner.min.cleanable.ratio",
            "1.5",
            "Invalid value 1.5 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1",
        ),
        ("log.dirs", "/a,/b", "Invalid value /a,/b for configuration log.dirs: One data directory is supported"),
        ("num.io.threads", "0", "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
    ],
)
def test_a_wrong_value_is_refused_with_key_value_and_reason(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_broker_config({key: text})
    assert str(caught.value) == message
    assert caught.value.key == key


def test_retention_comes_from_the_finest_unit_that_is_set() -> None:
    assert BrokerConfig().log_retention_ms == 168 * 3_600_000
    assert BrokerConfig({"log.retention.hours": "-1"}).log_retention_ms == -1
    assert BrokerConfig({"log.retention.minutes": "2", "log.retention.hours": "9"}).log_retention_ms == 120_000
    assert BrokerConfig({"log.retention.ms": "5", "log.retention.minutes": "2"}).log_retention_ms == 5
    assert BrokerConfig({"log.roll.hours": "2"}).log_roll_ms == 7_200_000
    assert BrokerConfig({"log.roll.jitter.ms": "9"}).log_roll_jitter_ms == 9
    assert BrokerConfig({"log.flush.scheduler.interval.ms": "7"}).log_flush_interval_ms == 7


def test_the_broker_has_one_id_under_two_names() -> None:
    assert BrokerConfig({"broker.id": "7"}).node_id == 7
    assert BrokerConfig({"node.id": "3"}).get("broker.id") == 3
    assert BrokerConfig({"node.id": "3", "broker.id": "-1"}).get("broker.id") == 3
    with pytest.raises(ConfigError, match=r"broker\.id: Value must equal node\.id"):
        BrokerConfig({"node.id": "3", "broker.id": "4"})


def test_what_is_set_while_running_wins_over_the_file_and_this_broker_over_all() -> None:
    file = BrokerConfig({"message.max.bytes": "1"})
    running = file.with_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    assert (file.get("message.max.bytes"), running.get("message.max.bytes")) == (1, 3)
    assert running.synonyms("message.max.bytes") == [
        Synonym("message.max.bytes", "3", Source.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "2", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("message.max.bytes", "1", Source.STATIC_BROKER),
        Synonym("message.max.bytes", "1048588", Source.DEFAULT),
    ]


def test_a_key_without_a_value_has_no_synonyms_though_the_next_one_has() -> None:
    assert BrokerConfig().synonyms("log.retention.ms") == []
    assert BrokerConfig({"log.retention.ms": "5"}).synonyms("log.retention.ms") == [
        Synonym("log.retention.ms", "5", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    ]


def test_secrets_are_not_shown() -> None:
    config = BrokerConfig({"ssl.key.password": "secret", "unknown": "secret"})
    assert config.synonyms("ssl.key.password") == [Synonym("ssl.key.password", None, Source.STATIC_BROKER)]
    assert config.synonyms("unknown") == [Synonym("unknown", None, Source.STATIC_BROKER)]


def test_values_read_as_java_reads_them_and_are_shown_as_java_shows_them() -> None:
    number = ConfigKey("k", ConfigType.DOUBLE, "1", between(0, 2))
    assert canonical(number.parse(" 1 ")) == "1.0"
    assert canonical(ConfigKey("k", ConfigType.LIST, "").parse(" a , b ")) == "a,b"
    assert ConfigKey("k", ConfigType.BOOLEAN, "true").parse(" TRUE ") is True
    assert ConfigKey("k", ConfigType.LONG, "0").parse("+5") == 5
    assert canonical(1.7976931348623157e308) == "1.7976931348623157E308"
    shown = [canonical(value) for value in (1e8, 9999999.5, 1e7, 0.001, 0.0009, -12345678.0, 0.0, -1e999)]
    assert shown == ["1.0E8", "9999999.5", "1.0E7", "0.001", "9.0E-4", "-1.2345678E7", "0.0", "-Infinity"]
    for text in ("nan", "0x1", "", "1e"):
        with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
            number.parse(text)
    for text in ("9223372036854775808", "", "1.0", "1" * 5000):
        with pytest.raises(ConfigError, match="Not a number of type LONG"):
            ConfigKey("k", ConfigType.LONG, "0").parse(text)


def test_a_key_that_nothing_reads_says_so() -> None:
    """A key counts as read when its name stands in the code somewhere, or a topic key takes its default from it."""
    package = Path(oncelog.__file__).parent
    rooms = ("core", "handlers", "node", "runtime", "storage")
    names = ("keys.py", "_documentation.py", "combinations.py")  # a limit alone is no effect
    files = [path for room in rooms for path in (package / room).rglob("*.py") if not path.name.endswith(names)]
    code = "\n".join(path.read_text() for path in files)
    reads = {key.synonym for key in TOPIC_KEYS.values()}
    for key in BROKER_KEYS.values():
        is_read = f'"{key.replaced_by or key.name}"' in code or key.name in reads
        if not is_read:
            assert has_no_effect(key.name), f"nothing reads {key.name}: name it among the keys without effect"
        elif key.name not in INERT_DEFAULTS:
            assert not has_no_effect(key.name), f"{key.name} is read: it has an effect"


INERT_DEFAULTS = {"log.local.retention.bytes", "log.local.retention.ms", "log.preallocate"} | {
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes",
}
"""Defaults of topic keys that have no effect themselves."""


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("latest", True),
        (" earliest ", True),
        ("EARLIEST", False),
        ("earliest:1", False),
        ("by_duration", False),
        ("by_duration:", False),
        ("by_duration:PT0S", True),
        ("by_duration:p1d", True),
        ("BY_DURATION:P1D", False),
        ("by_duration:PT1,5S", True),
        ("by_duration:PT1.S", True),
        ("by_duration:PT.5S", False),
        ("by_duration:PT0.1234567890S", False),
        ("by_duration:P", False),
        ("by_duration:P1DT", False),
        ("by_duration:P1Y", False),
        ("by_duration:PT1M2H", False),
        ("by_duration:-PT1H", False),
        ("by_duration:-PT-1H", True),
        ("by_duration:PT1M-1H", False),
        ("by_duration:PT1H-0.5S", True),
        ("by_duration:PT-0S", True),
        ("by_duration:P106751991167300D", True),
        ("by_duration:P106751991167301D", False),
        ("by_duration:PT" + "9" * 5000 + "S", False),
    ],
)
def test_offsets_are_reset_by_durations_as_java_reads_them(text: str, accepted: bool) -> None:
    key = GROUP_KEYS["share.auto.offset.reset"]
    if accepted:
        assert key.parse(text) == text.strip()
    else:
        with pytest.raises(ConfigError):
            key.parse(text)


def test_a_limit_of_connections_is_not_described_as_waiting() -> None:
    """Apache Kafka's text says that connections above it are blocked; here they are refused."""
    assert "rejected" in DOCUMENTATION["max.connections"]


def test_a_key_under_its_old_name_sets_the_new_one_and_warns() -> None:
    config, warnings = parse_broker_config({"transaction.orphan.action": "abort", "transaction.orphan.grace.ms": "5"})
    assert config.get("transaction.hanging.action") == "abort"
    assert config.get("transaction.hanging.grace.ms") == 5
    assert warnings == [
        "transaction.orphan.action is deprecated and will be removed in 0.2; use transaction.hanging.action",
        "transaction.orphan.grace.ms is deprecated and will be removed in 0.2; use transaction.hanging.grace.ms",
    ]
    assert config.synonyms("transaction.hanging.action")[-1].name == "transaction.orphan.action"


def test_the_new_name_wins_over_the_old_one_in_the_same_place_but_not_over_a_later_change() -> None:
    config = BrokerConfig({"transaction.orphan.action": "abort", "transaction.hanging.action": "report"})
    assert config.get("transaction.hanging.action") == "report"
    assert config.with_dynamic({"transaction.orphan.action": "abort"}, {}).get("transaction.hanging.action") == "abort"
