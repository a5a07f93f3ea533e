"""Transactional ids that time out, that are not used again, and transactions that no partition shows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from oncelog.admin.explain.cluster_report import Problem
from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.explain.targets import explain_producer, explain_txn
from oncelog.admin.explain.whole_cluster import explain_cluster
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.admin.transactions.history.recent_ends import read_recent_ends
from oncelog.admin.transactions.history.unused_ids import unused_ids
from oncelog.admin.transactions.transactional_ids import describe_transaction
from oncelog.client.blocking import Client
from oncelog.testing import Broker
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import Later
from tests.interop.admin.lab import ByHand, at
from tests.interop.cli.conftest import Run
from tests.interop.cli.conftest import run_at as run_at
from tests.peers.apache_kafka import ApacheKafka
from tests.unit.console.visits import visiting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transactional.id.expiration.ms": "3600000",
}
TIME_OUTS = 3
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(properties=QUICK) as broker:
        yield broker


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Coordinators that look for time-outs ten times a second."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").bootstrap_servers
        return
    with Broker(QUICK) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def is_ours(request: pytest.FixtureRequest, servers: str) -> bool:
    return bool(request.node.callspec.params["servers"] == "oncelog")


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers, config=FAST) as opened:
        yield opened


def time_out(client: Client, name: str, topic: str) -> None:
    """A transaction that its producer leaves."""
    producer = ByHand(client, name, timeout_ms=200)
    producer.begin(at(topic))
    wait_until(lambda: describe_transaction(client, name).state == "CompleteAbort", "the abort")


def line(client: Client, cause: Cause) -> Problem | None:
    return next((problem for problem in explain_cluster(client).problems if problem.cause is cause), None)


def test_a_producer_that_times_out_again_and_again_is_named(
    client: Client, servers: str, is_ours: bool, run_at: Callable[[str], Run]
) -> None:
    create_topic(client, NewTopic("slow"))
    own = ByHand(client, "prudent", timeout_ms=60_000)
    for _ in range(TIME_OUTS):
        own.begin(at("slow"))
        own.end(commit=False)
    time_out(client, "sluggish", "slow")
    told = explain_txn(client, "sluggish")
    [single] = [finding for finding in told.findings if finding.cause is Cause.ABORTED_AT_TIME_OUT]
    assert single.severity is Severity.RISK
    assert "INVALID_PRODUCER_EPOCH" in single.sentences[1], "a client of Transactions V1"
    assert line(client, Cause.TIMES_OUT) is None
    for _ in range(TIME_OUTS - 1):
        time_out(client, "sluggish", "slow")
    repeated = line(client, Cause.TIMES_OUT)
    assert repeated is not None
    assert (repeated.kind, repeated.name, repeated.severity) == ("id", "sluggish", Severity.RISK)
    assert repeated.text.startswith(f"{TIME_OUTS} transactions of 'sluggish'")
    assert ("of client 'oncelog' on 127.0.0.1" in repeated.text) == is_ours, repeated.text
    ends = read_recent_ends(client)
    assert (ends.problem, [*ends.timed_out]) == (None, ["sluggish"]), "its own aborts are no time-outs"
    [finding] = [row for row in explain_txn(client, "sluggish").findings if row.cause is Cause.TIMES_OUT]
    assert (finding.evidence["timed_out"], finding.evidence["ended"]) == (TIME_OUTS, TIME_OUTS)
    producer_id = describe_transaction(client, "sluggish").producer_id
    assert Cause.TIMES_OUT in {row.cause for row in explain_producer(client, producer_id).findings}
    assert explain_txn(client, "prudent").findings == []

    document = json.loads(run_at(servers)("explain", "cluster", "--json").out)
    assert [row["transactional_id"] for row in document["timed_out"]] == ["sluggish"]
    with visiting(servers) as visitor:
        page = visitor.get("/overview").text
    assert 'href="/explain?kind=txn&amp;name=sluggish"' in page


def test_ids_that_are_not_used_again_are_counted_by_their_pattern(client: Client) -> None:
    create_topic(client, NewTopic("once"))
    begun = time.monotonic()
    for number in range(6):
        producer = ByHand(client, f"app-{UUID(int=number, version=4)}")
        producer.begin(at("once"))
        producer.end()
    spread_ms = int((time.monotonic() - begun) * 1000)
    [ids] = unused_ids(client, idle_ms=0, least=6, least_spread_ms=1).unused
    assert (ids.pattern, ids.count, ids.expiration_ms) == ("app-<uuid>", 6, HOUR_MS)
    assert 0 < ids.newest_ms - ids.oldest_ms <= spread_ms
    assert unused_ids(client, idle_ms=0, least=6, least_spread_ms=HOUR_MS).unused == [], "an application was stopped"
    assert unused_ids(client, idle_ms=HOUR_MS, least=1, least_spread_ms=0).unused == [], "in use an hour ago"


def test_a_transaction_without_records_is_seen_once_its_coordinator_is_late(client: Client, servers: str) -> None:
    create_topic(client, NewTopic("empty"))
    open_one = ByHand(client, "without-records", timeout_ms=600_000)
    open_one.add(at("empty"))
    assert line(client, Cause.UNFINISHED_TRANSACTION) is None
    with Client(servers, config=FAST, system=Later(15 * 60_000)) as later:
        # The list has ids that are open for a minute, by the coordinator's clock.
        rows = explain_cluster(later).id_facts.open_rows
    assert rows == (), "not open for a minute yet"
    open_one.end(commit=False)
