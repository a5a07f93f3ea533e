"""A 0.7 log is imported by processes that are killed, over and over, while an old broker writes: each message once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, read_fetched
from oncelog.client.machine.positions import FetchSettings
from tests.old_logs import GZIP, SNAPPY, file_path, message, message_set
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.oncelog_serve import OncelogServe

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PARTITIONS: Final = 3
FILE_BYTES: Final = 40_000


class OldBroker:
    """Writes a log as a 0.7 broker does: whole entries and torn ones, rolling files, and deletes from the front."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self._random = random.Random(seed)
        self._directory = directory
        self._starts: dict[int, list[int]] = {number: [0] for number in range(PARTITIONS)}
        self._torn: dict[int, bytes] = {}
        for number in range(PARTITIONS):
            (directory / f"log-{number}").mkdir(parents=True)
            self._path(number).touch()

    def _path(self, number: int) -> Path:
        return file_path(self._directory / f"log-{number}", self._starts[number][-1])

    def write(self, entries: int) -> None:
        """Append entries to all partitions; the last of them may be torn until the next call."""
        for number in range(PARTITIONS):
            for _ in range(entries):
                self._append(number)

    def finish(self) -> None:
        """Write what is torn."""
        for number, rest in self._torn.items():
            with self._path(number).open("ab") as file:
                file.write(rest)
        self._torn.clear()

    def _append(self, number: int) -> None:
        with self._path(number).open("ab") as file:
            file.write(self._torn.pop(number, b""))
            size = file.tell()
        if size > FILE_BYTES:
            self._starts[number].append(self._starts[number][-1] + size)
            self._path(number).touch()
        some = [self._message(number) for _ in range(self._random.choice([1, 1, 1, 5]))]
        entries = [message(item, magic=self._random.randrange(2)) for item in some]
        if len(entries) > 1:
            entries = [message_set(entries, self._random.choice([GZIP, SNAPPY]))]
        cut = self._random.choice([None, None, None, self._random.randrange(1, len(entries[0]))])
        with self._path(number).open("ab") as file:
            file.write(entries[0][:cut])
        if cut is not None:
            self._torn[number] = entries[0][cut:]

    def _message(self, number: int) -> bytes:
        one = b"%d:%d:%s" % (number, len(self.sent[number]), b"x" * self._random.randrange(200))
        self.sent[number].append(one)
        return one


def start(directory: Path, servers: str, *options: str) -> subprocess.Popen[str]:
    """An import as a process of its own."""
    command = [str(Path(sys.executable).with_name("oncelog")), "log", "import", str(directory), "--to", "log", "--json"]
    command += ["--transaction-bytes", "30000", "--timestamps", "none", "--bootstrap-servers", servers, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stored(servers: str) -> dict[int, list[bytes]]:
    """The values that read_committed consumers see, by partition."""
    results: dict[int, list[bytes]] = {}
    with Client(servers) as client:
        for number in range(PARTITIONS):
            partition = TopicPartition(TopicName("log"), number)
            end = client.list_offsets({partition: -1}, read_committed=True)
            results[number] = [
                record.value or b""
                for fetched in client.fetch(
                    {partition: 0},
                    until={partition: end[partition].offset},
                    settings=FetchSettings(read_committed=True),
                )
                for record in read_fetched(fetched, read_committed=True)
            ]
    return results


def kill_and_follow(servers: str, directory: Path, seed: int, kills: int) -> None:
    """Kill imports after a few of their transactions while the log grows; then let one come to the end."""
    chance = random.Random(seed)
    old = OldBroker(directory, seed)
    old.write(300)
    for _ in range(kills):
        process = start(directory, servers, "--follow")
        for _ in range(chance.randrange(1, 6)):
            old.write(20)
            _next_progress(process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    old.finish()
    last = start(directory, servers)
    out, err = last.communicate()
    assert last.returncode == 0, err
    assert stored(servers) == dict(old.sent)
    again = start(directory, servers)
    out, err = again.communicate()
    assert json.loads(out.splitlines()[-1])["messages"] == 0, err
    assert stored(servers) == dict(old.sent)


def _next_progress(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    row = json.loads(process.stdout.readline())
    assert row["type"] == "progress", (row, process.communicate())


def test_killed_imports_into_oncelog(tmp_path: Path) -> None:
    with OncelogServe(tmp_path / "broker") as broker:
        kill_and_follow(broker.bootstrap_servers, tmp_path / "old", seed=7, kills=4)


def test_two_runs_at_once_do_no_harm(tmp_path: Path) -> None:
    old = OldBroker(tmp_path / "old", 3)
    old.write(400)
    old.finish()
    with OncelogServe(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        first = start(tmp_path / "old", servers)
        _next_progress(first)
        second = start(tmp_path / "old", servers)
        ended = {item: item.communicate() for item in (second, first)}
        assert second.returncode == 0, ended[second][1]
        assert first.returncode in (0, 1)
        assert stored(servers) == dict(old.sent)


@pytest.mark.java
def test_killed_imports_into_apache_kafka(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "kafka") as kafka:
        kill_and_follow(kafka.bootstrap_servers, tmp_path / "old", seed=11, kills=6)
