"""The position of a stream, and changes since."""

from __future__ import annotations

import json

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.source.options import AtOffsets, parse_options
from oncelog.spark.source.stream_position import (
    Added,
    Gone,
    Position,
    Recreated,
    Shorter,
    changes,
    from_json_offsets,
    lag_by_partition,
    same_topic_only,
    to_json_offsets,
)


def at(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


BEFORE = Position({at("a", 0): 5, at("b", 0): 7, at("c", 0): 1}, {"a": "id-a", "b": "id-b", "c": "id-c"})


def test_a_position_is_the_connectors_json_with_the_topics_ids_beside_it() -> None:
    assert BEFORE.to_json() == {
        "a": {"0": 5},
        "b": {"0": 7},
        "c": {"0": 1},
        "@topicIds": {"a": "id-a", "b": "id-b", "c": "id-c"},
    }
    assert Position.from_json(json.loads(json.dumps(BEFORE.to_json()))) == BEFORE


def test_a_checkpoint_of_the_connector_is_a_position_without_ids() -> None:
    assert Position.from_json({"a": {"0": 5}}) == Position({at("a", 0): 5})


def test_offsets_copied_from_a_checkpoint_are_starting_offsets() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a,b,c", "startingOffsets": json.dumps(BEFORE.to_json())}
    assert parse_options(given).starting == AtOffsets(offsets=BEFORE.offsets)


def test_what_changed_is_told_partition_by_partition() -> None:
    now = Position({at("a", 0): 5, at("a", 1): 3, at("b", 0): 9, at("d", 0): 2}, {"a": "id-a", "b": "other"})
    assert list(changes(BEFORE, now)) == [
        Added(at("a", 1)),
        Recreated(at("b", 0), 7, "other"),
        Gone(at("c", 0), 1),
        Added(at("d", 0)),
    ]
    assert same_topic_only(BEFORE, now) == {at("a", 0): 5}


def test_a_log_that_ends_before_what_was_read_is_shorter_only_if_it_is_the_same_topic() -> None:
    assert list(changes(BEFORE, Position({**BEFORE.offsets, at("b", 0): 3}))) == [Shorter(at("b", 0), 7, 3)]
    another = Position({**BEFORE.offsets, at("b", 0): 3}, {"b": "other"})
    assert list(changes(BEFORE, another)) == [Recreated(at("b", 0), 7, "other")]


def test_nothing_changed_without_ids() -> None:
    assert list(changes(Position(BEFORE.offsets), BEFORE)) == []


def test_how_far_behind_is_never_negative() -> None:
    assert lag_by_partition(BEFORE, Position({at("a", 0): 9, at("b", 0): 2})) == [4, 0]


def test_offsets_survive_a_checkpoint() -> None:
    offsets = {TopicPartition(TopicName("t"), 0): 3, TopicPartition(TopicName("u"), 12): 2**40}
    assert to_json_offsets(offsets) == {"t": {"0": 3}, "u": {"12": 2**40}}
    assert from_json_offsets(to_json_offsets(offsets)) == offsets


def test_a_position_of_any_release_is_read() -> None:
    """Positions in checkpoints stay readable: later notes are passed over, and earlier positions have none."""
    kept = '{"a":{"0":5,"1":7},"@topicIds":{"a":"AAAAAAAAAAAAAAAAAAAAAQ"},"@later":{"x":[1]}}'
    assert Position.from_json(json.loads(kept)) == Position(
        {at("a", 0): 5, at("a", 1): 7}, {"a": "AAAAAAAAAAAAAAAAAAAAAQ"}
    )
