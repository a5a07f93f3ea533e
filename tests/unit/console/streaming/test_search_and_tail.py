"""Searches and tails: each hit says what became of its transaction, at once or when its marker is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.machine.positions import Fetched
from oncelog.console.formats.schema_files import read_schemas
from oncelog.console.page import PageRequest
from oncelog.console.query import Query
from oncelog.console.records import search as searches
from oncelog.console.records.matching import records_with
from oncelog.console.records.record_filter import PLACES, RecordFilter, TextIn
from oncelog.console.records.record_states import StoredRecord
from oncelog.console.records.search import Hit, Progress, scanned, search
from oncelog.console.records.search_rows import search_of
from oncelog.console.records.tail import TAIL_ROWS
from oncelog.console.records.transaction_outcomes import MAX_WAITING, Outcomes, Settled
from oncelog.console.settings import Settings
from oncelog.console.streaming.event_streams import Event
from oncelog.console.streaming.sources import tailing
from oncelog.records.batch import HEADER_SIZE, read_header
from oncelog.records.builder import build_batch
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Record
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import ByHand, at
from tests.unit.console.formats.samples import ORDER, avro, avro_file
from tests.unit.console.pages.test_messages import STATES, make, mixed, write
from tests.unit.console.visits import visiting


@pytest.mark.slow
def test_hits_say_what_became_of_their_transactions(client: Client, reader: TestClient) -> None:
    mixed(client, "hits")
    body = reader.get("/messages/search.json?topic=hits&q=76&q_format=hex&place=value").json()
    assert body["progress"]["complete"]
    states = {item["offset"]: item["state"] for item in body["hits"]}
    assert states == {offset: state for offset, state in enumerate(STATES) if state not in ("plain", "marker")}
    events = reader.get("/messages/search-events?topic=hits&q=v&place=value").text
    assert events.count("event: hit") == 6
    settled = dict(re.findall(r'id="state-0-(\d+)" class="tag (\w+)" hx-swap-oob', events))
    assert settled == {"5": "open", "7": "committed", "9": "aborted", "11": "open"}
    assert reader.get("/messages/search.json?topic=hits&q=0x&q_format=hex").status_code == 400


@pytest.mark.slow
def test_a_search_goes_on_where_it_stopped(client: Client, reader: TestClient) -> None:
    make(client, "further")
    for number in range(3):
        write(client, "further", b"hay %d" % number)
    path = "/messages/search.json?topic=further&q=hay"
    assert [item["offset"] for item in reader.get(f"{path}&positions=0:1").json()["hits"]] == [1, 2]
    assert [item["offset"] for item in reader.get(f"{path}&partition=0&from=2").json()["hits"]] == [2]
    assert reader.get(f"{path}&positions=0").status_code == 400
    events = reader.get("/messages/search-events?topic=further&q=hay&positions=0:2").text
    assert "1 of 1 offsets read, 1 found" in events


def test_a_search_drops_the_rest_of_a_response_that_takes_long(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topic(client, NewTopic("in-steps", partitions=2, replication_factor=1))
    client.topic("in-steps")
    for number in range(20):
        client.produce(at("in-steps", number % 2), build_batch([Record(n, 5, None, b"v%d" % n) for n in range(3)]))
    batches: list[int] = []
    arrived, matching = Fetcher.arrived, searches.matching_records

    def arriving(fetcher: Fetcher, wait_ms: int) -> list[Fetched]:
        batches.append(0)
        return arrived(fetcher, wait_ms)

    def counting(*batch: Any) -> Iterator[StoredRecord]:
        batches[-1] += 1
        return matching(*batch)

    def searched() -> tuple[list[tuple[int, int]], bool]:
        events = [*search(client, *search_of(client, Query({"topic": "in-steps", "value": "v1"})), lambda: False)]
        hits = [(hit.partition.partition, hit.record.offset) for hit in events if isinstance(hit, Hit)]
        assert isinstance(events[-1], Progress)
        return sorted(hits), events[-1].complete

    monkeypatch.setattr(Fetcher, "arrived", arriving)
    monkeypatch.setattr(searches, "matching_records", counting)
    at_once = searched()
    assert max(batches) > 1
    monkeypatch.setattr(searches, "STEP_MS", 0)
    batches.clear()
    assert searched() == at_once
    assert (len(at_once[0]), at_once[1]) == (20, True)
    assert max(batches) == 1, "the lock is free after each batch"


@pytest.mark.slow
def test_a_tail_tells_an_outcome_when_the_marker_comes(client: Client, broker: Broker) -> None:
    make(client, "outcomes")
    ended = False
    with Client(broker.bootstrap_servers) as own:
        events = tailing(own, PageRequest(Query({"topic": "outcomes"}), Settings("x")), lambda: ended)
        assert next(events).name == "state"
        hand = ByHand(client, "outcomes-1")
        hand.begin(at("outcomes"))
        hit = next(events)
        assert (hit.name, hit.values["hit"]["state"], hit.values["hit"]["offset"]) == ("hit", "undecided", 0)
        hand.end(commit=False)
        settled = next(events)
        assert (settled.name, dict(settled.values)) == (
            "settled",
            {"partition": 0, "offset": 0, "state": "aborted", "is_wanted": True},
        )
        ended = True
        assert list(events) == []


@pytest.mark.slow
def test_a_tail_says_how_many_records_it_leaves_out(client: Client, broker: Broker) -> None:
    make(client, "flood")
    ended = False
    with Client(broker.bootstrap_servers) as own:
        events = tailing(own, PageRequest(Query({"topic": "flood"}), Settings("x")), lambda: ended)
        next(events)
        client.produce(at("flood"), build_batch([Record(number, 1, None, b"x") for number in range(TAIL_ROWS + 7)]))
        result = [next(events) for _ in range(TAIL_ROWS + 1)]
        ended = True
        assert list(events) == []
    assert [event.name for event in result] == ["hit"] * TAIL_ROWS + ["state"]
    assert result[-1].values["text"] == "7 more records of flood-0 are not shown"


@pytest.mark.slow
def test_a_tail_goes_on_when_the_broker_is_back(tmp_path: Path) -> None:
    config = {"default.api.timeout.ms": "200", "request.timeout.ms": "200", "bootstrap.timeout.ms": "200"}
    with Broker(data_dir=tmp_path) as broker:
        with Client(broker.bootstrap_servers) as client:
            create_topic(client, NewTopic("lasting", partitions=2, replication_factor=1))
        with Client(broker.bootstrap_servers, config=config) as own:
            ended = False
            events = tailing(own, PageRequest(Query({"topic": "lasting"}), Settings("x")), lambda: ended)
            assert "2 partitions" in next(events).values["text"]
            broker.kill()
            assert "the tail goes on when it is back" in next(events).values["text"]
            broker.start()
            with Client(broker.bootstrap_servers) as client:
                client.topic("lasting")
                client.produce(at("lasting", 1), build_batch([Record(0, 1, None, b"after")]))
            (hit,) = islice((event for event in events if event.name == "hit"), 1)
            assert (hit.values["hit"]["partition"], hit.values["hit"]["value"].text) == (1, "after")
            ended = True
            assert list(events) == []


@pytest.mark.slow
def test_a_tail_has_the_filters_of_a_list(client: Client, broker: Broker) -> None:
    make(client, "sieved")
    ended = False

    def tail(**selected: str) -> Iterator[Event]:
        page_request = PageRequest(Query({"topic": "sieved", **selected}), Settings("x"))
        return tailing(own, page_request, lambda: ended)

    with Client(broker.bootstrap_servers) as own:
        aborted, committed = tail(state="aborted"), tail(state="committed only", value="V")
        assert [next(events).name for events in (aborted, committed)] == ["state", "state"]
        hand = ByHand(client, "sieved-1")
        for commit in (True, False, True):
            hand.begin(at("sieved"))
            hand.end(commit=commit)
            hand.restart()
        write(client, "sieved", b"another")
        states: dict[int, str] = {}
        while states.get(2) != "aborted":
            event = next(aborted)
            if event.name == "hit":
                states[event.values["hit"]["offset"]] = event.values["hit"]["state"]
            elif event.values["is_wanted"]:
                states[event.values["offset"]] = event.values["state"]
            else:
                del states[event.values["offset"]]
        states.pop(4, None)  # Perhaps its marker is not read yet.
        assert states == {2: "aborted"}
        assert [next(committed).values["hit"]["offset"] for _ in range(2)] == [0, 4]
        ended = True


@pytest.mark.slow
def test_values_are_shown_by_their_schema_on_every_page(client: Client, broker: Broker, tmp_path: Path) -> None:
    make(client, "schemed")
    write(
        client,
        "schemed",
        b"\x00\x00\x00\x00\x07" + avro(ORDER, {"id": 1, "note": "tea", "raw": b"", "price": Decimal("1.50")}),
    )
    write(client, "schemed", b"\xff" * 9)
    write(client, "schemed", b'{"half": "\\ud800"}')
    schema = read_schemas([f"schemed={avro_file(tmp_path, 'order.avsc', ORDER)}"])
    with visiting(broker.bootstrap_servers, schemas=schema) as visitor:
        path = "topic=schemed&from=first"
        values = [item["value"] for item in visitor.get(f"/messages.json?{path}").json()["slice"]["records"]]
        assert [(value["format"], value["schema_id"]) for value in values] == [
            ("avro", "7"),
            ("hex", None),
            ("hex", None),
        ]
        assert (json.loads(values[0]["text"])["note"], values[1]["error"] is not None) == ("tea", True)
        for form in ("auto", "avro", "protobuf", "messagepack", "json"):
            page = visitor.get(f"/messages?{path}&value_format={form}&key_format={form}")
            assert page.status_code == 200
            assert visitor.get(f"/messages.json?{path}&value_format={form}").status_code == 200
        assert "schema id 7" in visitor.get("/messages/one?topic=schemed&offset=0").text
        assert "schema id 7" in visitor.get("/messages/search-events?topic=schemed&q=tea").text
        assert visitor.get("/messages/search.json?topic=schemed&q=half&value_format=json").status_code == 200


def text_filter(content: bytes, place: str = "anywhere") -> RecordFilter:
    return RecordFilter((TextIn(content, place),))


def fetched_of(batch: bytes, until: int) -> Fetched:
    return Fetched(at("t"), memoryview(batch), until, until, 0, [], 0, 0, until)


def test_records_are_found_by_their_lengths() -> None:
    values = [b"x" * 300, None, b"a needle", b"need", b"le", b"", b"needleneedle", b"y" * 70_000 + b"needle"]
    batch = build_batch([Record(number, 5, b"k", value) for number, value in enumerate(values)])
    header = read_header(batch)
    assert [record.offset for record in records_with(batch[HEADER_SIZE:], header, text_filter(b"needle"))] == [2, 6, 7]
    result = [
        item
        for item in scanned(fetched_of(batch, 8), text_filter(b"needle"), 7, None, Outcomes())
        if isinstance(item, Hit)
    ]
    assert [(item.record.offset, item.record.state, item.record.value) for item in result] == [
        (2, "plain", values[2]),
        (6, "plain", values[6]),
    ]
    for data in (b"\x02needle", b"\x00needle", b"\xff" * 9 + b"needle", batch[HEADER_SIZE:-1]):
        with pytest.raises(CorruptBatch):
            list(records_with(data, header, text_filter(data[-1:])))


def test_places_are_told_apart_whatever_lies_between() -> None:
    long = b"x" * 200
    records = [
        Record(0, 2**40, b"needle", None),
        Record(1, 5, None, b"needle"),
        Record(2, 5, long + b"needle", long),
        Record(300, 5, long, long + b"needle"),
        Record(301, 5, b"", b"", (("needle", None),)),
        Record(302, 5, long, b"", (("n", b"needle"),)),
    ]
    batch = build_batch(records)
    result = {
        place: [
            record.offset
            for record in records_with(batch[HEADER_SIZE:], read_header(batch), text_filter(b"needle", place))
        ]
        for place in PLACES
    }
    assert result == {"anywhere": [0, 1, 2, 300, 301, 302], "key": [0, 2], "value": [1, 300], "header": [301, 302]}


def test_a_damaged_batch_is_named_and_not_passed_over() -> None:
    batch = bytearray(build_batch([Record(0, 5, None, b"a needle")]))
    batch[-3] ^= 1
    (told,) = scanned(fetched_of(bytes(batch), 1), text_filter(b"needle"), 1, None, Outcomes())
    assert told == "t-0, the batch at offset 0: its CRC does not match"


def test_outcomes_that_nobody_waits_for_are_given_up() -> None:
    outcomes = Outcomes()
    for offset in range(2 * MAX_WAITING):
        outcomes.wait_for(at("t"), offset, offset)
    assert len(outcomes) == MAX_WAITING


def test_pages_that_pause_and_settle_have_what_their_script_looks_for() -> None:
    import oncelog.console

    room = Path(oncelog.console.__file__).parent
    script = (room / "static" / "tail.js").read_text("utf-8")
    pages = "".join(path.read_text("utf-8") for path in (room / "templates").glob("m*.html"))
    for name in ("data-pause", "data-pausable", 'id="waiting"', "data-record", 'id="hits"'):
        assert name in pages
        assert re.search(name.removeprefix('id="').strip('"'), script)
    assert Settled(at("t"), 1, "open").partition == at("t")
