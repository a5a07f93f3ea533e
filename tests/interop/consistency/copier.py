"""One transactional copier as a process that may be killed: consumes, transforms, produces, with offsets inside.

It says what it does before it does it, line by line in its journal, which outlives a kill. Every value it writes names
the record it was made from and the attempt: ``partition:number/instance.attempt``.

`python -m tests.interop.consistency.copier BOOTSTRAP PARTITION COUNT INSTANCE JOURNAL SEED` copies one partition; exit
code 0: all copied, 3: fenced or failed, start me again.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

SOURCE: Final = "source"
COPY: Final = "copy"
GROUP: Final = "copiers"
COPY_PARTITIONS: Final = 3
START_AGAIN: Final = 3
_LARGEST: Final = 100
_ABORT_SHARE: Final = 0.1
_TIMEOUT_S: Final = 30.0
QUICK: Final = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    # librdkafka 2.16 may hang when its only broker dies during a transaction and it bootstraps anew: the handle of the
    # broker never terminates, and the request for the coordinator that waits for it is never retried.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class Journal:
    """Lines of JSON, each written at once: a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, **entry: object) -> None:
        """Write one line, with the time."""
        os.write(self._file, json.dumps({"at": time.monotonic_ns(), **entry}).encode() + b"\n")


class Copier:
    """One instance: from where the group stands to the end of its partition."""

    def __init__(
        self, bootstrap: str, partition: int, count: int, instance: int, journal: Journal, chance: random.Random
    ) -> None:
        self._partition = partition
        self._count = count
        self._instance = f"{partition}-{instance}"
        self._journal = journal
        self._chance = chance
        self._attempt = 0
        self._position = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                **QUICK,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"copier-{partition}",
                "transaction.timeout.ms": 20_000,
                "linger.ms": 1,
                **QUICK,
            }
        )

    def run(self) -> None:
        """Copy all that is left."""
        _retried(lambda: self._producer.init_transactions(_TIMEOUT_S))
        self._rewind()
        while self._position < self._count:
            messages = self._consumer.consume(self._chance.randint(1, _LARGEST), 0.05)
            good = [message for message in messages if message.error() is None]
            if good:
                self._copy(good)
        self._consumer.close()

    def _rewind(self) -> None:
        """To what the group has committed."""
        (found,) = _retried(lambda: self._consumer.committed([TopicPartition(SOURCE, self._partition)], _TIMEOUT_S))
        if found.error is not None:
            raise KafkaException(found.error)
        self._position = max(found.offset, 0)
        self._consumer.assign([TopicPartition(SOURCE, self._partition, self._position)])

    def _copy(self, messages: list[Message]) -> None:
        self._attempt += 1
        name = f"{self._instance}.{self._attempt}"
        following = (messages[-1].offset() or 0) + 1
        writes = [
            (self._chance.randrange(COPY_PARTITIONS), f"{(message.value() or b'').decode()}/{name}")
            for message in messages
        ]
        self._journal.note(begin=name, writes=writes, source=self._partition, following=following)
        try:
            self._transact(name, writes, following)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self._end(name, commit=False)

    def _transact(self, name: str, writes: list[tuple[int, str]], following: int) -> None:
        self._producer.begin_transaction()
        for partition, value in writes:
            self._producer.produce(COPY, value, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
        offsets = [TopicPartition(SOURCE, self._partition, following)]
        group = self._consumer.consumer_group_metadata()
        _retried(lambda: self._producer.send_offsets_to_transaction(offsets, group, _TIMEOUT_S))
        commit = self._chance.random() >= _ABORT_SHARE
        self._end(name, commit=commit)
        if commit:
            self._position = following

    def _end(self, name: str, *, commit: bool) -> None:
        if not commit:
            self._journal.note(ending=name, commit=False)
            _retried(lambda: self._producer.abort_transaction(_TIMEOUT_S))
            self._journal.note(ended=name, commit=False)
            self._rewind()
            return
        _retried(lambda: self._producer.flush(_TIMEOUT_S))  # the offsets of all records are in the journal first
        self._journal.note(ending=name, commit=True)
        _retried(lambda: self._producer.commit_transaction(_TIMEOUT_S))
        self._journal.note(ended=name, commit=True)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._journal.note(wrote=(message.value() or b"").decode(), offset=message.offset())


def _retried(call: Callable[[], Any]) -> Any:
    """Call until it does not fail retriably."""
    deadline = time.monotonic() + 2 * _TIMEOUT_S
    while True:
        try:
            return call()
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def main() -> int:
    """One instance."""
    bootstrap, partition, count, instance, journal, seed = sys.argv[1:]
    chance = random.Random(f"{seed}/{partition}/{instance}")
    notes = Journal(Path(journal))
    try:
        Copier(bootstrap, int(partition), int(count), int(instance), notes, chance).run()
    except KafkaException as failure:
        notes.note(failed=str(failure))
        return START_AGAIN
    return 0


if __name__ == "__main__":
    sys.exit(main())
