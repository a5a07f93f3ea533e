"""Records that a program gives to ``send``, and settings that it gives as Python values, are checked at once."""

from __future__ import annotations

import array
from typing import Any

import pytest

from oncelog.client.errors import ConfigError
from oncelog.client.machine.group import GroupMember, GroupSettings
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.record_values import checked_record
from oncelog.records.record import Record

RIGHT: dict[str, Any] = {
    "topic": "t",
    "partition": None,
    "value": b"v",
    "key": None,
    "headers": (),
    "timestamp_ms": 0,
}


class Whole:
    """A number of another library."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, Record(-1, 0, None, b"v")),
        ({"value": None, "key": bytearray(b"k")}, Record(-1, 0, b"k", None)),
        ({"value": memoryview(b"v"), "partition": 3}, Record(-1, 0, None, b"v")),
        ({"headers": [("a", None), ("ä", b"b")]}, Record(-1, 0, None, b"v", [("a", None), ("ä", b"b")])),  # type: ignore[arg-type]  # a list does, too
        ({"timestamp_ms": Whole()}, Record(-1, 7, None, b"v")),
        ({"timestamp_ms": -1}, Record(-1, -1, None, b"v")),
    ],
)
def test_what_can_be_encoded_is_taken(changed: dict[str, Any], expected: Record) -> None:
    assert checked_record(**RIGHT | changed) == expected


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"value": "text"}, "value: give bytes, not str"),
        ({"value": 5}, "value: give bytes or None, not int"),
        ({"value": memoryview(array.array("i", [1]))}, "memoryview of bytes"),
        ({"key": "k"}, "key: give bytes, not str"),
        ({"headers": {"a": b"b"}}, "headers: give a tuple of pairs"),
        ({"headers": ["ab"]}, "'ab' is not a pair"),
        ({"headers": [(b"a", b"b")]}, "a name is str, not bytes"),
        ({"headers": [("a", "b")]}, "header 'a': give bytes"),
        ({"timestamp_ms": 1.5}, "timestamp_ms: give a whole number, not float"),
        ({"partition": "0"}, "partition: give a whole number, not str"),
        ({"topic": b"t"}, "topic: give its name as str, not bytes"),
    ],
)
def test_a_type_that_cannot_be_encoded_is_refused_by_its_name(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        checked_record(**RIGHT | changed)


@pytest.mark.parametrize("changed", [{"timestamp_ms": -2}, {"timestamp_ms": 2**63}, {"partition": -1}])
def test_a_number_out_of_range_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed))):
        checked_record(**RIGHT | changed)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (ProducerSettings, {"acks": 2}),
        (ProducerSettings, {"batch_bytes": 0}),
        (ProducerSettings, {"linger_ms": -1}),
        (GroupSettings, {"session_timeout_ms": 0}),
        (FetchSettings, {"max_wait_ms": -1}),
        (FetchSettings, {"partition_max_bytes": 2**31}),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_name(settings: type, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        settings(**wrong)


def test_one_topic_instead_of_a_list_is_refused() -> None:
    with pytest.raises(TypeError, match=r"give a list of names, \['orders'\]"):
        GroupMember("g", "orders", GroupSettings())
