"""The tracker knows, after any cut of a stream, what the record under way lacks."""

from __future__ import annotations

import random

from oncelog.runtime.tls.record_tracker import RecordTracker

LENGTHS = [0, 1, 22, 255, 256, 0, 16_384 + 256, 3, 65_535]


def record(length: int) -> bytes:
    return b"\x17\x03\x03" + length.to_bytes(2, "big") + bytes(length)


def test_nothing_is_missing_between_records() -> None:
    tracker = RecordTracker()
    assert tracker.missing_bytes == 0
    for length in LENGTHS:
        tracker.feed(memoryview(record(length)))
        assert tracker.missing_bytes == 0


def test_every_cut_of_a_record_leaves_the_rest_of_its_header_or_of_itself() -> None:
    whole = record(300)
    for cut in range(1, len(whole)):
        tracker = RecordTracker()
        tracker.feed(memoryview(whole[:cut]))
        assert tracker.missing_bytes == (5 - cut if cut < 5 else len(whole) - cut)


def test_pieces_of_any_size_lead_to_the_same_place() -> None:
    stream = b"".join(map(record, LENGTHS))
    left = {}
    position = 0
    for length in LENGTHS:
        left |= {position + byte: 5 - byte for byte in range(1, 5)}
        left |= {position + byte: 5 + length - byte for byte in range(5, 5 + length)}
        position += 5 + length
        left[position] = 0
    for seed in range(50):
        rng, tracker, position = random.Random(seed), RecordTracker(), 0
        while position < len(stream):
            size = rng.choice((1, 2, 5, 300, 20_000))
            tracker.feed(memoryview(stream[position : position + size]))
            position = min(position + size, len(stream))
            assert tracker.missing_bytes == left[position], (seed, position)
