"""The console beside oncelog and Apache Kafka: states of records, a group's two lags, and the end of a hang."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Committed, FetchSettings
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.programs.group import commit_offsets
from tests.interop.admin.lab import ByHand, at
from tests.unit.console.pages.test_messages import STATES, mixed
from tests.unit.console.pages.test_produce import hidden
from tests.unit.console.visits import token_of, visiting

pytestmark = pytest.mark.slow


def test_from_what_a_group_can_read_to_the_end_of_what_holds_it(client: Client, servers: str, tmp_path: Path) -> None:
    topic = "console"
    create_topic(client, NewTopic(topic, partitions=1, replication_factor=1))
    client.topic(topic)
    late, other = ByHand(client, "console-late"), ByHand(client, "console-other")
    for commit in (True, False):
        other.begin(at(topic))
        other.end(commit=commit)
        other.restart()
    late.begin(at(topic))
    late.end()
    late.write(at(topic))
    other.begin(at(topic))
    other.end()
    commit_offsets(client, "console-group", {at(topic): Committed(0)})
    with visiting(servers, audit_log=tmp_path / "audit") as visitor:
        assert visitor.get("/overview").status_code == 200
        result = visitor.get(f"/messages.json?topic={topic}&from=first").json()["slice"]
        states = [item["state"] for item in result["records"]]
        expected = "committed marker aborted marker committed marker open committed marker"
        assert states == expected.split()
        (row,) = visitor.get("/groups/one.json?name=console-group").json()["partitions"]["rows"]
        assert (row["last_stable_offset"], row["log_end"], row["readable"], row["lag"]) == (6, 9, 6, 9)
        told = visitor.get("/explain.json?kind=group&name=console-group").json()["report"]["findings"]
        assert "held-by-transaction" in {item["cause"] for item in told}
        assert visitor.get(f"/topics/one?name={topic}&all_configs=1").status_code == 200
        assert visitor.get(f"/producers?topic={topic}").status_code == 200

        path = f"/transactions/one?topic={topic}&partition=0&start_offset=6&min_age_ms=0"
        body = visitor.get(path.replace("/one", "/one.json")).json()
        assert (body["transaction"]["verdict"], body["dry_run"]["would_abort"]) == ("hanging", True)
        form = {"token": token_of(visitor, path), "typed": body["typed"]}
        done = visitor.post(path.replace("/one", "/abort"), data=form)
        assert "The abort marker was written" in done.text, done.text
        assert [json.loads(line)["outcome"] for line in (tmp_path / "audit").read_text().splitlines()] == [
            "sending",
            "aborted",
        ]
        (row,) = visitor.get("/groups/one.json?name=console-group").json()["partitions"]["rows"]
        assert (row["readable"], row["lag"], row["held_by"]) == (10, 10, None)
        result = visitor.get(f"/messages.json?topic={topic}&from=first").json()["slice"]
    fetched = client.fetch({at(topic): 0}, until={at(topic): 10}, settings=FetchSettings(read_committed=True))
    read = [record.offset for item in fetched for record in read_fetched(item, read_committed=True)]
    assert read == [item["offset"] for item in result["records"] if item["state"] == "committed"] == [0, 4, 7]


def test_searches_and_downloads_tell_states_and_a_record_is_produced(
    client: Client, servers: str, tmp_path: Path
) -> None:
    topic = "console-states"
    mixed(client, topic)
    meant = {offset: state for offset, state in enumerate(STATES) if state != "marker"}
    with visiting(servers, audit_log=tmp_path / "audit") as visitor:
        body = visitor.get(f"/messages/search.json?topic={topic}&q=v&place=value").json()
        transactional = {offset: state for offset, state in meant.items() if state != "plain"}
        assert {item["offset"]: item["state"] for item in body["hits"]} == transactional
        assert body["progress"]["complete"]
        path = f"/messages/download?topic={topic}"
        rows = [json.loads(line) for line in visitor.get(f"{path}&isolation=all").text.splitlines()]
        assert {row["offset"]: row["state"] for row in rows} == meant
        table = pq.read_table(io.BytesIO(visitor.get(f"{path}&isolation=all&as=parquet").content))
        assert dict(zip(table["offset"].to_pylist(), table["state"].to_pylist(), strict=True)) == meant
        assert [json.loads(line)["offset"] for line in visitor.get(path).text.splitlines()] == [0, 1]
        assert visitor.get("/transactions/ids.json").json()["ids"]["total"] >= 2
        rows = visitor.get(f"/topics.json?filter={topic}").json()["topics"]["rows"]
        assert [row["retention"]["milliseconds"] for row in rows] == [604_800_000]
        form = {"token": token_of(visitor, f"/messages/produce?topic={topic}"), "topic": topic, "value": "tea"}
        shown = visitor.post("/messages/produce/show", data=form | {"key_as": "null"}).text
        done = visitor.post("/messages/produce/send", data=hidden(shown) | {"typed": topic})
        assert f"written at offset {len(STATES)}" in done.text, done.text
