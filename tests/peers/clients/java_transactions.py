"""Apache Kafka's Java producer with Transactions V2, and the tools that look into transactions."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Producer

from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients.confluent import TIMEOUT_S, make_topic
from tests.peers.clients.java import PATIENT
from tests.peers.clients.scenario import Scenario, expect, expect_equal


def _run(tools: KafkaTools, tool: str, *arguments: str) -> str:
    run = tools.run(tool, *arguments)
    expect_equal(run.returncode, 0, f"exit code of {tool} {' '.join(arguments)}: {run.stdout} {run.stderr}")
    return run.stdout


def producer(bootstrap: str) -> None:
    """The Java producer's transactions, one after the other, are all there for those who read what is committed."""
    tools = KafkaTools(bootstrap)
    make_topic(bootstrap, "jx-one", 2)
    sent = tools.run_bare(
        "kafka-producer-perf-test",
        *("--topic", "jx-one", "--num-records", "200", "--record-size", "50", "--throughput", "1000"),
        *("--transactional-id", "jx-perf", "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={bootstrap}"),
    )
    expect("200 records sent" in sent.stdout, sent.stdout + sent.stderr)
    consumed = _run(
        tools,
        "kafka-console-consumer",
        *("--topic", "jx-one", "--from-beginning", "--max-messages", "200", *PATIENT),
        *("--isolation-level", "read_committed"),
    )
    expect_equal(len(consumed.splitlines()), 200, "lines")
    described = _run(tools, "kafka-transactions", "describe", "--transactional-id", "jx-perf")
    expect("CompleteCommit" in described, described)


def look(bootstrap: str) -> None:
    """kafka-transactions: list, describe, producers; an open transaction is found and aborted by an administrator."""
    tools = KafkaTools(bootstrap)
    make_topic(bootstrap, "jx-open")
    # Open for as long as the JVMs of the tools take.
    longest = {"transaction.timeout.ms": 900_000}
    client = Producer({"bootstrap.servers": bootstrap, "transactional.id": "jx-open", "linger.ms": 5, **longest})
    client.init_transactions(TIMEOUT_S)
    client.begin_transaction()
    client.produce("jx-open", b"v", partition=0, timestamp=1000)
    client.flush(TIMEOUT_S)
    listed = _run(tools, "kafka-transactions", "list")
    expect("jx-open" in listed and "Ongoing" in listed, listed)
    filtered = _run(tools, "kafka-transactions", "list", "--transactional-id-pattern", "jx-o.*")
    expect("jx-open" in filtered, filtered)
    none = _run(tools, "kafka-transactions", "list", "--transactional-id-pattern", "other.*")
    expect("jx-open" not in none, none)
    described = _run(tools, "kafka-transactions", "describe", "--transactional-id", "jx-open")
    expect("jx-open-0" in described, described)
    partition = ("--topic", "jx-open", "--partition", "0")
    producers = _run(tools, "kafka-transactions", "describe-producers", *partition)
    expect(producers.splitlines()[-1].split()[-1] == "0", f"the start offset: {producers}")
    _run(tools, "kafka-transactions", "abort", *partition, "--start-offset", "0")
    producers = _run(tools, "kafka-transactions", "describe-producers", *partition)
    expect(producers.splitlines()[-1].split()[-1] == "None", f"the start offset: {producers}")
    committed = ("--topic", "jx-open", "--time", "latest")
    expect_equal(_run(tools, "kafka-get-offsets", *committed).strip(), "jx-open:0:2", "the end, with the marker")


def feature(bootstrap: str) -> None:
    """kafka-features moves transaction.version back and forth; the producer follows."""
    tools = KafkaTools(bootstrap)
    make_topic(bootstrap, "jx-feature")
    for command, level in (("downgrade", 0), ("upgrade", 1), ("upgrade", 2)):
        _run(tools, "kafka-features", command, "--feature", f"transaction.version={level}")
        sent = tools.run_bare(
            "kafka-producer-perf-test",
            *("--topic", "jx-feature", "--num-records", "20", "--record-size", "50", "--throughput", "1000"),
            *("--transactional-id", f"jx-feature-{level}", "--transaction-duration-ms", "5"),
            *("--producer-props", f"bootstrap.servers={bootstrap}"),
        )
        expect("20 records sent" in sent.stdout, sent.stdout + sent.stderr)
    consume = ("--topic", "jx-feature", "--from-beginning", "--max-messages", "60", *PATIENT)
    consumed = _run(tools, "kafka-console-consumer", *consume, "--isolation-level", "read_committed")
    expect_equal(len(consumed.splitlines()), 60, "lines")


SCENARIOS: Final[dict[str, Scenario]] = {
    "transactions-producer": producer,
    "transactions-tools": look,
    "transactions-feature": feature,
}
