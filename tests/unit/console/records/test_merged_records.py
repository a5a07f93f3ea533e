"""Records of several partitions as one list: in order, without gaps, with bounded reads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.admin.topics import NewTopic, create_topic, delete_records
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.console.query import Query
from oncelog.console.records import merged_records as merging
from oncelog.console.records.merged_records import MergedRecords, merged_records
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_query import filter_of
from oncelog.console.records.record_states import StoredRecord
from oncelog.console.records.windows import Windows, windows_of
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.interop.admin.lab import at

PARTITIONS = 4
Place = tuple[int, int]


def fill(client: Client, topic: str, seed: int, count: int = 300, value: bytes = b"x") -> dict[Place, int]:
    """Records in batches of different lengths, with times that mostly rise; returns the time of each."""
    choice = random.Random(seed)
    create_topic(client, NewTopic(topic, partitions=PARTITIONS, replication_factor=1))
    client.topic(topic)
    now_ms, times = 1_700_000_000_000, dict[Place, int]()
    ends = [0] * PARTITIONS
    while sum(ends) < count:
        partition, length = choice.randrange(PARTITIONS - 1), choice.choice((1, 1, 3, 20))
        stamps = [now_ms + choice.randrange(-50, 50) for _ in range(length)]
        batch = [Record(n, ms, b"%d" % (n % 3), value + b"%d" % n) for n, ms in enumerate(stamps)]
        client.produce(at(topic, partition), build_batch(batch))
        times |= {(partition, ends[partition] + n): ms for n, ms in enumerate(stamps)}
        ends[partition] += length
        now_ms += choice.randrange(30)
    return times


def merged(times: dict[Place, int], *, newest: bool) -> list[Place]:
    """The order that the list must have: of each partition's next records the newest (oldest) first."""
    lanes = [
        sorted((place for place in times if place[0] == partition), reverse=newest) for partition in range(PARTITIONS)
    ]
    order: list[Place] = []
    while any(lanes):
        lane = min(filter(None, lanes), key=lambda lane: (-times[lane[0]] if newest else times[lane[0]], lane[0][0]))
        order.append(lane.pop(0))
    return order


def pages(client: Client, query: dict[str, str], count: int, *, newest: bool) -> Iterator[MergedRecords]:
    windows = windows_of(client, Query(query))
    while True:
        page = merged_records(client, windows, filter_of(Query(query)), count, lambda at, record: None, newest=newest)
        yield page
        if not page.offsets_left:
            return
        windows.narrow(
            start={partition: start for partition, (start, _) in page.remaining.items()},
            until={partition: until for partition, (_, until) in page.remaining.items()},
        )


def places(pages: Iterator[MergedRecords]) -> list[Place]:
    return [(item.partition.partition, item.record.offset) for page in pages for item in page.records]


@pytest.mark.slow
@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("count", [7, 50, 500])
def test_pages_are_the_whole_topic_in_order(client: Client, newest: bool, count: int) -> None:
    topic = f"merged-{newest}-{count}"
    times = fill(client, topic, seed=count)
    assert places(pages(client, {"topic": topic}, count, newest=newest)) == merged(times, newest=newest)


@pytest.mark.slow
def test_a_filter_finds_each_match_by_pages(client: Client) -> None:
    times = fill(client, "matched", seed=1)
    matches: set[Place] = set()

    def note(place: TopicPartition, record: StoredRecord) -> None:
        if record.value is not None and b"x2" in record.value:
            matches.add((place.partition, record.offset))

    merged_records(client, windows_of(client, Query({"topic": "matched"})), RecordFilter(), 500, note, newest=True)
    assert 10 < len(matches) < len(times)
    expected = merged({place: times[place] for place in matches}, newest=True)
    assert places(pages(client, {"topic": "matched", "value": "X2"}, 5, newest=True)) == expected


@pytest.mark.slow
def test_reads_are_bounded_and_a_list_says_what_it_does_not_cover(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = fill(client, "bounded", seed=3, value=b"v" * 2000)
    read: list[int] = []
    arrived = Fetcher.arrived

    def counting(fetcher: Fetcher, wait_ms: int) -> Any:
        answers = arrived(fetcher, wait_ms)
        read.extend(len(answer.records) for answer in answers if answer.partition.topic == "bounded")
        return answers

    monkeypatch.setattr(Fetcher, "arrived", counting)
    monkeypatch.setattr(merging, "READ_BYTES", 100_000)
    first = next(pages(client, {"topic": "bounded", "value": "nowhere"}, 50, newest=True))
    assert (first.records, first.is_cut) == ([], True)
    assert 0 < first.offsets_left < len(times)
    assert sum(read) < 100_000 + PARTITIONS * max(read)
    every = list(pages(client, {"topic": "bounded", "value": "nowhere"}, 50, newest=True))
    assert [page.is_cut for page in every] == [True] * (len(every) - 1) + [False]
    # Each page reads on where the last one ended.
    lefts = [page.offsets_left for page in every]
    assert lefts == sorted(lefts, reverse=True)
    assert len(set(lefts)) == len(lefts)


@pytest.mark.slow
@pytest.mark.parametrize("newest", [True, False])
def test_a_response_that_takes_long_is_not_searched_to_its_end(
    client: Client, monkeypatch: pytest.MonkeyPatch, newest: bool
) -> None:
    query = {"topic": f"late-{newest}", "value": "x1"}
    fill(client, query["topic"], seed=7)
    expected = places(pages(client, query, 500, newest=newest))
    searched: list[int] = []
    matching = merging.matching_records

    def counting(fetched: Any, at: int, header: Any, state: str, record_filter: RecordFilter) -> Iterator[StoredRecord]:
        searched.append(at)
        return matching(fetched, at, header, state, record_filter)

    monkeypatch.setattr(merging, "matching_records", counting)
    monkeypatch.setattr(merging._Merge, "_is_late", lambda merge: len(searched) >= 3)
    listed: list[Place] = []
    for page in pages(client, query, 500, newest=newest):
        assert len(searched) <= 3, "a page ends in the middle of a response"
        searched.clear()
        listed += places(iter([page]))
    assert sorted(listed) == sorted(expected)


@pytest.mark.slow
def test_chunks_that_turn_out_large_are_read_in_smaller_ones(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    times = fill(client, "chunked", seed=5, value=b"v" * 3000, count=150)
    monkeypatch.setattr(merging, "_CHUNK_BYTES", 20_000)
    monkeypatch.setattr(merging, "KEPT_BYTES", 30_000)
    assert places(pages(client, {"topic": "chunked"}, 20, newest=True)) == merged(times, newest=True)
    assert places(pages(client, {"topic": "chunked"}, 20, newest=False)) == merged(times, newest=False)


@pytest.mark.slow
def test_windows_are_bounded_by_times_places_and_the_log(client: Client) -> None:
    times = fill(client, "windowed", seed=4)
    middle_ms = sorted(times.values())[150]
    until, start = (
        places(pages(client, {"topic": "windowed", name: str(middle_ms)}, 99, newest=True)) for name in ("to", "from")
    )
    assert len(until) + len(start) == len(times)
    assert not {*until} & {*start}
    windows = windows_of(client, Query({"topic": "windowed", "from": str(middle_ms), "zone": "Europe/Berlin"}))
    assert "UTC (" in windows.understood[0]
    delete_records(client, {at("windowed", 0): 5})
    windows = windows_of(client, Query({"topic": "windowed"}))
    assert (windows.start[at("windowed", 0)], windows.start[at("windowed", 3)]) == (5, 0)
    assert windows.until[at("windowed", 3)] == 0
    narrowed: Windows = windows_of(client, Query({"topic": "windowed", "partition": "1", "from": "3", "to": "2"}))
    assert (narrowed.start, narrowed.until) == ({at("windowed", 1): 3}, {at("windowed", 1): 3})
