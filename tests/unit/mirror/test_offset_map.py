"""Translation of offsets, against a list of all records; and the map written down and read again."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.mirror.offset_map import MappedRun, OffsetMap
from oncelog.mirror.positions_topic import CHUNK_RUNS, CopiedPartition, Gap, Positions, slot_of

AT = TopicPartition(TopicName("t"), 3)
SLOTS = 16

steps = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4))
"""Gaps before a run on both sides, and its records."""


def built(given_steps: list[tuple[int, int, int]], trailing: int, origin: int = 10) -> OffsetMap:
    source, target = 5, origin
    offsets = OffsetMap(source, MappedRun(source, target, 0))
    for source_gap, target_gap, records in given_steps:
        source, target = source + source_gap, target + target_gap
        offsets.extend([MappedRun(source, target, records)], source + records)
        source, target = source + records, target + records
    offsets.extend((), source + trailing)
    return offsets


@given(st.lists(steps, max_size=20), st.integers(0, 3))
def test_nothing_is_skipped_and_nothing_comes_twice(given_steps: list[tuple[int, int, int]], trailing: int) -> None:
    offsets = built(given_steps, trailing)
    pairs = [(run.source + i, run.target + i) for run in offsets.runs() for i in range(run.records)]
    for offset in range(offsets.position + 1):
        target = offsets.to_target(offset)
        assert target is not None
        assert [s for s, t in pairs if t >= target] == [s for s, _ in pairs if s >= offset]
    assert offsets.to_target(offsets.position + 1) is None
    for offset in range((offsets.target_end or 0) + 3):
        back = offsets.to_source(offset)
        assert back is not None
        assert [t for s, t in pairs if s >= back] == [t for _, t in pairs if t >= offset]


def test_maps_of_what_the_target_has_deleted_are_forgotten() -> None:
    offsets = built([(1, 1, 1)] * (CHUNK_RUNS * 3 + 5), 0)
    copied = CopiedPartition(AT, "", "a.t", "c", offsets)
    written = list(copied.records())
    copied.noted()
    assert copied.prune(10) == []
    third = offsets.run(2 * CHUNK_RUNS).target
    removed = copied.prune(third)
    assert removed == [key for key, _ in written[:2]]
    left = read_again([*written, *((key, None) for key in removed)])
    assert list(left.offsets.runs()) == list(copied.offsets.runs())
    assert list(left.records()) == list(copied.records())
    assert left.offsets.run(0).target == third


def test_runs_that_continue_each_other_are_one() -> None:
    offsets = built([(0, 0, 5), (0, 0, 3), (1, 0, 2)], 0)
    assert list(offsets.runs()) == [MappedRun(5, 10, 8), MappedRun(14, 18, 2)]


@given(st.lists(st.tuples(steps, st.booleans()), max_size=300))
def test_records_bring_the_map_back(given_steps: list[tuple[tuple[int, int, int], bool]]) -> None:
    """However the runs are spread over transactions, and with or without the records that compaction removes."""
    copied = CopiedPartition(AT, "ab", "a.t", "cluster", OffsetMap(5, MappedRun(5, 10, 0)))
    written: list[tuple[bytes, bytes]] = []
    source, target = 5, 10
    for (source_gap, target_gap, records), ends in [*given_steps, ((1, 1, 1), True)]:
        source, target = source + source_gap, target + target_gap
        copied.offsets.extend([MappedRun(source, target, records)], source + records + 1)
        source, target = source + records + 1, target + records
        if ends:
            written += copied.records()
            copied.noted()
    for log in (written, list(dict(written).items())):
        read = read_again(log)
        assert list(read.offsets.runs()) == list(copied.offsets.runs())
        assert read.offsets.position == copied.offsets.position
        assert (read.topic_id, read.target, read.cluster) == ("ab", "a.t", "cluster")
        again = list(read.records())
        assert dict(again).items() <= dict(written).items()


def read_again(log: Sequence[tuple[bytes, bytes | None]]) -> CopiedPartition:
    positions = Positions("p", SLOTS)
    for key, value in log:
        positions.apply(slot_of(AT, SLOTS), key, value)
    positions.finish()
    return positions.partitions[AT]


def test_a_record_holds_a_bounded_number_of_runs() -> None:
    offsets = built([(1, 1, 1)] * (CHUNK_RUNS * 3 + 5), 0)
    copied = CopiedPartition(AT, "", "a.t", "c", offsets)
    assert len(list(copied.records())) == 4
    copied.noted()
    assert len(list(copied.records())) == 1


def test_a_partition_made_anew_begins_a_map_of_its_own() -> None:
    old = CopiedPartition(AT, "old", "a.t", "c", built([(0, 0, 5)], 0))
    new = CopiedPartition(AT, "new", "a.t", "c", built([(0, 0, 2)], 0, 20))
    positions = Positions("p", SLOTS)
    for key, value in [*old.records(), *new.records(), new.gap_record(Gap(AT, 1, 3), 9), new.group_record("g", 21)]:
        positions.apply(slot_of(AT, SLOTS), key, value)
    positions.finish()
    assert positions.partitions[AT].topic_id == "new"
    assert positions.partitions[AT].gaps == [Gap(AT, 1, 3)]
    assert positions.partitions[AT].groups == {"g": 21}
    assert [item.topic_id for item in positions.before[AT]] == ["old"]


def test_slots_spread_the_partitions_of_a_topic() -> None:
    slots = {slot_of(TopicPartition(TopicName("t"), number), SLOTS) for number in range(SLOTS)}
    assert slots == set(range(SLOTS))
    halves = [slot_of(TopicPartition(TopicName("t"), number), SLOTS) // 8 for number in range(2)]
    assert sorted(halves) == [0, 1]
