"""The recorded answers: one JSON object a line, compressed; and how the broker was configured that gave them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.conformance.authorization.script import Answer
from tests.conformance.authorization.world import ADMIN

DATA: Final = Path(__file__).parent / "data" / "answers.xz"
PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.two.phase.commit.enable": "true",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
}
"""Of both brokers; User:ANONYMOUS is what Apache Kafka's broker is to its controller."""


class Recorded(NamedTuple):
    """One answer of Apache Kafka."""

    label: str
    response: bytes | None
    """None: it closed the connection."""


def save(answers: Iterable[Answer]) -> None:
    """Write the corpus."""
    with lzma.open(DATA, "wt", encoding="ascii", preset=9) as file:
        for answer in answers:
            response = None if answer.response is None else encoded(answer.response, answer.version).hex()
            file.write(json.dumps([answer.label, response]) + "\n")


def load() -> Iterator[Recorded]:
    """Read the corpus."""
    with lzma.open(DATA, "rt", encoding="ascii") as file:
        for line in file:
            label, response = json.loads(line)
            yield Recorded(label, None if response is None else bytes.fromhex(response))


def encoded(message: Any, version: int) -> bytes:
    """A message in a version."""
    return b"".join(bytes(chunk) for chunk in message.encode(version))
