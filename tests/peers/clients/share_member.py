"""A member of a share group (KIP-932) as a process of its own, which does as it is told and may be killed.

`ShareMember(kind, bootstrap, group, topic)`, where ``kind`` is ``java`` (KafkaShareConsumer), ``confluent``
(librdkafka's ShareConsumer), ``go`` (franz-go) or ``oncelog``. A command is a line; its answer is a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import AcknowledgeType, KafkaException
from confluent_kafka import ShareConsumer as ConfluentShareConsumer

from oncelog.client.blocking import Acknowledge, Client, ShareConsumer, ShareRecord, ShareSettings
from tests.peers.apache_kafka import KafkaTools
from tests.peers.clients.foreign import GO_CLIENTS
from tests.peers.jars import KAFKA_VERSION
from tests.peers.reaper import watch
from tests.peers.supply import ROOT
from tests.waiting import wait_until

KINDS: Final = ("java", "confluent", "go")
"""Clients of others."""
_JAVA: Final = ROOT / "tests" / "peers" / "clients" / "ShareMember.java"
BATCH_OPTIMIZED: Final = "batch-optimized"
_POLL_MS: Final = 500


class Delivered(NamedTuple):
    """A record, and how often it was delivered, this time included."""

    partition: int
    offset: int
    deliveries: int
    value: str


class ShareMember:
    """A member in explicit mode unless ``mode`` is ``implicit``. ``acquire`` may be ``record-limit``, but not for
    librdkafka, which has no such setting, and no renewal."""

    def __init__(
        self,
        kind: str,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        mode: str = "explicit",
        acquire: str = BATCH_OPTIMIZED,
        most: int = 500,
        version: str = KAFKA_VERSION,
    ) -> None:
        arguments = (group, topic, mode, acquire, str(most))
        if kind == "confluent" and acquire != BATCH_OPTIMIZED:
            raise ValueError("librdkafka acquires whole batches")
        match kind:
            case "java":
                command = KafkaTools(bootstrap, version).command(str(_JAVA), bootstrap, *arguments)
            case "go":
                command = [str(GO_CLIENTS.home() / "go-clients"), bootstrap, "share", *arguments]
            case _:
                command = [sys.executable, "-m", __name__, kind, bootstrap, *arguments]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        watch(self._child.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def poll(self, wait_ms: int = _POLL_MS) -> list[Delivered]:
        """The records that come within the time."""
        return [Delivered(*record) for record in self._ask("poll", wait_ms)]

    def take(self, count: int) -> list[Delivered]:
        """Poll until so many records have come."""
        taken: list[Delivered] = []

        def is_enough() -> bool:
            taken.extend(self.poll())
            return len(taken) >= count

        wait_until(is_enough, f"{count} records")
        return taken

    def acknowledge(self, kind: str, *records: Delivered) -> None:
        """Accept, release, reject or renew records, to be sent with the next commit or poll."""
        for record in records:
            self._ask("acknowledge", kind, record.partition, record.offset)

    def commit(self) -> dict[int, str | None]:
        """Send what was acknowledged; the first error of each partition, or None."""
        results: dict[int, str | None] = {}
        for partition, error in self._ask("commit"):
            results[partition] = results.get(partition) or error
        return results

    def leave(self) -> None:
        """Close the consumer: what it holds is released."""
        self._ask("close")

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()
        self._child.communicate()

    def strike(self) -> None:
        """SIGKILL from another thread than the one that commands: its next answer raises RuntimeError."""
        self._child.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._child.send_signal(signal.SIGCONT)

    def _ask(self, *words: object) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(" ".join(map(str, words)) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the member ended by itself: {self._child.wait()}")
        answer = json.loads(line, strict=False)  # Java's writes control characters as they are
        if "error" in answer:
            raise ShareFailure(answer["error"])
        return answer["ok"]


class ShareFailure(Exception):
    """The client refused, or failed, in its own words."""


class _Confluent:
    """The process's side, for librdkafka."""

    def __init__(self, bootstrap: str, group: str, topic: str, mode: str, _acquire: str, most: str) -> None:
        self._consumer = ConfluentShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": mode,
                "max.poll.records": int(most),
                "fetch.wait.max.ms": 50,
            }
        )
        self._topic = topic
        self._consumer.subscribe([topic])

    def answer(self, words: list[str]) -> Any:
        """Do what a line says."""
        match words:
            case ["poll", wait_ms]:
                return [self._delivered(message) for message in self._consumer.poll(timeout=int(wait_ms) / 1000)]
            case ["acknowledge", kind, partition, offset]:
                number = AcknowledgeType[kind.upper()]
                return self._consumer.acknowledge_offset(self._topic, int(partition), int(offset), number)
            case ["commit"]:
                results = self._consumer.commit_sync(timeout=60)
                return [[each.partition, error and str(error)] for each, error in results.items()]
        return self._consumer.close()

    @staticmethod
    def _delivered(message: Any) -> list[Any]:
        if message.error():
            raise KafkaException(message.error())
        return [message.partition(), message.offset(), message.delivery_count(), message.value().decode()]


class _Oncelog:
    """The process's side, for ours."""

    def __init__(self, bootstrap: str, group: str, topic: str, mode: str, acquire: str, most: str) -> None:
        settings = ShareSettings(
            acknowledgement="explicit" if mode == "explicit" else "implicit",
            acquire="record_limit" if acquire == "record-limit" else "batch_optimized",
            max_records=int(most),
            max_wait_ms=50,
        )
        self._consumer = ShareConsumer(Client(bootstrap), group, [topic], settings=settings)
        self._records: dict[tuple[str, str], ShareRecord] = {}

    def answer(self, words: list[str]) -> Any:
        """Do what a line says."""
        match words:
            case ["poll", wait_ms]:
                return [self._delivered(record) for record in self._consumer.poll(int(wait_ms))]
            case ["acknowledge", kind, partition, offset]:
                return self._consumer.acknowledge(self._records[partition, offset], Acknowledge[kind.upper()])
            case ["commit"]:
                results = self._consumer.commit()
                return [[each.partition.partition, each.error and str(each.error)] for each in results]
        return self._consumer.close()

    def _delivered(self, record: ShareRecord) -> list[Any]:
        self._records[str(record.partition), str(record.offset)] = record
        return [record.partition, record.offset, record.delivery_count, (record.value or b"").decode()]


def main(arguments: list[str]) -> None:
    """Do as told until there is nobody left."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the client prints is none of the conversation
    kind, *settings = arguments
    member = _Oncelog(*settings) if kind == "oncelog" else _Confluent(*settings)
    for line in sys.stdin:
        try:
            answer = {"ok": member.answer(line.split())}
        except Exception as failure:  # noqa: BLE001 – whatever it is, the test reads it
            answer = {"error": repr(failure)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
