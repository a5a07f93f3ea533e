"""Apache Kafka's Java tools (and in them the Java clients), each run as its own JVM."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients.scenario import CODECS, Scenario, expect, expect_equal
from tests.waiting import HANG_S

PATIENT: Final = ("--timeout-ms", str(1000 * HANG_S))
"""For the console consumer, which ends when no record has come for so long: its first one may take a JVM long."""


def _run(tools: KafkaTools, tool: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
    run = tools.run(tool, *arguments, stdin=stdin)
    expect_equal(run.returncode, code, f"exit code of {tool} {' '.join(arguments)}: {run.stdout} {run.stderr}")
    return run.stdout


def _file(directory: str, content: object) -> str:
    path = Path(directory) / "input.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def topics(bootstrap: str) -> None:
    """kafka-topics, kafka-configs: create, describe, alter, delete, and refusals."""
    tools = KafkaTools(bootstrap)
    _run(tools, "kafka-topics", "--create", "--topic", "jt-one", "--partitions", "2", "--config", "retention.ms=5000")
    refused = _run(tools, "kafka-topics", "--create", "--topic", "jt-one", code=1)
    expect("Topic 'jt-one' already exists" in refused, f"the reason: {refused}")
    bad = _run(tools, "kafka-topics", "--create", "--topic", "jt-two", "--replication-factor", "3", code=1)
    expect("only 1 broker(s) are registered" in bad, f"the reason: {bad}")
    _run(tools, "kafka-topics", "--alter", "--topic", "jt-one", "--partitions", "3")
    described = _run(tools, "kafka-topics", "--describe", "--topic", "jt-one")
    expect("PartitionCount: 3" in described and "retention.ms=5000" in described, described)
    configs = ("kafka-configs", "--entity-type", "topics", "--entity-name", "jt-one")
    _run(tools, *configs, "--alter", "--add-config", "cleanup.policy=compact,segment.bytes=2000000")
    _run(tools, *configs, "--alter", "--delete-config", "retention.ms")
    every = _run(tools, *configs, "--describe", "--all")
    expect("cleanup.policy=compact sensitive=false" in every, every)
    expect("retention.ms=604800000 sensitive=false" in every, every)
    _run(tools, *configs, "--alter", "--add-config", "segment.bytes=-1", code=1)
    brokers = _run(tools, "kafka-configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    expect("num.partitions=1" in brokers, brokers)
    _run(tools, "kafka-topics", "--delete", "--topic", "jt-one")
    expect("jt-one" not in _run(tools, "kafka-topics", "--list"), "the topic is gone")


def quotas(bootstrap: str) -> None:
    """kafka-configs: quotas of users, client ids, both and addresses; set, shown, taken away, refused."""
    tools = KafkaTools(bootstrap)
    alice = ("--entity-type", "users", "--entity-name", "jq alice")
    default_client = ("--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")

    def configs(*arguments: str, code: int = 0) -> str:
        return _run(tools, "kafka-configs", *arguments, code=code)

    configs("--alter", *alice, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    configs("--alter", *alice, *default_client, "--add-config", "consumer_byte_rate=2048")
    configs("--alter", *default_client, "--add-config", "controller_mutation_rate=1000.5")
    configs("--alter", *address, "--add-config", "connection_creation_rate=100")
    configs("--alter", *address, "--add-config", "producer_byte_rate=100", code=1)
    shown = configs("--describe", "--entity-type", "users")
    expect("'jq alice'" in shown and "request_percentage=12.5" in shown, shown)
    shown = configs("--describe", *alice, *default_client)
    expect("consumer_byte_rate=2048.0" in shown, shown)
    expect("controller_mutation_rate=1000.5" in configs("--describe", *default_client), "the default client id")
    expect("connection_creation_rate=100.0" in configs("--describe", "--entity-type", "ips"), "the address")
    configs("--alter", *alice, "--delete-config", "producer_byte_rate")
    shown = configs("--describe", *alice)
    expect("producer_byte_rate" not in shown and "request_percentage=12.5" in shown, shown)


def cluster(bootstrap: str) -> None:
    """The tools that look at brokers: versions, features, log directories, cluster id, elections."""
    tools = KafkaTools(bootstrap)
    _run(tools, "kafka-topics", "--create", "--topic", "jc-one", "--partitions", "2")
    versions = _run(tools, "kafka-broker-api-versions")
    expect("Produce(0): 0 to 13" in versions, versions)
    expect("Cluster ID:" in _run(tools, "kafka-cluster", "cluster-id"), "a cluster id")
    _run(tools, "kafka-cluster", "list-endpoints")
    expect("metadata.version" in _run(tools, "kafka-features", "describe"), "features")
    expect('"jc-one' not in _run(tools, "kafka-log-dirs", "--describe", "--topic-list", "none"), "no topic")
    expect("jc-one-0" in _run(tools, "kafka-log-dirs", "--describe"), "a partition")
    election = ("--election-type", "preferred", "--topic", "jc-one", "--partition", "0")
    expect("0" in _run(tools, "kafka-leader-election", *election), "an election that is not needed")
    tools.run("kafka-groups", "--list")
    expect("No partition reassignments found" in _run(tools, "kafka-reassign-partitions", "--list"), "no reassignments")
    refused = _run(tools, "kafka-acls", "--list", code=1)
    expect("SecurityDisabledException: No Authorizer is configured on the broker" in refused, refused)


def records(bootstrap: str) -> None:
    """Console producer and consumer with every codec; offsets; deleting records."""
    tools = KafkaTools(bootstrap)
    _run(tools, "kafka-topics", "--create", "--topic", "jr-one", "--partitions", "1")
    for codec in CODECS:
        lines = "".join(f"key:{codec}-{number}\n" for number in range(20))
        keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        _run(tools, "kafka-console-producer", "--topic", "jr-one", "--compression-codec", codec, *keyed, stdin=lines)
    total = 20 * len(CODECS)
    consumed = _run(
        tools,
        "kafka-console-consumer",
        *("--topic", "jr-one", "--from-beginning", "--max-messages", str(total), *PATIENT),
        *("--formatter-property", "print.offset=true"),
    )
    expect_equal(consumed.splitlines()[0], "Offset:0\tnone-0", "first line")
    expect_equal(len(consumed.splitlines()), total, "lines")
    expect_equal(_run(tools, "kafka-get-offsets", "--topic", "jr-one").strip(), f"jr-one:0:{total}", "latest")
    for time, offset in (("earliest", 0), ("latest", total), ("max-timestamp", total - 1)):
        strip = _run(tools, "kafka-get-offsets", "--topic", "jr-one", "--time", time).strip()
        expect(time == "max-timestamp" or strip == f"jr-one:0:{offset}", f"{time}: {strip}")
    with tempfile.TemporaryDirectory() as directory:
        deletion = {"partitions": [{"topic": "jr-one", "partition": 0, "offset": 7}], "version": 1}
        deleted = _run(tools, "kafka-delete-records", "--offset-json-file", _file(directory, deletion))
    expect("low_watermark: 7" in deleted, deleted)
    earliest = _run(tools, "kafka-get-offsets", "--topic", "jr-one", "--time", "earliest").strip()
    expect_equal(earliest, "jr-one:0:7", "earliest")


def groups(bootstrap: str) -> None:
    """kafka-consumer-groups: list, describe, reset and delete."""
    tools = KafkaTools(bootstrap)
    _run(tools, "kafka-topics", "--create", "--topic", "jg-one", "--partitions", "2")
    _run(tools, "kafka-console-producer", "--topic", "jg-one", stdin="a\nb\nc\n")
    consume = ("--topic", "jg-one", "--group", "jg-group", "--from-beginning", "--max-messages", "3")
    _run(tools, "kafka-console-consumer", *consume, *PATIENT)
    group = ("--group", "jg-group")
    expect("jg-group" in _run(tools, "kafka-consumer-groups", "--list", "--state"), "the group is listed")
    expect("jg-one" in _run(tools, "kafka-consumer-groups", "--describe", *group), "its offsets")
    expect("Empty" in _run(tools, "kafka-consumer-groups", "--describe", "--state", *group), "its state")
    _run(tools, "kafka-consumer-groups", "--describe", "--members", "--verbose", *group)
    reset = ("--reset-offsets", "--topic", "jg-one", "--to-earliest", "--execute")
    expect("jg-one" in _run(tools, "kafka-consumer-groups", *group, *reset), "offsets that were reset")
    _run(tools, "kafka-consumer-groups", *group, "--delete-offsets", "--topic", "jg-one")
    expect("successful" in _run(tools, "kafka-consumer-groups", *group, "--delete"), "deletion")
    gone = tools.run("kafka-consumer-groups", *group, "--delete")
    expect("does not exist" in gone.stdout + gone.stderr or gone.returncode, f"{gone.stdout} {gone.stderr}")


def verifiable(bootstrap: str) -> None:
    """The verifiable producer's acknowledgements are what the verifiable consumer reads."""
    tools = KafkaTools(bootstrap)
    _run(tools, "kafka-topics", "--create", "--topic", "jv-one", "--partitions", "3")
    produced = _run(tools, "kafka-verifiable-producer", "--topic", "jv-one", "--max-messages", "500", "--acks", "-1")
    summary = json.loads(produced.splitlines()[-1])
    expect_equal((summary["sent"], summary["acked"]), (500, 500), "acknowledged")
    group = ("--group-id", "jv-group", "--max-messages", "500", "--reset-policy", "earliest")
    consumed = _run(tools, "kafka-verifiable-consumer", "--topic", "jv-one", *group)
    counts = [
        event["count"] for line in consumed.splitlines() if (event := json.loads(line))["name"] == "records_consumed"
    ]
    expect_equal(sum(counts), 500, "consumed")


def performance(bootstrap: str) -> None:
    """The performance tools run to their end."""
    tools = KafkaTools(bootstrap)
    _run(tools, "kafka-topics", "--create", "--topic", "jp-one", "--partitions", "1")
    size = ("--topic", "jp-one", "--num-records", "300", "--record-size", "100", "--throughput", "-1")
    properties = f"bootstrap.servers={bootstrap}"
    produced = tools.run_bare("kafka-producer-perf-test", *size, "--producer-props", properties, "compression.type=lz4")
    expect("300 records sent" in produced.stdout, produced.stdout + produced.stderr)
    consume = ("--topic", "jp-one", "--num-records", "300", "--timeout", "15000")
    consumed = tools.run("kafka-consumer-perf-test", *consume)
    expect(", 300, " in consumed.stdout, consumed.stdout + consumed.stderr)


SCENARIOS: Final[dict[str, Scenario]] = {
    "topics": topics,
    "quotas": quotas,
    "cluster": cluster,
    "records": records,
    "groups": groups,
    "verifiable": verifiable,
    "performance": performance,
}
