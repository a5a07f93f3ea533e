"""A session at a terminal: tools run one after the other, and the transcript of what they have printed.

What differs from run to run alone (ports, ids of topics, directories, moments) is replaced in the transcript.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from oncelog.admin.cluster_status import ClusterStatus
from oncelog.client.blocking import Client, Producer
from tests.peers.apache_kafka import KafkaTools
from tests.waiting import wait_until

_MOMENTS: Final = re.compile(r"\b1[789]\d{11}\b")
_TOPIC_IDS: Final = re.compile(r"TopicId: [\w-]{22}")
_ADDRESSES: Final = re.compile(r"127\.0\.0\.1:(\d+)")
_SIZES: Final = re.compile(r'"size":\d+')
_ANY_BROKER: Final = re.compile(r"(?<=request sent to broker )\d")
_COORDINATOR: Final = re.compile(r"host:\d(\s+)\(\d\)")
"""Of a group: whoever leads its partition of ``__consumer_offsets`` after the kills before."""
_LOG_DIRECTORIES: Final = re.compile(r'"logDir":"[^"]*"')
_REPLICA_DIRECTORIES: Final = re.compile(r',"log_dirs":\[[^]]*]')
_IN_SYNC: Final = re.compile(r"(?<=Isr: )[\d,]+")
_NOISE: Final = re.compile(r"^\s+at .*\n|^SLF4J: .*\n|^(?:\[.*?\] )?(?:WARN|ERROR|INFO) .*\n", re.M)


class Brokers(Protocol):
    """Three brokers, Apache Kafka's or ours."""

    @property
    def bootstrap_servers(self) -> str:
        """Of all brokers."""

    def start(self, broker_ids: Iterable[int]) -> None:
        """Start those that do not run."""

    def kill(self, broker_ids: Iterable[int]) -> None:
        """SIGKILL."""

    def status(self) -> ClusterStatus | None:
        """The cluster as it sees itself; None while nobody answers."""

    def wait_healthy(self) -> None:
        """Until all brokers are up and all replicas in sync."""


class Session:
    """Runs tools against three brokers, the first of which is always up."""

    def __init__(self, brokers: Brokers, directory: Path) -> None:
        self.brokers = brokers
        self.directory = directory
        self.transcript: list[str] = []
        addresses = brokers.bootstrap_servers.split(",")
        self.tools = KafkaTools(addresses[0])
        self._ports = {address.rpartition(":")[2]: number for number, address in enumerate(addresses, 1)}

    def title(self, text: str) -> None:
        """Begin a part of the transcript."""
        self.transcript.append(f"\n## {text}\n")

    def create(self, topic: str, placed: str, **config: str) -> None:
        """A topic with its replicas where they are said to be."""
        more = [word for key, value in config.items() for word in ("--config", f"{key.replace('_', '.')}={value}")]
        self.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", placed, *more)

    def run(self, tool: str, *arguments: str, stdin: str = "", keep: str = "", columns: Collection[str] = ()) -> str:
        """Run a tool and write down what it prints; ``keep``: only the lines in which this pattern is found;
        ``columns``: those of a table whose cells are left to chance, and its lines in order."""
        done = self.tools.run(tool, *arguments, stdin=stdin)
        printed = self._plain(done.stdout) + self._plain(done.stderr)
        if columns:
            printed = without_columns(printed, columns)
        if keep:
            printed = "".join(line for line in printed.splitlines(keepends=True) if re.search(keep, line))
        shown = " ".join(self._plain(argument) for argument in arguments)
        code = f"(exit code {done.returncode})\n" if done.returncode else ""
        self.transcript.append(f"$ {tool} {shown}\n{printed.rstrip()}\n{code}")
        return done.stdout

    def file(self, name: str, content: object) -> str:
        """A file of JSON for a tool; its path."""
        path = self.directory / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    def plan(self, name: str, **replicas: list[int]) -> str:
        """A plan for kafka-reassign-partitions, by topic and partition: ``moved_0=[1, 2]``; its path."""
        partitions = []
        for place, brokers in replicas.items():
            topic, _, number = place.rpartition("_")
            partitions.append({"topic": topic, "partition": int(number), "replicas": brokers})
        return self.file(name, {"version": 1, "partitions": partitions})

    def produce(self, topic: str, counts: Mapping[int, int], size: int = 5, *, one_by_one: bool = False) -> None:
        """Write records to partitions, all of one moment: which is the latest of them is not left to chance.
        ``one_by_one``: a batch each."""
        moment_ms = time.time_ns() // 1_000_000
        with Client(self.brokers.bootstrap_servers) as client, Producer(client) as producer:
            for partition, count in counts.items():
                for number in range(count):
                    producer.send(topic, (b"v%04d" % number).ljust(size), partition=partition, timestamp_ms=moment_ms)
                    if one_by_one:
                        producer.flush()
                producer.flush()

    def until(self, text: str, condition: object) -> None:
        """Wait for what the cluster says of itself."""
        assert callable(condition)

        def holds() -> bool:
            status = self.brokers.status()
            return status is not None and bool(condition(status))

        wait_until(holds, text, poll_s=0.1)

    def _plain(self, text: str) -> str:
        text = _NOISE.sub("", text)
        text = _ADDRESSES.sub(lambda found: f"host:{self._ports.get(found[1], found[1])}", text)
        text = _TOPIC_IDS.sub("TopicId: ID", text)
        text = _LOG_DIRECTORIES.sub('"logDir":"DIR"', text)
        text = _ANY_BROKER.sub("N", _SIZES.sub('"size":N', text))
        text = _COORDINATOR.sub(r"host:N\1(N)", text).replace(str(self.directory), "DIR")
        return without_chance(_MOMENTS.sub("MOMENT", text))


def without_chance(text: str) -> str:
    """A text without what depends on where directories are, and with the members of in-sync sets in order."""
    text = _REPLICA_DIRECTORIES.sub("", text)
    return _IN_SYNC.sub(lambda found: ",".join(sorted(found[0].split(","), key=int)), text)


def without_columns(text: str, columns: Collection[str]) -> str:
    """A table without the cells of some columns: one space between cells, lines and lists in cells in order. Other
    texts stay as they are."""
    heading, *lines = text.splitlines() or [""]
    names = heading.split()
    if not set(names) & set(columns):
        return text
    rows = []
    for line in filter(str.strip, lines):
        cells = line.split()
        shown = [
            "*" if name in columns and cell != "None" else ",".join(sorted(cell.split(",")))
            for name, cell in zip(names, cells, strict=False)
        ]
        rows.append(" ".join(shown))
    return "\n".join([" ".join(names), *sorted(rows)]) + "\n"
