"""Addresses and settings are checked once, and what is wrong is named."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.config import Address, ClientConfig, parse_addresses
from oncelog.client.errors import BrokerRefused, ConfigError, code_name, explain
from oncelog.client.machine.retry import Backoff, Remedy, remedy


def test_addresses() -> None:
    addresses = parse_addresses("a:1, b ,[::1]:3,PLAINTEXT://c:4,[fe80::1]")
    assert addresses == [
        Address("a", 1),
        Address("b", 9092),
        Address("::1", 3),
        Address("c", 4),
        Address("fe80::1", 9092),
    ]
    assert str(addresses[2]) == "[::1]:3"


@pytest.mark.parametrize(
    "text", ["", ",", "a:b:c", "a:0", "a:65536", "a:x", ":9092", "SSL://a:1", "[::1", "a b:1", "a/b"]
)
def test_wrong_addresses_are_named(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_addresses(text)


def test_java_keys_are_understood_and_foreign_ones_left_alone() -> None:
    config = ClientConfig.from_properties({"request.timeout.ms": "5", "client.id": "me", "fetch.min.bytes": "x"})
    assert (config.request_timeout_ms, config.client_id) == (5, "me")


@pytest.mark.parametrize(
    "properties",
    [
        {"request.timeout.ms": "soon"},
        {"security.protocol": "TLS"},
        {"retry.backoff.ms": "-1"},
        {"metadata.cluster.check.enable": "0"},
    ],
)
def test_wrong_settings_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(properties)).replace(".", r"\.")):
        ClientConfig.from_properties(properties)


def test_the_check_of_clusters_can_be_off() -> None:
    assert ClientConfig.from_properties({}).metadata_cluster_check
    assert not ClientConfig.from_properties({"metadata.cluster.check.enable": "False"}).metadata_cluster_check


def test_what_is_not_in_the_table_is_final() -> None:
    assert remedy(ErrorCode.NOT_COORDINATOR) is Remedy.FIND_COORDINATOR
    assert remedy(ErrorCode.NOT_LEADER_OR_FOLLOWER) is Remedy.REFRESH_METADATA
    assert remedy(ErrorCode.INVALID_CONFIG) is Remedy.FAIL
    assert remedy(12345) is Remedy.FAIL


def test_pauses_double_up_to_a_bound() -> None:
    backoff = Backoff(100, 1000)
    assert [backoff.delay_ms(n) for n in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.delay_ms(0, 9999) == 120
    assert backoff.delay_ms(10_000) == 1000


def test_an_unknown_code_is_shown_by_number() -> None:
    assert (code_name(999), explain(999)) == ("999", "error code 999")
    assert str(BrokerRefused(3, "topic 'x'", "two\nlines")) == "topic 'x': two lines (UNKNOWN_TOPIC_OR_PARTITION)"
