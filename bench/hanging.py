"""The finders of hanging transactions side by side: each a process with its start-up, on the same cluster."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.admin.lab import ByHand, at
from tests.peers.apache_kafka import ApacheKafka, KafkaTools

from bench.peers import Broker, create_topics
from bench.report import Figures
from oncelog.client.blocking import Client

PARTITIONS_A_TOPIC: Final = 100
FINDING_GOALS: Final = {"on oncelog, s": "≤ 1 ×", "on Apache Kafka, s": "≤ 1 ×"}
_BROKER_ID: Final = "1"


def fill(broker: Broker, partitions: int, transactions: int) -> None:
    """Make the partitions, and open so many transactions, each in two of them."""
    with Client(broker.bootstrap_servers) as client:
        ByHand(client, "first")  # makes the transaction log, while a broker is not busy with the partitions
    topics = create_topics(broker, max(1, partitions // PARTITIONS_A_TOPIC), PARTITIONS_A_TOPIC, "scan")
    places = [at(topic, index) for index in range(PARTITIONS_A_TOPIC) for topic in topics]
    with Client(broker.bootstrap_servers) as client:
        client.metadata(topics)
        for number in range(transactions):
            first, second = places[2 * number % len(places)], places[(2 * number + 1) % len(places)]
            ByHand(client, f"open-{number}", timeout_ms=900_000).begin(first, second)


def ours_s(broker: Broker, transactions: int) -> tuple[float, float]:
    """Seconds of ``oncelog txn find-hanging``, and of the same with ``--all``; it has to have seen them all."""
    program = str(Path(sys.executable).with_name("oncelog"))
    command = [program, "txn", "find-hanging", "--json", "--bootstrap-servers", broker.bootstrap_servers]
    plain_s, result = _run(command)
    if json.loads(result):
        raise RuntimeError("something was called hanging that is live")
    every_s, result = _run([*command, "--all"])
    rows = json.loads(result)
    if len(rows) != 2 * transactions or any(row["verdict"] != "live" or not row["transactional_id"] for row in rows):
        raise RuntimeError(f"{len(rows)} open transactions were found, {2 * transactions} are there")
    return plain_s, every_s


def theirs_s(broker: Broker) -> tuple[float, float]:
    """Seconds of Apache Kafka's, as it is, and with every open transaction looked up (no least age)."""
    tools = KafkaTools(broker.bootstrap_servers)
    command = tools.command("kafka-transactions", "--bootstrap-server", broker.bootstrap_servers, "find-hanging")
    command += ["--broker-id", broker_id(broker)]
    plain_s, _ = _run(command)
    every_s, _ = _run([*command, "--max-transaction-timeout", "0"])
    return plain_s, every_s


def broker_id(broker: Broker) -> str:
    """Of the only broker."""
    if isinstance(broker, ApacheKafka):
        return _BROKER_ID
    with Client(broker.bootstrap_servers) as client:
        client.refresh()
        return str(next(iter(client.view.brokers)))


def figures(took: tuple[float, float], name: str) -> Figures:
    """By the cluster they were taken on."""
    return {f"on {name}, s": took[0], f"on {name}, every open one looked up, s": took[1]}


def _run(command: list[str]) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-500:]}")
    return elapsed, done.stdout


@contextlib.contextmanager
def filled(broker: Broker, partitions: int, transactions: int) -> Iterator[Broker]:
    """A running broker with all of it."""
    with broker:
        fill(broker, partitions, transactions)
        yield broker
