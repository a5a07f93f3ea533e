"""Groups with the two lags, moving their offsets, topics in pages, producers."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.admin.group_descriptions import GroupDescription
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicName
from oncelog.client.blocking import Client, Committed, FetchSettings, GroupConsumer
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.metadata import PartitionInfo, TopicInfo
from oncelog.client.programs import Cluster
from oncelog.client.programs.group import commit_offsets, committed_offsets
from oncelog.console.cluster.rates import Rate, Rates
from oncelog.console.cluster.recent import Recent
from oncelog.console.page import PageRequest
from oncelog.console.pages.topics import read_all
from oncelog.console.pages.topics import read_one as read_topic
from oncelog.console.query import Query
from oncelog.console.settings import Settings
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import ByHand, at
from tests.interop.admin.members import LEAVES_FOR_A_WHILE, Member
from tests.programs import program_of
from tests.unit.console.visits import lines_of, token_of
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
RESET = "reset-offsets"
HOSTILE = "<img src=x onerror=alert(1)>"


def held_group(broker: Broker, topic: str, group: str) -> None:
    """Two committed records with their marker, three that are open, and a group at offset 1."""
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic(topic, partitions=1, replication_factor=1))
        client.topic(topic)
        done = ByHand(client, f"{topic}-done")
        done.begin(at(topic), at(topic))
        done.end()
        held = ByHand(client, f"{topic}-held", timeout_ms=900_000)
        held.begin(at(topic), at(topic), at(topic))
        commit_offsets(client, group, {at(topic): Committed(1)})


def test_a_groups_lag_is_what_a_reader_of_committed_records_reads(broker: Broker, reader: TestClient) -> None:
    held_group(broker, "stock", HOSTILE)
    body = reader.get("/groups/one.json", params={"name": HOSTILE}).json()
    (row,) = body["partitions"]["rows"]
    with Client(broker.bootstrap_servers) as client:
        end = client.list_offsets({at("stock"): -1})[at("stock")].offset
        stable = client.list_offsets({at("stock"): -1}, read_committed=True)[at("stock")].offset
        fetched = client.fetch(
            {at("stock"): 1}, until={at("stock"): stable}, settings=FetchSettings(read_committed=True)
        )
        read = [record.offset for item in fetched for record in read_fetched(item, read_committed=True)]
    assert (row["committed"], row["last_stable_offset"], row["log_end"]) == (1, stable, end)
    assert (row["readable"], row["lag"]) == (stable - 1, end - 1)
    assert read == [1], "the marker is an offset, not a record"
    assert row["held_by"]["transactional_id"] == "stock-held"
    page = reader.get("/groups/one", params={"name": HOSTILE}).text
    assert "<img" not in page
    assert "stock-held" in page
    assert "<img" not in reader.get("/groups").text
    assert [item["group"] for item in reader.get("/groups.json?filter=ONERROR").json()["groups"]["rows"]] == [HOSTILE]
    assert reader.get("/groups/one?name=nobody").status_code == 404


def test_a_group_of_the_consumer_protocol_shows_partitions_on_their_way(broker: Broker, reader: TestClient) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("moving", partitions=2, replication_factor=1))
        holder = Member(client, "movers", subscribed_topic_names=["moving"])
        holder.has(2)
        waiting = Member(client, "movers", subscribed_topic_regex="moving", instance_id="i-1")
        wait_until(lambda: [waiting.follow()] and is_moving(reader), "the target")
        shown, text = reader.get("/groups/one.json?name=movers").json(), reader.get("/groups/one?name=movers").text
        waiting.heartbeat(LEAVES_FOR_A_WHILE)
        assert ">away</span>" in reader.get("/groups/one?name=movers").text
    assert shown["group"]["epoch"] == shown["group"]["target_epoch"]
    by_client = {move["to_give_up"]["count"]: move["awaited"]["count"] for move in shown["moves"]}
    assert by_client == {1: 0, 0: 1}
    assert "1 partition moves between members" in text
    assert "static" in text
    listed = reader.get("/groups.json?type=consumer").json()["groups"]["rows"]
    assert [row["group"] for row in listed] == ["movers"]
    assert "movers" not in {row["group"] for row in reader.get("/groups.json?type=classic").json()["groups"]["rows"]}


def is_moving(reader: TestClient) -> bool:
    return bool(reader.get("/groups/one.json?name=movers").json()["handovers"])


def test_a_groups_offsets_of_a_topic_and_the_group_are_deleted_as_planned(
    broker: Broker, changer: TestClient, tmp_path: Path
) -> None:
    group, page = "leaving", "/groups/delete?name=leaving"
    with Client(broker.bootstrap_servers) as client:
        for topic in ("leaving-a", "leaving-b"):
            create_topic(client, NewTopic(topic, partitions=2, replication_factor=1))
            client.topic(topic)
        commit_offsets(client, group, {at("leaving-a"): Committed(0), at("leaving-a", 1): Committed(0)})
        commit_offsets(client, group, {at("leaving-b"): Committed(0)})

        def send(topic: str, typed: str = group, plan: str = "") -> tuple[int, str]:
            shown = changer.get("/groups/delete.json", params={"name": group, "topic": topic}).json()
            form = {"token": token_of(changer, page), "typed": typed, "plan": plan or shown["sent"]}
            answer = changer.post("/groups/remove", params={"name": group, "topic": topic}, data=form)
            return answer.status_code, answer.text

        shown = changer.get("/groups/delete.json", params={"name": group, "topic": "leaving-a"}).json()
        assert [row["partition"] for row in shown["offsets"]["rows"]] == [0, 1]
        assert shown["topics"] == ["leaving-a", "leaving-b"]
        assert send("leaving-a", typed="another")[0] == 409
        old = changer.get("/groups/delete.json", params={"name": group}).json()["sent"]
        commit_offsets(client, group, {at("leaving-b"): Committed(1)})
        text = send("", plan=old)[1]
        assert "leaving have moved since the plan was shown" in text
        status, text = send("leaving-a")
        assert (status, "2 offsets deleted of topic leaving-a" in text) == (200, True)
        assert [partition.topic for partition in committed_offsets(client, group)] == ["leaving-b"]
        assert send("")[0] == 200
        assert changer.get("/groups/one", params={"name": group}).status_code == 404
    outcomes = [(line["action"], line["outcome"]) for line in lines_of(tmp_path / "audit")]
    done = [action for action, outcome in outcomes if outcome == "done"]
    assert done == ["delete-offsets", "delete-group"]
    assert [outcome for _, outcome in outcomes].count("refused") == 2


def test_a_group_with_members_is_not_deleted_and_the_page_says_why(broker: Broker, changer: TestClient) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("staying", partitions=1, replication_factor=1))
        client.topic("staying")
        with GroupConsumer(client, "stayers", ["staying"]) as consumer:
            wait_until(lambda: [consumer.poll(0.01)] and consumer.assignment, "its partition")
            consumer.processed(at("staying"), 0)
            consumer.commit()
            for topic in ("", "staying"):
                shown = changer.get("/groups/delete", params={"name": "stayers", "topic": topic}).text
                assert "This would be refused" in shown
                assert "Delete the group</button>" not in shown
            plan = changer.get("/groups/delete.json?name=stayers").json()
            form = {"token": token_of(changer, "/topics/change"), "typed": "stayers", "plan": plan["sent"]}
            refused = changer.post("/groups/remove?name=stayers", data=form)
            assert refused.status_code == 409
            assert "has 1 member; stop them first" in refused.text


def test_the_lag_of_a_member_that_has_not_committed_is_unknown(broker: Broker, reader: TestClient) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("read-only", partitions=3, replication_factor=1))
        client.topic("read-only")
        for partition in range(2):
            client.produce(
                at("read-only", partition), build_batch([Record(number, 0, None, b"v") for number in range(4)])
            )
        with GroupConsumer(client, "never-commits", ["read-only"]) as consumer:
            wait_until(lambda: [consumer.poll(0.01)] and len(consumer.assignment) == 3, "its partitions")
            body = reader.get("/groups/one.json?name=never-commits").json()
            page = reader.get("/groups/one?name=never-commits").text
            consumer.processed(at("read-only", 0), 1)
            consumer.commit()
            later, text = (
                reader.get("/groups/one.json?name=never-commits").json(),
                reader.get("/groups/one?name=never-commits").text,
            )
    rows = {row["partition"]: row["readable"] for row in body["partitions"]["rows"]}
    assert rows == {0: None, 1: None, 2: 0}, "an empty partition has nothing to read"
    assert (later["lag"], later["readable"], later["unknown"]) == (3, 3, 1)
    assert "≥ 3" in text
    assert "nothing is committed" in page
    assert (body["lag"], body["readable"], body["unknown"]) == (None, None, 2), "never 0"


def test_lists_of_groups_have_both_lags_and_unknown_is_not_0(broker: Broker, reader: TestClient) -> None:
    held_group(broker, "ledger", "ledger-readers")
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("journal", partitions=1, replication_factor=1))
        client.topic("journal")
        client.produce(at("journal"), build_batch([Record(number, 0, None, b"v") for number in range(50)]))
        commit_offsets(client, "journal-readers", {at("journal"): Committed(10), at("ledger"): Committed(3)})
        with GroupConsumer(client, "journal-mute", ["journal"]) as consumer:
            wait_until(lambda: [consumer.poll(0.01)] and consumer.assignment, "its partition")
            wait_until(lambda: "journal-mute" in lags_of(reader), "a diagnosis that has them")
            lags = lags_of(reader)
            topic = reader.get("/topics/one.json?name=journal").json()["readers"]
            page = reader.get("/groups?sort=lag&filter=journal").text
            topic_page = reader.get("/topics/one?name=journal").text
    assert lags["ledger-readers"] == (2, 5, 0, 0)
    assert lags["journal-readers"] == (40, 43, 0, 0)
    assert lags["journal-mute"] == (None, None, 1, 1), "it has members, and has committed nothing"
    assert [(row["group"], row["lag"]) for row in topic] == [("journal-mute", None), ("journal-readers", 40)]
    assert page.index("journal-mute") < page.index("journal-readers"), "unknown comes first"
    assert "Groups that read it: 2" in topic_page
    by_lag = [row["lag"] for row in reader.get("/groups.json?sort=lag&filter=readers").json()["groups"]["rows"]]
    assert by_lag == sorted(by_lag, reverse=True)
    assert reader.get("/groups?sort=moon").status_code == 400


def lags_of(reader: TestClient) -> dict[str, tuple[int | None, int | None, int, int]]:
    """The lags of groups that a diagnosis has."""
    rows = reader.get("/groups.json?sort=lag").json()["groups"]["rows"]
    return {
        row["group"]: (row["readable"], row["lag"], row["unknown"], row["members"])
        for row in rows
        if row["members"] is not None
    }


def test_a_group_of_another_type_is_not_one_without_members(
    broker: Broker, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = GroupDescription("app", "Stable", "streams", "streams", "", 1, [])
    monkeypatch.setattr("oncelog.console.pages.groups.describe_group", lambda client, name: streams)
    page = reader.get("/groups/one?name=app").text
    assert "Members of a streams group are not shown here" in page
    assert "<h2>Members" not in page
    assert "no committed offsets" not in page


def test_offsets_are_moved_as_planned_or_not_at_all(broker: Broker, changer: TestClient, tmp_path: Path) -> None:
    held_group(broker, "parcels", "parcel-desk")
    path = "/groups/reset?name=parcel-desk&to=shift&value=%2B1"
    assert changer.get(path).status_code == 400
    path = "/groups/reset?name=parcel-desk&to=earliest"
    plan = changer.get(path.replace("/reset", "/reset.json")).json()
    assert plan["plan"] == [{"topic": "parcels", "partition": 0, "current": 1, "target": 0}]
    assert ">new</th>" in changer.get(path).text
    form = {"token": token_of(changer, path), "name": "parcel-desk", "typed": "parcel-desk", "plan": plan["sent"]}
    for wrong in ({"typed": "desk"}, {"plan": '[["parcels",0,7,0]]'}, {"plan": "[[]]"}, {"plan": '[["p",0,1,-5]]'}):
        assert changer.post("/groups/apply", data=form | wrong).status_code in (400, 409), wrong
    refused = lines_of(tmp_path / "audit")
    assert [(line["outcome"], line["path"], line["name"]) for line in refused] == [
        ("refused", "/groups/apply", "parcel-desk")
    ] * 4
    assert changer.post("/groups/apply", data=form).status_code == 200
    with Client(broker.bootstrap_servers) as client:
        assert committed_offsets(client, "parcel-desk")[at("parcels")].offset == 0
    assert [(line["action"], line["outcome"]) for line in lines_of(tmp_path / "audit")[4:]] == [
        ("reset-offsets", "sending"),
        ("reset-offsets", "done"),
    ]
    assert changer.post("/groups/apply", data=form).status_code == 409, "the plan is of before"


def test_a_topic_and_its_producers(broker: Broker, reader: TestClient) -> None:
    held_group(broker, "boxes", "box-desk")
    rows = reader.get("/topics.json?filter=BOX").json()["topics"]["rows"]
    assert [(row["name"], row["partitions"]) for row in rows] == [("boxes", 1)]
    assert rows[0]["size_bytes"] > 0
    body = reader.get("/topics/one.json?name=boxes").json()
    (partition,) = body["partitions"]["rows"]
    assert (partition["last_stable_offset"] < partition["latest"], partition["earliest"]) == (True, 0)
    assert "held" in reader.get("/topics/one?name=boxes&all_configs=1").text
    assert reader.get("/topics/one?name=nothing").status_code == 404
    producers = reader.get("/producers.json?topic=boxes&open=1").json()["producers"]["rows"]
    assert [(producer["transactional_id"], producer["start_offset"]) for producer in producers] == [("boxes-held", 3)]
    assert "boxes-held" in reader.get("/producers?topic=boxes&partition=0").text
    assert "boxes" in reader.get("/topics?internal=1").text


def test_a_topics_rate_is_between_two_looks_and_its_retention_is_said(broker: Broker) -> None:
    now_s = 100.0
    rates = Rates(lambda: now_s)
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("rated", partitions=2, replication_factor=1, configs={"retention.ms": "3600000"}))
        client.topic("rated")
        request = PageRequest(Query({"filter": "rated", "name": "rated"}), Settings("x"), rates=rates)
        (first,) = read_all(client, request)["topics"]["rows"]
        assert (first["rate"], first["retention"].milliseconds) == (Rate(), 3_600_000)
        batch = build_batch([Record(number, 1, None, b"x" * 100) for number in range(40)])
        client.produce(at("rated"), batch)
        now_s = 104.0
        (second,) = read_all(client, PageRequest(request.query, Settings("x"), rates=rates))["topics"]["rows"]
        assert (second["rate"].records_per_s, second["rate"].window_s) == (10.0, 4.0)
        assert second["rate"].bytes_per_s == len(batch) / 4
        topic = read_topic(client, request)
    assert (topic["rate"].window_s, topic["retention"].policy) == (4.0, "delete")


def own_configs(visitor: TestClient) -> list[tuple[str, str]]:
    configs = visitor.get("/topics/one.json?name=made.json").json()["configs"]
    return [(config["name"], config["value"]) for config in configs if config["source"] == "topic"]


def test_a_topic_is_made_altered_extended_shortened_and_deleted(changer: TestClient, tmp_path: Path) -> None:
    token = token_of(changer, "/topics/change")
    name = {"token": token, "name": "made.json"}
    created = changer.post("/topics/create", data=name | {"partitions": "2"})
    assert created.status_code == 200
    assert 'href="/topics/one?name=made.json"' in created.text
    assert changer.post("/topics/create", data=name | {"name": "no/topic"}).status_code in (404, 502)
    assert changer.post("/topics/create", data=name | {"partitions": "-3"}).status_code == 400
    path = "/topics/change?name=made.json&key=retention.ms&value=1234"
    page = changer.get(path)
    assert "604800000 (default)" in page.text
    assert changer.get(path.replace("1234", "soon")).status_code == 502, "the broker has checked it"
    assert changer.get(path.replace("retention.ms", "no.key")).status_code in (409, 502)
    form = name | {"key": "retention.ms", "value": "1234", "was": "604800000 (default)"}
    for wrong in ({"typed": "made"}, {"typed": "made.json", "was": "7 (topic)"}):
        assert changer.post("/topics/alter", data=form | wrong).status_code == 409
    typed = {"typed": "made.json"}
    assert changer.post("/topics/alter", data=form | typed).status_code == 200
    assert own_configs(changer) == [("retention.ms", "1234")]
    back = form | typed | {"was": "1234 (topic)", "default": "1"}
    assert changer.post("/topics/alter", data=back).status_code == 200
    assert own_configs(changer) == []
    assert changer.post("/topics/extend", data=name | typed | {"total": "3"}).status_code == 200
    assert changer.post("/topics/extend", data=name | typed | {"total": "1"}).status_code == 502
    assert changer.post("/topics/shorten", data=name | typed | {"partition": "2", "before": "0"}).status_code == 200
    assert changer.post("/topics/shorten", data=name | {"typed": "", "before": "0"}).status_code == 409
    assert changer.post("/topics/delete", data=name | {"typed": "made"}).status_code == 409
    assert changer.post("/topics/delete", data=name | typed).status_code == 200
    assert changer.get("/topics/one?name=made.json").status_code == 404
    lines = lines_of(tmp_path / "audit")
    done = [line["action"] for line in lines if line["outcome"] == "done"]
    assert done == ["create-topic", "alter-config", "alter-config", "add-partitions", "delete-records", "delete-topic"]
    assert {line["outcome"] for line in lines} == {"sending", "done", "failed", "refused"}
    refused = [line["path"].rpartition("/")[2] for line in lines if line["outcome"] == "refused"]
    assert refused == ["create", "alter", "alter", "shorten", "delete"]


def many_topics() -> dict[TopicName, TopicInfo]:
    """Ten thousand topics as metadata has them."""
    partition = PartitionInfo(0, BrokerId(1), LeaderEpoch(0), (1,), (1,), ())
    names = [TopicName(f"topic-{number:05}") for number in range(10_000)]
    return {name: TopicInfo(name, NO_TOPIC_ID, {0: partition}) for name in names}


def test_ten_thousand_topics_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.console.cluster.topic_figures.sizes_of", lambda client, names: ([], []))
    monkeypatch.setattr("oncelog.console.pages.topics._settings", lambda client, names, unanswered: {})
    monkeypatch.setattr(Cluster, "metadata", program_of(lambda cluster, topics=None: many_topics()))
    client = Client("127.0.0.1:9")
    began = time.thread_time()
    result = read_all(client, PageRequest(Query({"page": "3", "filter": "topic"}), Settings("x")))["topics"]
    assert time.thread_time() - began < 1
    assert (len(result["rows"]), result["pages"], result["rows"][0]["name"]) == (100, 100, "topic-00200")
    last = read_all(client, PageRequest(Query({"page": "999999"}), Settings("x")))["topics"]
    assert last["page"] == 100


def test_what_was_asked_a_moment_ago_is_not_asked_again() -> None:
    now, made = 0.0, iter(range(10))
    recent = Recent(lambda: now)
    assert [recent.get("a", lambda: next(made)) for _ in range(3)] == [0, 0, 0]
    now = 2.5
    assert recent.get("a", lambda: next(made)) == 1
    recent.forget()
    assert recent.get("a", lambda: next(made)) == 2


def test_pages_link_to_themselves_as_json(broker: Broker, reader: TestClient) -> None:
    for path in ("/overview", "/transactions?verdict=live", "/groups", "/topics?page=1", "/producers", "/explain"):
        match = re.search(r'<a href="([^"]+)">this page as JSON', reader.get(path).text)
        assert match is not None, path
        assert reader.get(match[1]).json() is not None


def test_what_was_made_while_all_was_forgotten_is_not_kept() -> None:
    recent = Recent(lambda: 0.0)

    def make() -> str:
        recent.forget()
        return "of before"

    assert recent.get("a", make) == "of before"
    assert recent.get("a", lambda: "of now") == "of now"
    assert recent.get("b", lambda: recent.get("a", lambda: "never")) == "of now", "names do not wait for each other"


def test_brokers_are_asked_for_without_their_topics(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        before = client.all_topics(0)
        create_topic(client, NewTopic("asked-later", partitions=1, replication_factor=1))
        client.refresh_brokers()
        assert client.view.brokers
        assert set(client.view.topics) == set(before)
        assert "asked-later" not in client.all_topics(600_000), "from memory"
        assert "asked-later" in client.all_topics(-1)
