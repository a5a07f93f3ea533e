"""``oncelog txn``: what it prints, its exit codes, and what it refuses; on our broker and on Apache Kafka."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.interop.admin.lab import ByHand, at
from tests.interop.cli.conftest import Ran, Run
from tests.interop.cli.conftest import run_at as run_at  # a fixture

pytestmark = pytest.mark.slow
FIELDS = [
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "start_offset",
    "age_ms",
    "transactional_id",
    "coordinator",
    "verdict",
    "reason",
    "records_behind",
]


@pytest.fixture
def run(servers: str, run_at: Callable[[str], Run]) -> Run:
    return run_at(servers)


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code in (0, 2), ran
    decoded: list[dict[str, Any]] = json.loads(ran.out)
    return decoded


def stuck(client: Client, topic: str) -> ByHand:
    """A group at the last stable offset, a hang that holds it, and a live transaction in partition 1."""
    create_topic(client, NewTopic(topic, partitions=2, replication_factor=1))
    client.topic(topic)
    late = ByHand(client, f"{topic}-late")
    late.begin(at(topic))
    late.end()
    late.write(at(topic))
    live = ByHand(client, f"{topic}-live")
    live.begin(at(topic, 1))
    commit_offsets(client, f"{topic}-group", {at(topic): Committed(2), at(topic, 1): Committed(0)})
    return live


def test_from_a_stuck_group_to_its_release(run: Run, client: Client, servers: str, tmp_path: Path) -> None:
    live = stuck(client, "orders")
    assert rows(run("txn", "find-hanging", "-t", "orders", "--json")) == [], "it is too young to be sure without asking"
    result = run("txn", "find-hanging", "-t", "orders", "--min-age-ms", "0", "--json", "--fail-on-hanging")
    (row,) = rows(result)
    assert result.code == 2
    assert list(row) == FIELDS
    assert (row["verdict"], row["transactional_id"], row["start_offset"]) == ("hanging", "orders-late", 2)
    everything = rows(run("txn", "find-hanging", "-t", "orders", "--min-age-ms", "0", "--all", "--json"))
    assert [row["verdict"] for row in everything] == ["hanging", "live"]

    told = run("txn", "explain", "--group", "orders-group")
    command = f"oncelog txn abort --topic orders --partition 0 --start-offset 2 --bootstrap-servers {servers}"
    assert told.code == 0
    text = " ".join(told.out.replace("•", "").split())
    for sentence in (
        "Group 'orders-group' is Empty with 0 members",
        "In orders-0 it is at offset 2, and there is nothing to read before offset 2.",
        "It is held by a transaction of transactional id 'orders-late', producer id",
        "these records came after the marker; but it began only",
        "So no coordinator is going to end it",
        "It counts as hanging from an age of 1 min on",
        "Groups that wait behind it, if they read committed records: orders-group (1 offset).",
        "It never clears by itself",
        "The coordinator has 'orders-live' Ongoing, with this partition. So it is live",
    ):
        assert sentence in text, told.out
    assert command in told.out
    (chain,) = json.loads(run("txn", "explain", "-t", "orders", "-p", "0", "--json").out)["chains"]
    assert (chain["verdict"], chain["commands"]) == ("suspected", [command])

    audit = tmp_path / "audit.jsonl"
    abort = ("txn", "abort", "-t", "orders", "-p", "0", "--start-offset", "2", "--audit-log", str(audit))
    assert run(*abort, "--dry-run").code == 0
    unasked = run(*abort)
    assert (unasked.code, "--yes does it without asking" in unasked.err) == (1, True)
    assert audit.read_text() == ""
    done = run(*abort, "--yes")
    assert done.code == 0, done
    assert "orders-0 from 2 aborted: last stable offset 2 → 4, end 4: everything can be read" in done.out
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["action"], line["outcome"], line["transactional_id"]) for line in lines] == [
        ("abort", "sending", "orders-late"),
        ("abort", "aborted", "orders-late"),
    ]
    assert run(*abort, "--yes").err.endswith("orders-0: no transaction is open from offset 2 on; none is open there\n")
    assert "No transaction holds it." not in run("txn", "explain", "-g", "orders-group").out
    live.end()
    assert "No transaction holds it." in run("txn", "explain", "-g", "orders-group").out


def test_a_live_one_is_refused_and_its_coordinator_can_end_it(run: Run, client: Client) -> None:
    create_topic(client, NewTopic("alive", partitions=1, replication_factor=1))
    live = ByHand(client, "alive")
    live.begin(at("alive"))
    refused = run("txn", "abort", "-t", "alive", "-p", "0", "--start-offset", "0", "--yes", "--json")
    (document,) = json.loads(refused.out)
    assert (refused.code, document["outcome"]) == (1, "refused")
    assert "It is live" in document["error"] or "it is live" in document["error"]
    assert run("txn", "abort", "--all-hanging", "-t", "alive", "--yes").out == (
        "no transaction hangs; there is nothing to abort\n"
    )
    (described,) = json.loads(run("txn", "describe", "alive", "--json").out)
    assert (described["state"], described["partitions"][0]["lag"], described["timeout_ms"]) == ("Ongoing", 1, 60_000)
    ended = run("txn", "force-terminate", "alive", "--yes")
    assert ended.code == 0, ended
    assert "alive: Ongoing → " in ended.out
    assert "warning: its producer, if it is alive, is fenced" in ended.err
    assert "nothing was done" in run("txn", "force-terminate", "alive", "--yes").out
    assert rows(run("txn", "find-hanging", "-t", "alive", "--all", "--json")) == []


def test_lists_producers_and_watching(run: Run, client: Client) -> None:
    stuck(client, "seen")
    listed = json.loads(run("txn", "list", "--state", "Ongoing", "--id-pattern", "seen-.*", "--json").out)
    assert [(load["transactional_id"], load["state"]) for load in listed] == [("seen-live", "Ongoing")]
    assert listed[0]["producer_epoch"] == 0, "what txn commit needs"
    assert "PRODUCER  EPOCH  STATE" in run("txn", "list", "--id-pattern", "seen-live").out
    assert json.loads(run("txn", "list", "--id-pattern", "seen-.*", "--longer-than-ms", "3600000", "--json").out) == []
    assert "there is no such state" in run("txn", "list", "--state", "Nonsense").err
    (producer,) = json.loads(run("txn", "producers", "seen:0", "--open", "--json").out)
    assert (producer["start_offset"], producer["producer_epoch"]) == (2, 0)
    watched = run("txn", "watch", "-t", "seen", "--min-age-ms", "0", "--json", "--fail-on-hanging")
    line = json.loads(watched.out)
    assert (watched.code, line["hanging"], line["live"], line["partitions"]) == (2, 1, 1, 2)
    unknown = run("txn", "describe", "nobody")
    assert (unknown.code, "its coordinator does not know it" in unknown.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("abort", "--topic", "t"), 2, "give --topic, --partition and --start-offset, or --all-hanging"),
        (("abort", "--all-hanging", "--start-offset", "1"), 2, "give --start-offset or --all-hanging, not both"),
        (("explain",), 2, "give exactly one of --group, --topic, --transactional-id"),
        (("explain", "--group", "g", "-p", "1"), 2, "give the --topic it belongs to"),
        (("find-hanging", "-p", "1"), 2, "give the one --topic it belongs to"),
        (("explain", "--group", "missing"), 1, "no such group"),
        (("explain", "--topic", "missing"), 1, "does not exist"),
        (("explain", "-i", "missing"), 1, "its coordinator does not know it"),
        (("force-terminate", "missing", "--yes"), 1, "its coordinator does not know it"),
        (("find-hanging", "-b", "127.0.0.1:1", "-X", "bootstrap.timeout.ms=0"), 1, "no broker at 127.0.0.1:1"),
        (("abort", "--all-hanging", "--audit-log", "/proc/no/such"), 1, "nothing was done"),
        (("watch", "--count", "1", "-b", "127.0.0.1:1", "-X", "bootstrap.timeout.ms=0"), 1, "no broker at 127.0.0.1:1"),
    ],
)
def test_failures_say_what_to_do(
    oncelog_broker: Broker, run_at: Callable[[str], Run], arguments: tuple[str, ...], code: int, says: str
) -> None:
    ran = run_at(oncelog_broker.bootstrap_servers)("txn", *arguments)
    assert (ran.code, ran.err.count("\n"), ran.out) == (code, 1, ""), ran
    assert says in ran.err


@pytest.mark.parametrize("arguments", [("find-hanging", "--broker", "9"), ("list", "--coordinator", "9")])
def test_a_broker_that_is_not_there_is_a_failure(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run("txn", *arguments, "--json")
    assert (ran.code, json.loads(ran.out)) == (1, [])
    assert "not answered: broker 9: " in ran.err
    assert "is not in the cluster" in ran.err


def test_metrics_for_clusters_that_are_not_ours(oncelog_broker: Broker) -> None:
    from oncelog.admin.transactions.cluster_scan import scan
    from oncelog.cli.txn.prometheus_exporter import Exporter

    exporter = Exporter("127.0.0.1", 0)
    with Client(oncelog_broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("metered", partitions=2))
        ByHand(client, "metered").begin(at("metered"))
        exporter.scanned(None, 0.5)
        exporter.scanned(scan(client), 0.25)
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics") as answer:
        text = answer.read().decode()
    for line in (
        "oncelog_txn_scans_total 2.0",
        "oncelog_txn_failed_scans_total 1.0",
        "oncelog_txn_scan_duration_seconds 0.25",
        "oncelog_txn_looks_total 2.0",
        "oncelog_txn_failed_looks_total 1.0",
        "oncelog_txn_look_duration_seconds 0.25",
        'oncelog_txn_open{verdict="live"} 1.0',
        'oncelog_txn_open{verdict="hanging"} 0.0',
        "oncelog_txn_unanswered 0.0",
    ):
        assert line in text
    exporter.close()


def test_every_command_has_its_help(run_at: Callable[[str], Run]) -> None:
    run = run_at("127.0.0.1:1")
    for command in ("list", "describe", "producers", "find-hanging", "explain", "abort", "force-terminate", "watch"):
        ran = run("txn", command, "--help")
        assert (ran.code, "Examples:" in ran.out, "--json" in ran.out) == (0, True, True), ran
