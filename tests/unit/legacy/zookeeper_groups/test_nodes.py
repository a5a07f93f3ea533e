"""Paths and values, as Java's brokers and consumers have written them."""

from __future__ import annotations

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ClientError, ConfigError
from oncelog.legacy.zookeeper_groups.machine.nodes import (
    check_group,
    offset_path,
    offset_value,
    owner_path,
    read_broker,
    read_offset,
    read_topic,
)

T0 = TopicPartition(TopicName("t"), 0)
BROKERS = {
    "0.8.2.2": b'{"jmx_port":-1,"timestamp":"1795334520213","host":"127.0.0.1","version":1,"port":37873}',
    "1.0.2": (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:38031"],'
        b'"jmx_port":-1,"host":"127.0.0.1","timestamp":"1","port":38031,"version":4}'
    ),
    "3.9.1": (
        b'{"features":{},"listener_security_protocol_map":{"IN":"PLAINTEXT","OUT":"SSL"},"endpoints":["IN://a:1",'
        b'"OUT://[::1]:2"],"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"1"}'
    ),
    "0.9.0.1": (
        b'{"jmx_port":-1,"timestamp":"1","endpoints":["SSL://b:2","PLAINTEXT://b:1"],"host":"b","version":2,"port":1}'
    ),
}


@pytest.mark.parametrize(
    ("release", "protocol", "expected"),
    [
        ("0.8.2.2", "PLAINTEXT", ("127.0.0.1", 37873, 1)),
        ("0.8.2.2", "SSL", None),
        ("0.9.0.1", "PLAINTEXT", ("b", 1, 2)),
        ("1.0.2", "PLAINTEXT", ("127.0.0.1", 38031, 4)),
        ("3.9.1", "PLAINTEXT", ("a", 1, 5)),
        ("3.9.1", "SSL", ("::1", 2, 5)),
        ("3.9.1", "SASL_SSL", None),
    ],
)
def test_a_broker_has_the_address_of_a_listener(
    release: str, protocol: str, expected: tuple[str, int, int] | None
) -> None:
    assert read_broker(BROKERS[release], protocol) == expected


def test_only_brokers_of_0_8_and_0_9_do_not_know_api_versions() -> None:
    known = {release: broker.knows_versions for release in BROKERS if (broker := read_broker(BROKERS[release]))}
    assert known == {"0.8.2.2": False, "0.9.0.1": False, "1.0.2": True, "3.9.1": True}


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"host":1,"port":"x"}', b"\xff", b'{"endpoints":["x"]}'])
def test_what_is_no_registration_is_no_broker(value: bytes) -> None:
    assert read_broker(value) is None


def test_partitions_are_in_numeric_order() -> None:
    value = b'{"version":1,"partitions":{"10":[0],"2":[1,0],"0":[0],"x":[0]}}'
    assert [batch.partition for batch in read_topic("t", value)] == [0, 2, 10]


@pytest.mark.parametrize("value", [b"", b"[]", b"null", b'{"partitions":[0]}'])
def test_a_topic_that_cannot_be_read_has_no_partitions(value: bytes) -> None:
    assert read_topic("t", value) == []


def test_offsets_and_owners_lie_below_their_group() -> None:
    assert offset_path("g", T0) == "/consumers/g/offsets/t/0"
    assert owner_path("g", T0) == "/consumers/g/owners/t/0"
    assert read_offset("/x", offset_value(1 << 40)) == 1 << 40


@pytest.mark.parametrize("value", [b"", b"-1", b"x", b"1.5", b" 1", b"1" * 30])
def test_an_offset_is_never_guessed(value: bytes) -> None:
    with pytest.raises(ClientError, match="node /x holds"):
        read_offset("/x", value)


@pytest.mark.parametrize("group", ["", "a/b", ".", "..", "a b", "é"])
def test_a_group_is_the_name_of_a_node(group: str) -> None:
    with pytest.raises(ConfigError, match="group id"):
        check_group(group)
