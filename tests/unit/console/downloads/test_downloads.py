"""Downloads: exactly what a reader of committed records reads, or everything with its state; cut ones say where to go
on, and going on leaves nothing out."""

from __future__ import annotations

import base64
import io
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from oncelog import read_arrow
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.notation import json_text
from oncelog.client.blocking import Client, Producer
from oncelog.console.downloads import json_lines, reading
from oncelog.console.downloads import routes as serving
from oncelog.console.downloads.selection import Selection
from oncelog.console.formats.schema_files import read_schemas
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import at
from tests.unit.console.formats.samples import ORDER, avro, avro_file
from tests.unit.console.pages.test_messages import STATES, make, mixed, write
from tests.unit.console.visits import visiting

pytestmark = pytest.mark.slow


def lines(visitor: TestClient, path: str) -> list[dict[str, Any]]:
    answer = visitor.get(f"/messages/download?{path}")
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def noticed(visitor: TestClient, path: str) -> tuple[pa.Table, dict[str, Any]]:
    answer = visitor.get(f"/messages/download?as=parquet&{path}")
    assert answer.status_code == 200, answer.text
    file = pq.ParquetFile(io.BytesIO(answer.content))
    return file.read(), json.loads(file.metadata.metadata[b"oncelog"])


def table(visitor: TestClient, path: str) -> pa.Table:
    return noticed(visitor, path)[0]


def test_committed_ones_are_those_that_a_reader_reads(broker: Broker, client: Client, reader: TestClient) -> None:
    mixed(client, "kept")
    read = read_arrow(
        "kept", bootstrap_servers=broker.bootstrap_servers, read_committed=True, include_headers=True
    ).to_table()
    assert read.column("offset").to_pylist() == [0, 1]
    assert [line["offset"] for line in lines(reader, "topic=kept")] == [0, 1]
    result, notice = noticed(reader, "topic=kept")
    assert notice == {"complete": True}
    assert result.replace_schema_metadata(None).equals(read)
    assert lines(reader, "topic=kept&from=stable") == []
    assert table(reader, "topic=kept&from=end").num_rows == 0


def test_everything_comes_with_its_state(client: Client, reader: TestClient) -> None:
    mixed(client, "whole")
    meant = [(offset, state) for offset, state in enumerate(STATES) if state != "marker"]
    result = lines(reader, "topic=whole&isolation=all")
    assert [(line["offset"], line["state"]) for line in result] == meant
    columns = table(reader, "topic=whole&isolation=all")
    rows = zip(columns.column("offset").to_pylist(), columns.column("state").to_pylist(), strict=True)
    assert list(rows) == meant
    some = lines(reader, "topic=whole&isolation=all&partition=0&from=3&to=7")
    assert [(line["offset"], line["state"]) for line in some] == [item for item in meant if 3 <= item[0] < 7]
    with_v = [item for item in meant if item[1] != "plain"]
    query = "topic=whole&isolation=all&q=76&q_format=hex&place=value"
    assert [(line["offset"], line["state"]) for line in lines(reader, query)] == with_v
    assert table(reader, query).column("offset").to_pylist() == [offset for offset, _ in with_v]


def test_lines_have_bytes_as_text_or_base64(client: Client, reader: TestClient) -> None:
    make(client, "lined")
    write(client, "lined", b"\xff", b"k", (("h", b"v"), ("n", None), ("b", b"\xfe")))
    write(client, "lined", None, None)
    first, second = lines(reader, "topic=lined&partition=0")
    assert (first["key"], first["value_base64"], "value" in first, "state" in first) == ("k", "/w==", False, False)
    assert first["headers"] == [
        {"key": "h", "value": "v"},
        {"key": "n", "value": None},
        {"key": "b", "value_base64": "/g=="},
    ]
    assert (second["key"], second["value"], second["timestamp_type"]) == (None, None, "create")


def test_lines_that_are_written_in_pieces_are_the_same(
    client: Client, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(client, NewTopic("pieces", partitions=1, replication_factor=1))
    values = (b"\xff\x00" * 9, '\U0001f375"\\ä\n'.encode() * 5, b"", None)
    for value in values:
        now_ms = int(time.time() * 1000)
        pair = [Record(number, now_ms, value, value, (("h", value), ("i", b"x"))) for number in (0, 1)]
        client.produce(at("pieces"), build_batch(pair))
    path = "/messages/download?topic=pieces&isolation=all"
    whole = reader.get(path).content
    monkeypatch.setattr(json_lines, "LARGE", 1)
    monkeypatch.setattr("oncelog.console.records.large_json.PIECE", 6)
    assert reader.get(path).content == whole
    assert len(whole.splitlines()) == 8
    document = reader.get("/messages/one.json?topic=pieces&partition=0&offset=2").json()
    assert base64.b64decode(document["value_base64"]) == values[1]


def test_one_parquet_file_is_made_at_a_time(
    client: Client, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(client, NewTopic("only", partitions=1, replication_factor=1))
    for _ in range(5):
        assert table(reader, "topic=only").num_rows == 0, "the one before is over"
    monkeypatch.setattr(serving, "MAX_PARQUET", 0)
    refused = reader.get("/messages/download?topic=only&as=parquet")
    assert (refused.status_code, "choose JSON lines" in refused.text) == (503, True)
    assert reader.get("/messages/download?topic=only").status_code == 200


def test_values_by_schema_are_json_or_say_why_not(client: Client, broker: Broker, tmp_path: Path) -> None:
    make(client, "avro-lines")
    order = avro(ORDER, {"id": 1, "note": "tea", "raw": b"", "price": Decimal("1.50")})
    write(client, "avro-lines", b"\x00\x00\x00\x00\x07" + order)
    write(client, "avro-lines", b"\xff")
    schemas = read_schemas([f"avro-lines={avro_file(tmp_path, 'order.avsc', ORDER)}"])
    with visiting(broker.bootstrap_servers, schemas=schemas) as visitor:
        good, bad = lines(visitor, "topic=avro-lines&value_format=avro")
    assert (good["value"]["note"], good["value_schema_id"]) == ("tea", "7")
    assert (bad["value_base64"], "not avro" in bad["value_error"]) == ("/w==", True)


def test_json_values_keep_their_digits_and_names(client: Client, reader: TestClient) -> None:
    make(client, "digits")
    values = [b'{"amount":12345678901234567.89,"x":1e400,"x":-0}', b"[NaN]", b'{"a":"\\ud83c"}', b"[1.10, 100E-2]"]
    for value in values:
        write(client, "digits", value)
    answer = reader.get("/messages/download?topic=digits&as=jsonl&value_format=json")
    rows = answer.text.splitlines()
    assert len(rows) == 4
    assert '"value":{"amount":12345678901234567.89,"x":1e400,"x":-0}' in rows[0]
    assert '"value":[1.10,100E-2]' in rows[3]
    for row in rows:
        json_text.check(row)
    assert "not json" in json.loads(rows[1])["value_error"]
    page = reader.get("/messages/one?topic=digits&partition=0&offset=0").text
    assert "12345678901234567.89" in page
    assert "1e400" in page


@pytest.mark.parametrize("as_", ["jsonl", "parquet"])
def test_a_cut_download_says_where_it_goes_on(broker: Broker, client: Client, reader: TestClient, as_: str) -> None:
    topic = f"cut-{as_}"
    create_topic(client, NewTopic(topic, partitions=2, replication_factor=1))
    client.topic(topic)
    for partition in (0, 1):
        client.produce(at(topic, partition), build_batch([Record(n, 1, None, b"%d" % n) for n in range(10)]))
    results: list[tuple[int, int]] = []
    path: str | None = f"topic={topic}&records=7&as={as_}"
    steps = 0
    while path is not None:
        steps += 1
        if as_ == "jsonl":
            rows = lines(reader, path)
            message = rows.pop()["oncelog"] if "oncelog" in rows[-1] else {"complete": True}
        else:
            read, message = noticed(reader, path)
            rows = read.to_pylist()
        results += [(row["partition"], row["offset"]) for row in rows]
        path = None if message["complete"] else message["go_on"].partition("?")[2]
    assert steps == 3
    assert sorted(results) == [(partition, offset) for partition in (0, 1) for offset in range(10)]


def test_bytes_are_bounded_too(client: Client, reader: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    make(client, "heavy")
    for _ in range(3):
        write(client, "heavy", b"x" * 1000)
    monkeypatch.setattr(Selection.__init__, "__defaults__", (1_000_000, 1500))
    *rows, last = lines(reader, "topic=heavy")
    assert (len(rows), last["oncelog"]["next"], last["oncelog"]["records"]) == (2, {"0": 2}, 2)


def test_what_cannot_be_is_refused_before_the_first_byte(
    client: Client, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(client, NewTopic("two", partitions=2, replication_factor=1))
    client.topic("two")
    path = "/messages/download?topic=two"
    for wrong in (
        "&as=xml",
        "&from=soon",
        "&from=3",
        "&partition=9",
        "&positions=x",
        "&value_format=x",
        "&q=g&q_format=hex",
    ):
        assert reader.get(path + wrong).status_code == 400, wrong
    assert reader.get("/messages/download?topic=nothing").status_code == 404
    assert reader.get("/messages/download").status_code == 400
    head = reader.head(f"{path}&partition=1&from=0")
    assert 'filename="two-1-from-0.jsonl"' in head.headers["content-disposition"]
    assert reader.get(f"{path}&from=2001-01-01&to=2999-01-01").status_code == 200
    monkeypatch.setattr(serving, "MAX_DOWNLOADS", 0)
    assert reader.get(path).status_code == 503


def test_damaged_batches_are_named_up_to_a_number() -> None:
    left = reading.Remaining(5, 5)
    for number in range(50):
        left.add_unreadable(f"batch {number}")
    assert len(left.unreadable) == 20


def test_the_page_offers_them(broker: Broker, client: Client, reader: TestClient) -> None:
    make(client, "offered")
    with Producer(client) as producer:
        producer.send("offered", b"x")
    page = reader.get("/messages?topic=offered").text
    assert 'action="/messages/download"' in page
    assert "1,000,000 records and 256.0 MiB" in page
    assert "Download all matches" in reader.get("/messages/search?topic=offered&q=x").text
