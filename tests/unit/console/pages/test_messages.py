"""Messages: states as a reader of committed records finds them, hostile bytes, searches that tell how far."""

from __future__ import annotations

import base64
import json
import re
import time

import pytest
from starlette.testclient import TestClient

from oncelog.admin.topics import NewTopic, create_topic, delete_records
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.client.blocking import Client, Committed, FetchSettings
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.programs.group import commit_offsets
from oncelog.console.page import PageRequest
from oncelog.console.query import Query
from oncelog.console.records.decoding import decoded
from oncelog.console.records.merged_records import MergedRecords, merged_records
from oncelog.console.records.record_filter import RecordFilter, TextIn
from oncelog.console.records.search import Hit, Progress, search
from oncelog.console.records.windows import windows_of
from oncelog.console.rendering import shown
from oncelog.console.settings import Settings
from oncelog.console.streaming.sources import tailing
from oncelog.records.builder import build_batch
from oncelog.records.record import Headers, Record
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import ByHand, at
from tests.unit.console.visits import visiting

pytestmark = pytest.mark.slow
SCRIPT = b"<script>alert('x')</script>"


def make(client: Client, topic: str) -> None:
    create_topic(client, NewTopic(topic, partitions=1, replication_factor=1))
    client.topic(topic)


def write(client: Client, topic: str, value: bytes | None, key: bytes | None = None, headers: Headers = ()) -> int:
    produced = client.produce(at(topic), build_batch([Record(0, int(time.time() * 1000), key, value, headers)]))
    assert produced is not None
    return produced.base_offset


def mixed(client: Client, topic: str) -> None:
    """Offsets: 0 plain; 1 committed, 2 its marker; 3 aborted, 4 its marker; 5 open; 6 plain; 7 committed, 8 its marker;
    9 aborted, 10 its marker; 11 open."""
    make(client, topic)
    write(client, topic, b"plain")
    one, two = ByHand(client, f"{topic}-1"), ByHand(client, f"{topic}-2", timeout_ms=900_000)
    one.begin(at(topic))
    one.end()
    one.restart()
    one.begin(at(topic))
    one.end(commit=False)
    two.begin(at(topic))
    write(client, topic, b"between")
    for commit in (True, False):
        one.restart()
        one.begin(at(topic))
        one.end(commit=commit)
    two.write(at(topic))


ENDS = ["committed", "marker", "aborted", "marker", "open"]
STATES = ["plain", *ENDS, "plain", *ENDS]


def test_states_are_those_that_a_reader_of_committed_records_finds(client: Client, reader: TestClient) -> None:
    mixed(client, "mixed")
    result = reader.get("/messages.json?topic=mixed&from=first").json()["slice"]
    assert [(item["offset"], item["state"]) for item in result["records"]] == list(enumerate(STATES))
    assert (result["last_stable_offset"], result["end_offset"], result["next_offset"]) == (5, 12, 12)
    assert [item["note"] for item in result["records"] if item["state"] == "marker"] == ["commit", "abort"] * 2
    fetched = client.fetch({at("mixed"): 0}, until={at("mixed"): 5}, settings=FetchSettings(read_committed=True))
    read = [record.offset for item in fetched for record in read_fetched(item, read_committed=True)]
    assert read == [item["offset"] for item in result["records"][:5] if item["state"] in ("plain", "committed")]
    row = result["records"][11]
    assert (row["sequence"], row["producer_epoch"], row["batch"]["base_offset"]) == (1, 0, 11)
    page = reader.get("/messages?topic=mixed&from=first").text
    assert [word in page for word in ("aborted", "committed", "marker", "held")] == [True] * 4


def listed(client: Client, topic: str, offset: int, count: int) -> MergedRecords:
    windows = windows_of(client, Query({"topic": topic}))
    windows.narrow(start={at(topic): offset})
    return merged_records(client, windows, RecordFilter(), count, lambda _, record: record.state, newest=False)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_pages_follow_each_other_without_gaps(client: Client, broker: Broker, count: int) -> None:
    topic = f"sliced-{count}"
    mixed(client, topic)
    offset, states = 0, []
    while offset < 12:
        result = listed(client, topic, offset, count)
        assert len(result.records) <= count
        states += [item.record.state for item in result.records]
        assert result.remaining[at(topic)][0] > offset
        offset = result.remaining[at(topic)][0]
    assert states == STATES


def test_a_page_of_large_records_is_short(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make(client, "large-ones")
    for _ in range(5):
        write(client, "large-ones", b"x" * 1000)
    monkeypatch.setattr("oncelog.console.records.merged_records.READ_BYTES", 10)
    monkeypatch.setattr("oncelog.console.records.merged_records.KEPT_BYTES", 2000)
    offset, pages = 0, []
    while offset < 5:
        result = listed(client, "large-ones", offset, 50)
        pages.append([item.record.offset for item in result.records])
        assert result.is_cut is (offset + len(pages[-1]) < 5)
        offset = result.remaining[at("large-ones")][0]
    assert pages == [[0, 1], [2, 3], [4]]


def test_places_to_begin_at(client: Client, reader: TestClient) -> None:
    mixed(client, "places")

    def first(start: str) -> int:
        parameters = {"topic": "places", "from": start, "count": 2, "order": "" if start in ("", "end") else "oldest"}
        body = reader.get("/messages.json", params=parameters).json()
        return int(min(record["offset"] for record in body["slice"]["records"]))

    assert [first(text) for text in ("first", "stable", "end", "", "7", "2001-01-01", "1999-01-01T10:00+02:00")] == [
        0,
        5,
        10,
        10,
        7,
        0,
        0,
    ]
    assert reader.get("/messages?topic=places&from=2999-01-01").status_code == 200
    delete_records(client, {at("places"): 3})
    assert first("0") == 3
    assert reader.get("/messages?topic=places&from=soon").status_code == 400
    assert reader.get("/messages?topic=places&partition=7").status_code == 400
    assert reader.get("/messages?topic=nowhere").status_code == 404
    assert reader.get("/messages").status_code == 200
    assert reader.get("/messages/one?topic=places&offset=1").status_code == 400


def test_a_topic_is_shown_with_all_partitions_and_the_newest_first(client: Client, reader: TestClient) -> None:
    create_topic(client, NewTopic("every", partitions=3, replication_factor=1))
    client.topic("every")
    for number in range(9):
        record = Record(0, 1_700_000_000_000 + number, None, b"value-%d" % number)
        client.produce(at("every", number % 3), build_batch([record]))
    shown = reader.get("/messages.json?topic=every&count=4").json()
    assert [row["value"]["text"] for row in shown["slice"]["records"]] == [f"value-{n}" for n in (8, 7, 6, 5)]
    assert (shown["slice"]["offsets"], shown["slice"]["offsets_left"], shown["slice"]["is_cut"]) == (9, 5, False)
    older = reader.get("/messages.json", params=shown["links"]["older"]).json()
    assert [row["value"]["text"] for row in older["slice"]["records"]] == [f"value-{n}" for n in (4, 3, 2, 1)]
    newer = reader.get("/messages.json", params=older["links"]["newer"]).json()
    assert [row["value"]["text"] for row in newer["slice"]["records"]] == [f"value-{n}" for n in (5, 6, 7, 8)]
    assert (shown["links"]["newer"], newer["links"]["newer"]) == (None, None)
    until = reader.get("/messages.json?topic=every&from=1700000000002&to=2023-11-14T22:13:20.004Z").json()
    assert [row["value"]["text"] for row in until["slice"]["records"]] == ["value-3", "value-2"]
    page = reader.get("/messages?topic=every&count=4").text
    assert "5 of 9 offsets are not read" in page
    assert [f"<th>{name}</th>" in page for name in ("state", "key", "headers")] == [False] * 3
    page = reader.get("/messages?topic=every&value=VALUE-3&from=-1h&zone=Europe/Berlin").text
    assert "UTC (" in page
    assert "None of the records that were read matches" in page
    assert reader.get("/messages?topic=every&from=7").status_code == 400
    for wrong in ("state=half", "order=up", "field=%3D1", "positions=x", "count=0", "place=here"):
        assert reader.get(f"/messages?topic=every&{wrong}").status_code == 400, wrong


def test_records_that_a_group_has_not_consumed_yet(client: Client, reader: TestClient) -> None:
    create_topic(client, NewTopic("unread", partitions=3, replication_factor=1))
    client.topic("unread")
    for number in range(9):
        record = Record(0, 1_700_000_000_000 + number, None, b"value-%d" % number)
        client.produce(at("unread", number % 3), build_batch([record]))
    commit_offsets(client, "reads-unread", {at("unread", 0): Committed(2), at("unread", 1): Committed(3)})
    shown = reader.get("/messages.json?topic=unread&group=reads-unread").json()
    assert [row["value"]["text"] for row in shown["slice"]["records"]] == [f"value-{n}" for n in (2, 5, 6, 8)]
    assert "committed nothing: partition 2" in shown["understood"][1]
    assert (
        "The group has consumed everything" in reader.get("/messages?topic=unread&group=reads-unread&partition=1").text
    )
    before = reader.get("/messages.json", params=shown["links"]["older"]).json()
    assert [row["value"]["text"] for row in before["slice"]["records"]] == [f"value-{n}" for n in (7, 4, 3, 1, 0)]
    page = reader.get("/groups/one?name=reads-unread").text
    assert "/messages?topic=unread&amp;group=reads-unread" in page


def test_filters_are_the_same_in_lists_searches_and_downloads(client: Client, reader: TestClient) -> None:
    mixed(client, "filtered")
    for state, offsets in (
        ("committed only", {0, 1}),
        ("aborted", {3, 9}),
        ("open", {5, 11}),
        ("marker", {2, 4, 8, 10}),
        ("no markers", {0, 1, 3, 5, 6, 7, 9, 11}),
    ):
        selected = {"topic": "filtered", "state": state}
        rows = reader.get("/messages.json", params=selected).json()["slice"]["records"]
        assert {row["offset"] for row in rows} == offsets, state
        hits = reader.get("/messages/search.json", params=selected).json()["hits"]
        assert {hit["offset"] for hit in hits} == offsets, state
        lines = reader.get("/messages/download", params=selected | {"isolation": "all"}).text.splitlines()
        assert {json.loads(line)["offset"] for line in lines} == (set() if state == "marker" else offsets), state
    hits = reader.get("/messages/search.json?topic=filtered&state=committed+only&value=V").json()["hits"]
    assert [hit["offset"] for hit in hits] == [1]
    assert reader.get("/messages/search.json?topic=filtered&value=V&case=1").json()["hits"] == []
    assert reader.get("/messages/search.json?topic=filtered").status_code == 400
    page = reader.get("/messages", params={"topic": "filtered", "q": SCRIPT.decode(), "header": SCRIPT.decode()}).text
    assert "<script>alert" not in page


def test_hostile_bytes_are_shown_and_do_nothing(client: Client, reader: TestClient) -> None:
    make(client, "hostile")
    bidi = "\u202eevil\u2066\x00\x1b[31m\r\n".encode()
    write(client, "hostile", SCRIPT, SCRIPT, ((SCRIPT.decode(), SCRIPT), ("\u202e\x00", None)))
    write(client, "hostile", bidi, b"\xff\x00")
    write(client, "hostile", None, b"")
    write(client, "hostile", b"x" * 900_000, b'{"a": [1, "\\u202e"]}')
    paths = ["/messages?topic=hostile&from=first", *(f"/messages/one?topic=hostile&offset={n}" for n in range(4))]
    paths += [f"/messages?topic=hostile&value_format={form}&key_format={form}" for form in ("hex", "text", "integer")]
    for path in paths:
        text = reader.get(path).text
        assert "<script>alert" not in text, path
        assert not re.search("[\x00\x1b\u202e\u2066]", text), path
    events = reader.get("/messages/search-events?topic=hostile&q=script").text
    assert "<script>alert" not in events
    assert "\r" not in events
    cut = reader.get("/messages.json?topic=hostile&from=3").json()["slice"]["records"][0]
    assert (cut["value"]["cut"], cut["value"]["size_bytes"], cut["key"]["format"]) == (True, 900_000, "json")
    assert len(cut["value"]["text"]) == 2000
    assert "load all" in reader.get("/messages?topic=hostile&from=3").text
    whole = reader.get("/messages/one.json?topic=hostile&offset=3").json()
    assert base64.b64decode(whole["value_base64"]) == b"x" * 900_000
    assert "Value (null" in reader.get("/messages/one?topic=hostile&offset=2").text


def test_a_search_says_nothing_found_only_when_all_was_read(client: Client, reader: TestClient) -> None:
    make(client, "haystack")
    for number in range(30):
        write(client, "haystack", b"hay %d" % number, b"key-%d" % number, (("where", b"header-%d" % number),))
    for place, q, hits in (
        ("anywhere", "hay 7", 1),
        ("value", "hay 1", 11),
        ("key", "key-29", 1),
        ("header", "header-3", 1),
        ("header", "where", 30),
        ("key", "hay", 0),
        ("anywhere", "needle", 0),
    ):
        body = reader.get("/messages/search.json", params={"topic": "haystack", "q": q, "place": place}).json()
        assert (len(body["hits"]), body["progress"]["complete"]) == (hits, True), (place, q)
    events = reader.get("/messages/search-events?topic=haystack&q=needle").text
    assert "Nothing found in all records." in events
    assert events.endswith("event: done\ndata: \n\n")
    assert events.count("event: hit") == 0
    assert reader.get("/messages/search-events?topic=haystack&q=hay").text.count("event: hit") == 30
    assert "does not exist" in reader.get("/messages/search-events?topic=nothing&q=x").text
    assert "sse-connect" in reader.get("/messages/search?topic=haystack&q=x").text
    assert "sse-connect" not in reader.get("/messages/search").text
    assert reader.get("/messages/search.json?topic=haystack&q=x&partition=9").status_code == 400


def test_a_search_that_is_stopped_says_where_it_was(client: Client) -> None:
    make(client, "stopped")
    for _ in range(3):
        write(client, "stopped", b"hay")
    place = at("stopped")
    steps = list(search(client, RecordFilter((TextIn(b"x"),)), {place: 0}, {place: Bounds(3, 3)}, lambda: True))
    assert steps == [Progress(0, 3, {place: 0}, 0, complete=False)]
    for _ in range(250):
        write(client, "stopped", b"many")
    steps = list(search(client, RecordFilter((TextIn(b"many"),)), {place: 0}, {place: Bounds(253, 253)}, lambda: False))
    last = steps[-1]
    assert isinstance(last, Progress)
    assert (last.hits, last.complete) == (200, False)
    assert dict(last.positions) == {place: 203}
    assert sum(isinstance(step, Hit) for step in steps) == 200


def test_a_tail_shows_what_is_written_from_now_on(client: Client, broker: Broker, reader: TestClient) -> None:
    make(client, "tailed")
    write(client, "tailed", b"before")
    assert "sse-connect" in reader.get("/messages/tail?topic=tailed").text
    ended = False
    with Client(broker.bootstrap_servers) as own:
        events = tailing(own, PageRequest(Query({"topic": "tailed"}), Settings("x")), lambda: ended)
        assert next(events).name == "state"
        write(client, "tailed", b"after")
        hit = next(events)
        assert (hit.name, hit.values["hit"]["value"].text) == ("hit", "after")
        ended = True
        assert list(events) == []


def test_streams_are_limited_and_say_when_the_cluster_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with visiting("127.0.0.1:9") as visitor:
        assert "event: failed" in visitor.get("/messages/search-events?topic=t&q=x").text
        assert "needs something to look for" in visitor.get("/messages/search-events?topic=t").text
        monkeypatch.setattr("oncelog.console.streaming.event_streams.MAX_STREAMS", 0)
        assert "already running" in visitor.get("/messages/search-events?topic=t&q=x").text


def test_bytes_as_text() -> None:
    assert decoded(None).text is None
    assert decoded(b"12").format == "text"
    assert decoded(b"12", "json").format == "json"
    assert decoded(b'{"b":1}').text == '{\n  "b": 1\n}'
    assert decoded(b"\xff\x01").text == "ff 01"
    assert decoded(b"\xff\xff\xff\xfe", "integer").text == "-2"
    assert decoded(b"abc", "integer").format == "hex"
    assert decoded("é".encode() * 2000, most=1001).text == "é" * 500
    assert decoded(b"[" * 100_000, most=200_000).format == "text"
    assert shown("a\x00b\u202e\u00a0c") == "a␀b\\u202e c"
    assert shown("a\nb", keep_lines=True) == "a\nb"
