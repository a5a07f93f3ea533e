"""A group of processes, ours and Java's, on one topic: who has read what, and who owns what by the tree.

Each prints every record that it has read as ``topic partition offset value``, a line at a time.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from oncelog.legacy.zookeeper_groups.connection import open_session
from oncelog.legacy.zookeeper_groups.machine.nodes import TOPICS, owners_path, read_topic
from oncelog.legacy.zookeeper_groups.stored_offsets import all_offsets, write_offsets
from tests.peers.old_kafka import OldProcess
from tests.peers.reaper import watch
from tests.waiting import HANG_S, wait_until

SOURCE: Final = Path(__file__).resolve().parents[2] / "peers" / "clients" / "OldConsumer.java"
_KEYS: Final = {
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "60000",
    "auto.commit.interval.ms": "200",
    "auto.offset.reset": "smallest",
}
_FORMAT: Final = r"%t %p %o %s\n"


class Consumer(Protocol):
    """A process that reads as a member of the group."""

    def lines(self) -> list[str]:
        """The lines that it has read so far."""

    def freeze(self) -> None:
        """Stop it where it stands."""

    def thaw(self) -> None:
        """Let it go on."""

    def stop(self) -> int:
        """End it in order; its exit code."""

    def kill(self) -> None:
        """End it at once."""

    @property
    def running(self) -> bool:
        """True while it has not ended."""


class OurConsumer:
    """``oncelog consume --zookeeper`` as a process."""

    def __init__(self, group: Group, directory: Path, name: str, keys: Mapping[str, str]) -> None:
        self._out, self._err = directory / f"{name}.out", directory / f"{name}.err"
        oncelog = str(Path(sys.executable).with_name("oncelog"))
        place = ("--zookeeper", group.connect, "--group", group.name)
        command = [oncelog, "consume", group.topic, *place, "-f", _FORMAT]
        for key, value in {**_KEYS, **keys}.items():
            command += ["-X", f"{key}={value}"]
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        watch(self._child.pid)

    @property
    def running(self) -> bool:
        """True while it has not ended."""
        return self._child.poll() is None

    def lines(self) -> list[str]:
        """The lines that it has read so far."""
        return self._out.read_text().split("\n")[:-1]

    def errors(self) -> str:
        """Its remarks."""
        return self._err.read_text()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._child.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._child.terminate()
        return self._child.wait(HANG_S)

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()
        self._child.wait(HANG_S)


class Group:
    """The consumers of a group that reads one topic, and the tree. All are ended with it."""

    def __init__(self, connect: str, name: str, topic: str, directory: Path) -> None:
        self.connect = connect
        self.name = name
        self.topic = topic
        self.consumers: dict[str, Consumer] = {}
        self._directory = directory
        self._session = open_session(connect, 10_000, 60_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self.consumers.values():
            consumer.kill()
        self._session.stop()

    def join(self, name: str, release: str = "ours", **keys: str) -> Consumer:
        """Start a consumer of a release, or of ours, under ``consumer.id=name``; further keys with ``_`` for ``.``."""
        more = {"consumer.id": name, **{key.replace("_", "."): value for key, value in keys.items()}}
        if release == "ours":
            self.consumers[name] = OurConsumer(self, self._directory, name, more)
        else:
            properties = self._directory / f"{name}.properties"
            values = {"zookeeper.connect": self.connect, "group.id": self.name, **_KEYS, **more}
            properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            self.consumers[name] = OldProcess(
                release, str(SOURCE), str(properties), "topics", self.topic, directory=self._directory, name=name
            )
        return self.consumers[name]

    def owners(self) -> dict[int, str]:
        """The consumer that owns each partition, by the tree."""
        paths = [
            f"{owners_path(self.name, self.topic)}/{name}"
            for name in self._session.children(owners_path(self.name, self.topic))
        ]
        result = {int(path.rpartition("/")[2]): node for path, node in self._session.get_all(paths)}
        return {
            partition: node[0].decode().removeprefix(f"{self.name}_").rpartition("-")[0]
            for partition, node in sorted(result.items())
            if node is not None
        }

    def wait_for(self, *names: str, partitions: int) -> None:
        """Wait until these consumers own the partitions as the range algorithm says."""
        each, extra = divmod(partitions, len(names))
        expected = [name for place, name in enumerate(sorted(names)) for _ in range(each + (place < extra))]
        wanted = dict(enumerate(expected))
        wait_until(lambda: self.owners() == wanted, lambda: f"owners {wanted}: {self.owners()}\n{self.errors()}")

    def begin_at_zero(self) -> None:
        """Give the group an offset in every partition: then no consumer begins at an end."""
        node = self._session.get(f"{TOPICS}/{self.topic}")
        assert node is not None
        write_offsets(self._session, self.name, dict.fromkeys(read_topic(self.topic, node[0]), 0))

    def offsets(self) -> dict[int, int]:
        """The group's offsets in ZooKeeper."""
        return {partition.partition: offset for partition, offset in all_offsets(self._session, self.name).items()}

    def values(self) -> Counter[str]:
        """The values read by all, each with the number of times."""
        return Counter(line.split()[3] for consumer in self.consumers.values() for line in consumer.lines())

    def wait_read(self, expected: set[str]) -> None:
        """Wait until all of ``expected`` was read by somebody."""
        wait_until(lambda: expected <= self.values().keys(), lambda: f"{len(expected - self.values().keys())} records")

    def errors(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"{path.name}: {path.read_text('utf-8', 'replace')[-1500:]}"
            for path in sorted(self._directory.glob("*.err"))
        )
