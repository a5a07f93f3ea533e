"""The tracker knows, after any cut of a stream, what the record under way lacks."""

from __future__ import annotations

import random

from oncelog.runtime.tls.record_tracker import RecordTracker

LENGTHS = [0, 1, 22, 255, 256, 0, 16_384 + 256, 3, 65_535]


def record(length: int) -> bytes:
    return b"\x17\x03\x03" + length.to_bytes(2, "big") + bytes(length)


def test_at_a_boundary_only_plain_bytes_are_certain() -> None:
    tracker = RecordTracker()
    assert tracker.least_bytes_until(7) == 7
    for length in LENGTHS:
        tracker.feed(memoryview(record(length)))
        assert tracker.least_bytes_until(7) == 7


def test_every_cut_of_a_record_leaves_its_rest_and_what_no_record_holds_yet() -> None:
    whole = record(300)
    for cut in range(1, len(whole)):
        tracker = RecordTracker()
        tracker.feed(memoryview(whole[:cut]))
        rest = len(whole) - cut
        if cut < 5:
            assert tracker.least_bytes_until(1000) == 5 - cut + 1000
        else:
            assert tracker.least_bytes_until(1000) == rest + 700
            assert tracker.least_bytes_until(300) == rest
            assert tracker.least_bytes_until(1) == rest


def test_pieces_of_any_size_are_followed_to_the_same_place() -> None:
    stream = b"".join(map(record, LENGTHS))
    ends, position = set(), 0
    for length in LENGTHS:
        position += 5 + length
        ends.add(position)
    for seed in range(50):
        rng, tracker, position = random.Random(seed), RecordTracker(), 0
        while position < len(stream):
            size = rng.choice((1, 2, 5, 300, 20_000))
            tracker.feed(memoryview(stream[position : position + size]))
            position = min(position + size, len(stream))
            is_between = tracker.least_bytes_until(0) == 0
            assert is_between == (position in ends), (seed, position)
