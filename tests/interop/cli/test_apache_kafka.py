"""The same command line against Apache Kafka, transactions and its files on disk included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.client.blocking import Client
from tests.interop.cli.conftest import Run
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as one:
        yield one


@pytest.fixture
def run(kafka: ApacheKafka, run_at: Callable[[str], Run]) -> Run:
    return run_at(kafka.bootstrap_servers)


def test_topics_records_and_groups(run: Run, kafka: ApacheKafka) -> None:
    assert run("topic", "create", "t", "-p", "3", "-c", "segment.bytes=1048576").code == 0
    assert run("topic", "create", "t").err == "oncelog: topic 't': Topic 't' already exists. (TOPIC_ALREADY_EXISTS)\n"
    assert run("produce", "t", "-K", ":", "-z", "zstd", stdin=b"a:1\nb:2\nc:3\nd:4\n").code == 0
    assert sorted(run("consume", "t", "-e", "-f", "%k=%s ").out.split()) == ["a=1", "b=2", "c=3", "d=4"]
    theirs = kafka.tools().run(
        "kafka-console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "4", "--group", "theirs"
    )
    assert sorted(theirs.stdout.split()) == ["1", "2", "3", "4"]
    assert run("consume", "t", "-G", "g", "-c", "4").code == 0
    (described,) = json.loads(run("group", "describe", "g", "--json").out)
    assert sum(row["lag"] or 0 for row in described["partitions"]) == 0
    assert run("group", "reset-offsets", "g", "--to-earliest", "--execute").code == 0
    assert len(run("consume", "t", "-G", "g", "-e").out.split()) == 4
    assert run("group", "delete", "g", "theirs").code == 0
    assert run("topic", "alter", "t", "-p", "5").code == 0
    (topic,) = json.loads(run("topic", "describe", "t", "--sizes", "--json").out)
    assert (len(topic["partitions"]), len(topic["replicas"])) == (5, 5)
    assert run("topic", "delete", "t").code == 0


def test_a_share_group(run: Run, kafka: ApacheKafka) -> None:
    assert run("topic", "create", "jobs").code == 0
    with Client(kafka.bootstrap_servers) as client:
        alter_configs(client, ResourceType.GROUP, "workers", change={"share.auto.offset.reset": "earliest"})
    assert run("produce", "jobs", stdin=b"a\nb\nc\n").code == 0
    peeked = run("consume", "jobs", "--share", "workers", "--exit", "--release", "--json").out.splitlines()
    assert [(json.loads(line)["payload"], json.loads(line)["delivery_count"]) for line in peeked] == [
        ("a", 1),
        ("b", 1),
        ("c", 1),
    ]
    assert run("consume", "jobs", "--share", "workers", "-c", "1", "--reject") == (0, "a\n", "")
    assert run("consume", "jobs", "--share", "workers", "-c", "1") == (0, "b\n", "")
    assert run("consume", "jobs", "--share", "workers", "--exit").out == "c\n"
    assert run("consume", "jobs", "--share", "workers", "--exit").out == ""
    refused = run("consume", "missing", "--share", "workers")
    assert (refused.code, "topic 'missing'" in refused.err) == (1, True)


def test_the_state_of_a_cluster(run: Run) -> None:
    assert run("topic", "create", "s", "-p", "2").code == 0
    results: dict[str, Any] = {}

    def has_both() -> bool:
        ran = run("cluster", "status", "--json")
        results.update(json.loads(ran.out), code=ran.code)
        return {("s", 0), ("s", 1)} <= {(row["topic"], row["partition"]) for row in results["at_min_isr"]}

    wait_until(has_both, lambda: f"a broker that has heard of the new topic: {results}")
    assert (results["code"], results["healthy"], results["controller_id"]) == (0, True, 1)
    assert [(row["state"], len(row["directories"])) for row in results["brokers"]] == [("up", 1)]
    assert run("topic", "delete", "s").code == 0


def test_only_what_is_committed_is_seen_and_the_files_show_the_rest(run: Run, kafka: ApacheKafka) -> None:
    from confluent_kafka import Producer

    assert run("topic", "create", "x", "-p", "1").code == 0
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "id"})
    producer.init_transactions()
    for value, committed in (("kept", True), ("dropped", False), ("kept too", True)):
        producer.begin_transaction()
        producer.produce("x", value)
        producer.flush()
        (producer.commit_transaction if committed else producer.abort_transaction)()
    assert run("consume", "x", "-e").out == "kept\nkept too\n"
    assert run("consume", "x", "-e", "--uncommitted").out == "kept\ndropped\nkept too\n"

    data = kafka.data_directory
    rows = dump(run, data / "x-0")
    assert [row["control"] for row in rows if "control" in row and row["type"] == "record"] == [
        "commit",
        "abort",
        "commit",
    ]
    assert [(row["first_offset"], row["last_offset"]) for row in rows if row["type"] == "aborted_transaction"] == [
        (2, 3)
    ]
    states = [row for path in sorted(data.glob("__transaction_state-*")) for row in dump(run, path)]
    seen = [row["state"] for row in states if row.get("kind") == "transaction"]
    assert seen[0] == "Empty"
    assert {"Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"} <= set(seen)


def dump(run: Run, path: Path) -> list[dict[str, object]]:
    done = run("log", "dump", "-r", "--json", str(path))
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]
