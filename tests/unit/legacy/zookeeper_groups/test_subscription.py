"""Subscriptions: as registered, and the topics that they read."""

from __future__ import annotations

import json

import pytest

from oncelog.client.errors import ConfigError
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription, read_registration, registration_value

STATIC = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1795334698615"}'
FILTER = b'{"version":1,"subscription":{"t|g":2},"pattern":"white_list","timestamp":"1795334698615"}'


def streams(subscription: Subscription, *topics: str, internal: bool = False) -> list[int]:
    return [subscription.streams_of(topic, exclude_internal=not internal) for topic in topics]


def test_registrations_of_java_are_read() -> None:
    assert read_registration(STATIC) == Subscription("static", {"t": 1})
    assert read_registration(FILTER) == Subscription("white_list", {"t|g": 2})


def test_ours_are_written_as_java_writes_them() -> None:
    written = registration_value(Subscription.to_topics(["t"]), 1795334698615)
    assert json.loads(written) == json.loads(STATIC)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b'{"t":1}',
        b'{"subscription":{"t":0},"pattern":"static"}',
        b'{"subscription":{"t":1000000},"pattern":"static"}',
        b'{"subscription":{"t":1},"pattern":"glob"}',
        b'{"subscription":{"a":1,"b":1},"pattern":"white_list"}',
        b'{"subscription":["t"],"pattern":"static"}',
    ],
)
def test_what_is_no_registration_is_no_member(value: bytes) -> None:
    assert read_registration(value) is None


def test_a_white_list_reads_whole_names_and_no_internal_topics() -> None:
    result = Subscription.to_filter(" 'a.*, b' ", 3)
    assert streams(result, "abc", "b", "bb", "xa") == [3, 3, 0, 0]
    everything = Subscription.to_filter(".*")
    assert streams(everything, "t", "__consumer_offsets") == [1, 0]
    assert streams(everything, "t", "__consumer_offsets", internal=True) == [1, 1]


def test_a_black_list_reads_all_others() -> None:
    assert streams(Subscription.to_filter("a|b", black_list=True), "a", "b", "c", "__consumer_offsets") == [0, 0, 1, 0]


def test_an_expression_of_java_that_re2_cannot_read_matches_nothing() -> None:
    assert streams(Subscription("white_list", {"a\\p{Alpha}": 1}), "ab") == [0]
    assert streams(Subscription("black_list", {"(?!a).*": 1}), "ab") == [0]


def test_an_expression_of_another_consumer_is_matched_in_linear_time() -> None:
    """Python's re would not return: it tries each way to divide the name among the two stars."""
    other = Subscription("white_list", {"(a|a)*b": 2})
    assert streams(other, "a" * 249, "aab") == [0, 2]


def test_the_own_expression_is_read_the_same_of_another_consumer() -> None:
    own = Subscription.to_filter("(?!internal).*")
    other = read_registration(registration_value(own, 0))
    assert other is not None
    assert streams(other, "t") == [0]
    assert streams(other.as_read_by(own), "t", "internal") == [1, 0]
    assert streams(other.as_read_by(Subscription.to_topics(["t"])), "t") == [0]


@pytest.mark.parametrize("make", [lambda: Subscription.to_filter("("), lambda: Subscription.to_topics(["t"], 0)])
def test_what_cannot_be_subscribed_to_is_refused(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]  # one of the two above
