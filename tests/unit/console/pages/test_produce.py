"""Producing one record: shown first, written as shown, once, audited without its content."""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.interop.admin.lab import ByHand, at
from tests.unit.console.visits import ORIGIN, lines_of, token_of

pytestmark = pytest.mark.slow
SHOW, SEND = "/messages/produce/show", "/messages/produce/send"
SCRIPT = "<script>alert(1)</script>\u202e"


def fields(page: str) -> dict[str, str]:
    """The fields of the form as a browser reads and sends them."""
    areas = re.findall(r'<textarea name="(\w+)"[^>]*>\n?([^<]*)</textarea>', page)
    chosen = re.findall(r'<select name="(\w+)">(?:<option>\w+</option>)*<option selected>(\w+)</option>', page)
    (partition,) = re.findall(r'name="partition" [^>]* value="(\d*)"', page)
    (token,) = {*re.findall(r'name="token" value="(\w+)"', page)}
    texts = {name: html.unescape(text).replace("\n", "\r\n") for name, text in areas}
    return {"token": token, "partition": partition, **dict(chosen), **texts}


def hidden(page: str) -> dict[str, str]:
    """The fields of the form that writes what was shown."""
    form = page[page.index(f'action="{SEND}') :]
    findall = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)
    return {name: html.unescape(value) for name, value in findall}


def test_a_record_is_shown_and_then_written_as_shown(client: Client, changer: TestClient, tmp_path: Path) -> None:
    create_topic(client, NewTopic("desk", partitions=3, replication_factor=1))
    token = token_of(changer, "/messages/produce?topic=desk")
    form = {
        "token": token,
        "topic": "desk",
        "key": "k-1",
        "key_as": "text",
        "value": SCRIPT + "\r\nline",
        "value_as": "text",
        "headers": "who: ann\r\nempty\r\n",
    }
    shown = changer.post(SHOW, data=form)
    assert shown.status_code == 200, shown.text
    assert "<script>alert" not in shown.text
    assert "not written yet" in shown.text
    partition = partition_of_key(b"k-1", 3)
    path = f"/messages.json?topic=desk&partition={partition}&from=first"
    assert changer.get(path).json()["slice"]["records"] == []
    sent = hidden(shown.text)
    assert sent["partition"] == str(partition)
    mistyped = changer.post(SEND, data=sent | {"typed": "dusk"}, headers={"referer": ORIGIN + SHOW})
    assert (mistyped.status_code, "Not confirmed." in mistyped.text) == (409, True)
    assert hidden(mistyped.text) == sent, "the same record to the same partition"
    assert 'value="dusk"' in mistyped.text
    assert str(changer.get(SHOW).url) == ORIGIN + "/messages/produce", "after a login"
    (refused,) = lines_of(tmp_path / "audit")
    assert (refused["outcome"], refused["path"], refused["topic"]) == ("refused", SEND, "desk")
    done = changer.post(SEND, data=sent | {"typed": "desk"})
    assert "written at offset 0" in done.text
    (record,) = changer.get(path).json()["slice"]["records"]
    assert (record["key"]["text"], record["value"]["text"]) == ("k-1", SCRIPT + "\nline")
    assert [[name, one["text"]] for name, one in record["headers"]] == [["who", "ann"], ["empty", None]]
    first, second = lines_of(tmp_path / "audit")[1:]
    assert (first["action"], first["outcome"], second["outcome"]) == ("produce", "sending", "done")
    assert first["key"] == {"bytes": 3, "sha256": hashlib.sha256(b"k-1").hexdigest()}
    assert "alert" not in (tmp_path / "audit").read_text(), "neither refused nor done it has content"


def test_formats_and_what_cannot_be(client: Client, changer: TestClient) -> None:
    create_topic(client, NewTopic("formats", partitions=1, replication_factor=1))
    form = {"token": token_of(changer, "/messages/produce"), "topic": "formats", "typed": "formats", "partition": "0"}
    for fields, value in (
        ({"value": "00 ff", "value_as": "hex"}, "00 ff"),
        ({"value": '{"a": 1}', "value_as": "json"}, '{\n  "a": 1\n}'),
        ({"value": "ignored", "value_as": "null"}, None),
        ({"value": ""}, ""),
    ):
        assert changer.post(SEND, data=form | fields).status_code == 200, fields
        last = changer.get("/messages.json?topic=formats&count=1").json()["slice"]["records"][0]
        assert last["value"]["text"] == value
    for wrong in (
        {"value": "0", "value_as": "hex"},
        {"value": "{", "value_as": "json"},
        {"value": "[" * 20_000, "value_as": "json"},
        {"value": "x", "value_as": "xml"},
        {"value": "x" * 70_000},
        {"headers": ": x"},
        {"headers": "a: b\n" * 51},
        {"partition": "7"},
        {"partition": ""},
        {"topic": "__consumer_offsets"},
    ):
        assert changer.post(SEND, data=form | wrong).status_code == 400, wrong
    assert changer.post(SHOW, data=form | {"topic": "nothing"}).status_code == 404
    assert changer.post(SHOW, data=form | {"partition": ""}).status_code == 200


RECORDS = (
    Record(0, 5, b"k", '{"order": 7, "name": "Ä"}'.encode(), (("trace", b"T-1"), ("empty", None), ("blank", b""))),
    Record(0, 5, None, None),
    Record(0, 5, b"", b""),
    Record(0, 5, b"\xff\x00", b"\nline\n\tend\n", (("trace", b" padded "), ("bytes", b"\xfe"))),
    Record(
        0, 5, SCRIPT.encode(), b"</textarea>" + SCRIPT.encode(), (("a:b", b"x"), (" name", b"y\nz"), (SCRIPT, None))
    ),
    Record(0, 5, b"a\r\nb", "\u202e\u00a0".encode(), (("", b""), ("trace: x", None))),
)


def test_a_record_is_produced_again_as_it_was(client: Client, changer: TestClient) -> None:
    create_topic(client, NewTopic("again", partitions=2, replication_factor=1))
    create_topic(client, NewTopic("elsewhere", partitions=1, replication_factor=1))
    client.topic("again")
    for offset, record in enumerate(RECORDS):
        client.produce(at("again", 1), build_batch([record]))
        page = changer.get(f"/messages/produce?topic=again&of_partition=1&of_offset={offset}").text
        assert "<script>" not in page
        form = fields(page)
        assert form["partition"] == "1"
        shown = changer.post(SHOW, data=form | {"topic": "elsewhere", "partition": "0"})
        sent = changer.post(SEND, data=hidden(shown.text) | {"typed": "elsewhere"})
        assert f"written at offset {offset}" in sent.text
    fetched = client.fetch({at("elsewhere"): 0}, until={at("elsewhere"): len(RECORDS)})
    copies = [record for part in fetched for record in read_fetched(part, read_committed=False)]
    assert [(copy.key, copy.value, copy.headers) for copy in copies] == [
        (record.key, record.value, record.headers) for record in RECORDS
    ]


def test_records_that_the_form_cannot_hold_are_refused(client: Client, changer: TestClient, reader: TestClient) -> None:
    create_topic(client, NewTopic("unheld", partitions=1, replication_factor=1))
    client.topic("unheld")
    for record in (
        Record(0, 5, None, b"x" * 70_000),
        Record(0, 5, b"\xff" * 40_000, None),
        Record(0, 5, None, None, (("a", b""),) * 51),
        Record(0, 5, None, None, (("a", b"v" * 70_000),)),
    ):
        client.produce(at("unheld"), build_batch([record]))
    hand = ByHand(client, "unheld-1")
    hand.begin(at("unheld"))
    hand.end()
    for offset in (0, 1, 2, 3, 5, 6):
        answer = changer.get(f"/messages/produce?topic=unheld&of_offset={offset}")
        assert answer.status_code == 400, offset
    assert "<form" not in reader.get("/messages/produce?topic=unheld&of_offset=4").text
    assert "produce again" in changer.get("/messages/one?topic=unheld&offset=4").text
    assert "produce again" not in changer.get("/messages/one?topic=unheld&offset=5").text
    assert "produce again" not in reader.get("/messages/one?topic=unheld&offset=4").text
    form = {"token": token_of(changer, "/messages/produce"), "topic": "unheld", "partition": "0", "headers_as": "json"}
    for wrong in ("{", "[1]", '["ab"]', '[["a"]]', '[[1, "x"]]', '[["a", 1]]', '[["a", {"hex": "0"}]]', '[["a", {}]]'):
        assert changer.post(SHOW, data=form | {"headers": wrong}).status_code == 400, wrong


def test_a_console_that_reads_offers_no_form(reader: TestClient) -> None:
    assert "<form" not in reader.get("/messages/produce").text
    assert reader.post(SHOW, data={"topic": "x"}).status_code == 403
