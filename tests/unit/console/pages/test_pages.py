"""Overview, transactions, explain: from a stuck group to its release, as somebody on call goes."""

from __future__ import annotations

import html
import re
import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Committed
from oncelog.client.errors import ClientError
from oncelog.client.programs.group import commit_offsets
from oncelog.console.cluster.access import ClusterAccess, ClusterSlow
from oncelog.console.rendering import linked
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import ByHand, at
from tests.unit.console.visits import lines_of, token_of, visiting

pytestmark = pytest.mark.slow
HOSTILE = "<script>alert(1)</script>\"'&\x00\u202e"


def hang(broker: Broker, topic: str, name: str) -> None:
    """A transaction of ``name`` that hangs from offset 2 on, and a group that stands at it."""
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic(topic, partitions=1, replication_factor=1))
        client.topic(topic)
        late = ByHand(client, name)
        late.begin(at(topic))
        late.end()
        late.write(at(topic))
        commit_offsets(client, f"{topic}-group", {at(topic): Committed(2)})


def test_from_a_stuck_group_to_its_release(broker: Broker, changer: TestClient, tmp_path: Path) -> None:
    hang(broker, "orders", "orders-late")
    overview = changer.get("/overview.json").json()
    (line,) = [item for item in overview["problems"]["rows"] if "orders-group" in item["groups"]]
    assert (line["partitions"], line["unread"]) == ([{"topic": "orders", "partition": 0}], 1)
    assert (line["transaction"]["transactional_id"], line["transaction"]["start_offset"]) == ("orders-late", 2)
    page = changer.get("/overview").text
    assert "orders-group" in page
    for link in set(re.findall(r'href="(/[^"]+)"', page)):
        assert changer.get(html.unescape(link)).status_code == 200, link

    young = changer.get("/transactions.json?topic=orders").json()
    assert [item["verdict"] for item in young["open"]["rows"]] == ["suspected"], "too young to be sure"
    rows = changer.get("/transactions.json?topic=orders&min_age_ms=0").json()["open"]["rows"]
    assert [(row["verdict"], row["transactional_id"], row["start_offset"]) for row in rows] == [
        ("hanging", "orders-late", 2)
    ]
    assert "orders-late" in changer.get("/transactions?topic=orders&min_age_ms=0").text

    path = "/transactions/one?topic=orders&partition=0&start_offset=2"
    transaction = changer.get(path)
    told = changer.get("/explain.json?kind=partition&name=orders&partition=0").json()["report"]
    assert [row["verdict"] for row in told["transactions"]] == ["suspected"], "one verdict everywhere"
    assert told["findings"][0]["commands"] == ["oncelog txn abort --topic orders --partition 0 --start-offset 2"]
    assert "oncelog txn abort --topic orders --partition 0 --start-offset 2" in transaction.text
    form = {
        "token": token_of(changer, path),
        "topic": "orders",
        "partition": "0",
        "start_offset": "2",
    }
    wrong = changer.post("/transactions/abort", data=form | {"typed": "other"})
    assert (wrong.status_code, "Nothing was done" in wrong.text) == (409, True)
    done = changer.post("/transactions/abort", data=form | {"typed": "orders-late"})
    assert (done.status_code, "2 → 4" in done.text) == (200, True), done.text
    assert changer.get(path.replace("/one", "/one.json")).json()["transaction"] is None
    again = changer.post("/transactions/abort", data=form | {"typed": "orders-late"})
    assert "none is open there" in again.text
    wrong, *lines, late = lines_of(tmp_path / "audit")
    assert [line["outcome"] for line in lines] == ["sending", "aborted"]
    assert {(line["by"], line["via"], line["action"]) for line in lines} == {("local", "console", "abort")}
    for one in (wrong, late):
        assert (one["outcome"], one["path"], one["topic"]) == ("refused", "/transactions/abort", "orders")
    assert all(line["address"] for line in (wrong, *lines, late))


def test_a_group_stands_too_if_nothing_but_a_marker_lies_before_the_last_stable_offset(
    broker: Broker, reader: TestClient
) -> None:
    hang(broker, "invoices", "invoices-late")
    with Client(broker.bootstrap_servers) as client:
        commit_offsets(client, "invoices-read-all", {at("invoices"): Committed(1)})
        commit_offsets(client, "invoices-behind", {at("invoices"): Committed(0)})
    lines = reader.get("/overview.json").json()["problems"]["rows"]
    (waiting,) = [set(line["groups"]) for line in lines if "invoices-group" in line["groups"]]
    assert waiting == {"invoices-group", "invoices-read-all"}, "the third has a record to read"


def test_many_are_ended_by_the_list_that_was_shown(broker: Broker, changer: TestClient, tmp_path: Path) -> None:
    hang(broker, "bulk", "bulk-late")
    with Client(broker.bootstrap_servers) as client:
        other = ByHand(client, "bulk-other")
        other.begin(at("bulk"))
        other.end()
        other.write(at("bulk"))
    assert changer.get("/transactions/bulk.json?topic=bulk").json()["rows"] == [], "too young to be sure"
    path = "/transactions/bulk?topic=bulk&min_age_ms=0"
    shown = changer.get(path.replace("/bulk", "/bulk.json")).json()
    assert [item["transactional_id"] for item in shown["rows"]] == ["bulk-late", "bulk-other"]
    assert "Abort all hanging" in changer.get("/transactions?topic=bulk&min_age_ms=0").text
    form = {"token": token_of(changer, path), "typed": "abort 2", "list": shown["sent"], "min_age_ms": "0"}
    target = "/transactions/abort-listed"
    for wrong in ({"typed": "abort 1"}, {"list": "[]"}, {"list": "x"}, {"list": '[["bulk", 0]]'}, {"list": "[1]"}):
        assert changer.post(target, data=form | wrong).status_code in (400, 409), wrong
    assert changer.post(target, data=form | {"min_age_ms": ""}).text.count("not ended") == 3, "too young again"
    done = changer.post(target, data=form).text
    assert done.count("aborted; last stable offset") == 2
    assert changer.post(target, data=form).text.count("had already ended") == 2
    outcomes = [line["outcome"] for line in lines_of(tmp_path / "audit")]
    assert outcomes == ["refused"] * 7 + ["sending", "aborted"] * 2 + ["nothing to do"]


def test_a_live_transaction_is_terminated_and_never_aborted(
    broker: Broker, changer: TestClient, tmp_path: Path
) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("alive", partitions=1, replication_factor=1))
        client.topic("alive")
        ByHand(client, HOSTILE, timeout_ms=900_000).begin(at("alive"))
    (row,) = changer.get("/transactions.json?topic=alive&min_age_ms=0").json()["open"]["rows"]
    assert (row["verdict"], row["transactional_id"]) == ("live", HOSTILE)
    value = changer.get("/transactions/one?topic=alive&start_offset=0&min_age_ms=0")
    assert "Refused: it is live" in value.text
    ids = "/transactions/ids"
    page = changer.get(ids, params={"id": HOSTILE})
    for text in (value.text, page.text, changer.get("/transactions?topic=alive").text, changer.get(ids).text):
        assert "<script>alert" not in text
        assert "\x00" not in text
        assert "\u202e" not in text
    target = re.search(r'action="(/transactions/terminate[^"]*)"', page.text)
    assert target is not None
    form = {"token": token_of(changer, str(page.url)), "typed": "<script>alert(1)</script>\"'&\u2400\\u202e"}
    done = changer.post(target[1], data=form)
    assert "CompleteAbort" in done.text or "Empty" in done.text, done.text
    assert (tmp_path / "audit").read_text().count("force-terminate") == 2
    assert changer.get("/transactions.json?topic=alive").json()["open"]["rows"] == []


def test_explain_says_why_with_commands(broker: Broker, reader: TestClient) -> None:
    hang(broker, "billing", "billing-late")
    assert "Why something makes no progress" in reader.get("/explain").text
    told = reader.get("/explain.json?kind=partition&name=billing&partition=0").json()
    assert told["report"]["findings"][0]["cause"] == "held-by-transaction"
    page = reader.get("/explain?kind=group&name=billing-group").text
    assert "held-by-transaction" in page
    for text, link in (
        ("billing-0", "/explain?kind=partition&amp;name=billing&amp;partition=0"),
        ("&#39;billing-late&#39;", "/transactions/ids?id=billing-late"),
        ("billing-group", "/groups/one?name=billing-group"),
        ("broker 1", "/brokers/one?id=1"),
        ("The transaction, and how to end it", "/transactions/one?topic=billing&amp;partition=0&amp;start_offset=2"),
    ):
        assert f'<a href="{link}">{text}</a>' in page, text
    assert reader.get("/explain?kind=topic&name=nothing").status_code == 404
    assert reader.get("/explain?kind=producer&name=abc").status_code == 400
    assert reader.get("/explain?kind=partition&name=billing").status_code == 400
    assert reader.get("/explain?kind=moon&name=x").status_code == 400
    assert reader.get("/explain?kind=group&name=" + "x" * 2000).status_code == 400
    for kind in ("group", "topic", "txn"):
        answer = reader.get("/explain", params={"kind": kind, "name": f"{HOSTILE} {kind}"})
        assert answer.status_code in (403, 404, 502), kind
        assert "<script>alert" not in answer.text


def test_a_reader_is_offered_commands_and_no_forms(broker: Broker, reader: TestClient) -> None:
    hang(broker, "shipping", "shipping-late")
    page = reader.get("/transactions/one?topic=shipping&start_offset=2&min_age_ms=0").text
    assert "oncelog txn abort" in page
    assert '<form method="post"' not in page


def test_a_dead_cluster_is_said_and_asked_again() -> None:
    with visiting("127.0.0.1:9") as visitor:
        answer = visitor.get("/overview")
        assert answer.status_code == 503
        assert 'hx-trigger="every 5s, renew"' in answer.text
        asked_again = re.search(r'hx-get="([^"]+)"', visitor.get("/topics?filter=a").text)
        assert asked_again is not None
        assert asked_again[1] == "/topics?filter=a"
        assert "connect" in visitor.get("/overview.json").json()["error"]
        assert visitor.get("/health.json").status_code == 200


@pytest.mark.anyio
async def test_a_page_waits_only_so_long_for_a_slow_cluster() -> None:
    released = threading.Event()
    access = ClusterAccess(lambda: Client("127.0.0.1:9"), workers=1, patience_s=0.02)
    try:
        with pytest.raises(ClusterSlow, match="no answer"):
            await access.call(lambda client: released.wait(10))
        with pytest.raises(ClusterSlow):
            await access.call(lambda client: 1)
        released.set()
        assert await access.call(lambda client: 1, 5) == 1
        with pytest.raises(ClientError, match="refused"):
            await access.call(_refuse, 5)
    finally:
        released.set()
        access.close()


def _refuse(client: Client) -> None:
    raise ClientError("refused")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_names_in_sentences_are_links_and_never_markup() -> None:
    names = {"t-1": "/p1", "t-11": "/p11", HOSTILE: "/h?a=1&b=2"}
    assert linked("t-1, t-11, not-t-1, t-1-2 and t-1.", names) == (
        '<a href="/p1">t-1</a>, <a href="/p11">t-11</a>, not-t-1, t-1-2 and <a href="/p1">t-1</a>.'
    )
    told = linked(f"In {HOSTILE} <b>\x1b", names)
    assert "<script" not in told
    assert '<a href="/h?a=1&amp;b=2">' in told
    assert "&lt;b&gt;\u241b" in told
