"""Keys that are set for one listener, or for one SASL mechanism there."""

from __future__ import annotations

import pytest

from oncelog.core.configs.broker import BrokerConfig, Source, parse_broker_config
from oncelog.core.configs.kinds import ConfigError

LOCATION = "listener.name.inside.ssl.keystore.location"


def test_a_listeners_own_key_wins_over_the_plain_one() -> None:
    config = BrokerConfig({"ssl.keystore.location": "/plain", LOCATION: "/inside"})
    assert config.of_listener("INSIDE", "ssl.keystore.location") == "/inside"
    assert config.of_listener("OUTSIDE", "ssl.keystore.location") == "/plain"
    changed = config.with_dynamic({}, {LOCATION: "/changed"})
    assert changed.of_listener("INSIDE", "ssl.keystore.location") == "/changed"


def test_a_mechanisms_own_key_wins_over_its_listeners() -> None:
    config = BrokerConfig({"listener.name.l.plain.sasl.jaas.config": "a", "listener.name.l.sasl.jaas.config": "b"})
    assert config.of_listener("L", "sasl.jaas.config", "PLAIN") == "a"
    assert config.of_listener("L", "sasl.jaas.config", "SCRAM-SHA-256") == "b"


def test_a_listeners_key_has_the_type_and_the_limits_of_the_plain_one() -> None:
    assert BrokerConfig({"listener.name.l.max.connections": " 7 "}).of_listener("L", "max.connections") == 7
    with pytest.raises(
        ConfigError, match=r"Invalid value often for configuration ssl.client.auth: String must be one of"
    ):
        BrokerConfig({"listener.name.l.ssl.client.auth": "often"})


def test_a_listeners_key_is_known_and_told_with_the_plain_one_behind_it() -> None:
    config, warnings = parse_broker_config({LOCATION: "/inside", "ssl.keystore.location": "/plain"})
    assert not [warning for warning in warnings if "unknown" in warning]
    assert [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms(LOCATION)] == [
        (LOCATION, "/inside", Source.STATIC_BROKER),
        ("ssl.keystore.location", "/plain", Source.STATIC_BROKER),
    ]


def test_a_listeners_secrets_are_not_shown() -> None:
    config = BrokerConfig({"listener.name.l.ssl.key.password": "secret", "num.partitions": "3"})
    assert [synonym.value for synonym in config.synonyms("listener.name.l.ssl.key.password")] == [None]
    assert config.without_secrets() == {"num.partitions": "3"}


def test_an_unknown_key_of_a_listener_is_unknown() -> None:
    _, warnings = parse_broker_config({"listener.name.l.no.such.key": "1"})
    assert warnings == ["ignoring unknown configuration key listener.name.l.no.such.key"]
