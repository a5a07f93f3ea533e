"""Apache Kafka's own TransactionalMessageCopier: the copier of its system tests, with random aborts, under fire."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.consistency.copying_client import COPY, GROUP, SOURCE
from tests.interop.consistency.reading import drain, fill
from tests.peers.apache_kafka import KafkaTools
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import HANG_S

pytestmark = [pytest.mark.slow, pytest.mark.java]

EACH = 1500
SOURCES = 2


class Copier:
    """One copier's process. Its progress is what it prints before every transaction."""

    def __init__(self, broker: OncelogServe, number: int, errors: Path, *flags: str) -> None:
        command = KafkaTools(broker.bootstrap_servers).command(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", broker.bootstrap_servers, "--consumer-group", GROUP),
            *("--input-topic", SOURCE, "--input-partition", str(number), "--output-topic", COPY),
            *("--transactional-id", f"java-{number}", "--transaction-size", "40", "--transaction-timeout", "10000"),
            *("--enable-random-aborts", *flags),
        )
        with errors.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def progress(self) -> Iterator[int]:
        """Records copied so far by this process, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield int(json.loads(line)["totalProcessed"])

    def reach(self, count: int) -> None:
        """Wait until it has copied so many, or ended."""
        for copied in self.progress():
            if copied >= count:
                return

    def finish(self) -> int:
        """Wait for its end; the exit code."""
        for _ in self.progress():
            pass
        return self.process.wait(HANG_S)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OncelogServe]:
    with OncelogServe(tmp_path, properties={"group.initial.rebalance.delay.ms": "0"}) as serving:
        fill(serving.bootstrap_servers, SOURCES, EACH)
        yield serving


def copied(broker: OncelogServe) -> list[list[str]]:
    """The records that a reader at read_committed finds in each partition, in order."""
    return [[seen.value for seen in drain(broker.bootstrap_servers, index)] for index in range(SOURCES)]


EVERYTHING = [[f"{index}:{number}" for number in range(EACH)] for index in range(SOURCES)]


def test_everything_is_copied_once_though_copier_and_broker_are_killed(broker: OncelogServe, tmp_path: Path) -> None:
    errors = tmp_path / "copiers.log"
    first, second = Copier(broker, 0, errors), Copier(broker, 1, errors)
    try:
        first.reach(EACH // 5)
        broker.kill()
        broker.start()
        first.reach(2 * EACH // 5)
        first.kill()
        first = Copier(broker, 0, errors)  # it fences its predecessor, and aborts what that left open
        assert (first.finish(), second.finish()) == (0, 0), errors.read_text()
    finally:
        first.kill()
        second.kill()
    assert copied(broker) == EVERYTHING


def test_a_group_copies_everything_once_though_the_broker_is_killed(broker: OncelogServe, tmp_path: Path) -> None:
    """The second member joins while the first copies: the generation fences what the first sends after that."""
    errors = tmp_path / "copiers.log"
    flags = ("--group-mode", "--use-group-metadata")
    first, second = Copier(broker, 0, errors, *flags), Copier(broker, 1, errors, *flags)
    try:
        second.reach(1)
        broker.kill()
        broker.start()
        assert (first.finish(), second.finish()) == (0, 0), errors.read_text()
    finally:
        first.kill()
        second.kill()
    assert copied(broker) == EVERYTHING
