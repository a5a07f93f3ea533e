"""Producing one record: shown first, written as shown, once, audited without its content."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.testing.broker import Broker
from tests.unit.console.visits import lines_of, token_of

pytestmark = pytest.mark.slow
SHOW, SEND = "/messages/produce/show", "/messages/produce/send"
SCRIPT = "<script>alert(1)</script>\u202e"


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


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
    assert changer.post(SEND, data=sent | {"typed": "dusk"}).status_code == 409
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


def test_a_console_that_reads_offers_no_form(reader: TestClient) -> None:
    assert "<form" not in reader.get("/messages/produce").text
    assert reader.post(SHOW, data={"topic": "x"}).status_code == 403
