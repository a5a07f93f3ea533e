"""Random histories of APIs 83 to 87 at an Apache Kafka broker and at our node: the same answers, the same records.

Ours runs in virtual time and memory. Times, and the topics' ids, are each broker's own and not compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from oncelog.base.ids import SHARE_GROUP_STATE, GroupId, LeaderEpoch, Offset, TopicId, uuid_text
from oncelog.core.share_state.model import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    StateReply,
    StateRequest,
    SummarizeState,
    WriteState,
)
from oncelog.handlers.share.state_messages import message_of, replies_in
from oncelog.records.batch import iter_headers
from oncelog.records.internal.share_state_records import (
    SnapshotValue,
    StateBatch,
    UpdateValue,
    decode_key,
    decode_value,
)
from oncelog.records.record import read_keys_and_values
from oncelog.storage.log.read import read_batches
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.peers.clients.sweep.wire import Wire
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic, log_of

SETTINGS: Final = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
VERSIONS: Final = {83: (0,), 84: (0,), 85: (0, 1), 86: (0,), 87: (0, 1)}
SHARE: Final = 2
TOPIC: Final = "histories"
PARTITIONS: Final = 2
MALFORMED: Final = (
    "",
    "g",
    "g:AAAAAAAAAAAAAAAAAAAAAA",
    "g:short:0",
    " :AAAAAAAAAAAAAAAAAAAAAA:0",
    "g:AAAAAAAAAAAAAAAAAAAAAA:x",
)
_LARGEST: Final = 1 << 20

Shown = dict[tuple[str, int], StateReply]
Row = tuple[str, str, int, Any]
Entry = tuple[type, str, int, bool, dict[str, Any]]
"""A kind of request, group, partition, whether the topic is known, and the request's other fields."""


class Kafka:
    """A running Apache Kafka with the settings above, and its topic."""

    def __init__(self, wire: Wire, data_directory: Path) -> None:
        self.wire = wire
        self._log = data_directory / f"{SHARE_GROUP_STATE}-0" / "00000000000000000000.log"
        self.topic_id = TopicId(self.wire.topic(TOPIC, PARTITIONS))

    def ask(self, message: Any, version: int) -> Any:
        return self.wire.call(message, version)

    def records(self) -> list[Row]:
        return list(_rows(self._log.read_bytes(), self.topic_id))


class Ours:
    """Our node, driven by hand."""

    def __init__(self) -> None:
        self.driver = Driver(SETTINGS)
        self._peer = self.driver.connect()
        create_topic(self._peer, TOPIC, PARTITIONS)
        self.topic_id: TopicId = self.driver.node.cluster.image.topics[TOPIC].topic_id  # type: ignore[index]

    def ask(self, message: Any, version: int) -> Any:
        return self._peer.ask(message, version)

    def records(self) -> list[Row]:
        log = log_of(self.driver, SHARE_GROUP_STATE)
        read = read_batches(log, Offset(0), max_bytes=1 << 24, isolation_read_committed=False, minimum_one=True)
        data = b"".join(piece.file.read(piece.position, piece.size_bytes) for piece in read.chunks)
        return list(_rows(data, self.topic_id))


def _rows(data: bytes, topic_id: TopicId) -> Iterator[Row]:
    for position, header in iter_headers(data):
        if header.is_control:
            continue
        for key, value in read_keys_and_values(data, position, header, _LARGEST):
            name = decode_key(key)
            assert not isinstance(name, tuple) or hasattr(name, "group"), name
            content = None if value is None else decode_value(name, value)  # type: ignore[arg-type]
            if isinstance(content, SnapshotValue):
                assert content.create_timestamp == content.write_timestamp > 0
                content = content._replace(create_timestamp=0, write_timestamp=0)
            assert content is None or isinstance(content, SnapshotValue | UpdateValue), content
            topic = TOPIC if name.topic_id == topic_id else "?"  # type: ignore[union-attr]
            yield type(name).__name__ + " " + topic, name.group, name.partition, content  # type: ignore[union-attr]


def find_coordinators(broker: Kafka | Ours, keys: list[str]) -> list[tuple[int, str | None]]:
    """The error and the message for each key."""
    answer = broker.ask(FindCoordinatorRequest(coordinator_keys=keys, key_type=SHARE), 6)
    return [(found.error_code, found.error_message) for found in answer.coordinators]


def key_of(broker: Kafka | Ours, group: str = "g", partition: int = 0, *, known: bool = True) -> ShareKey:
    return ShareKey(GroupId(group), broker.topic_id if known else TopicId(b"no such topic id"), partition)


class History:
    """The random choices of a seed; each step is one message, for whichever broker."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def step(self) -> tuple[int, list[Entry]]:
        """A message's version, as a number to take modulo the versions, and what it asks."""
        choice = self._random
        kind = choice.choices([InitializeState, ReadState, WriteState, DeleteState, SummarizeState], [3, 4, 12, 1, 3])[
            0
        ]
        group = choice.choice(["g", "h:1"])
        entries = []
        for _ in range(choice.choice([1, 1, 1, 2, 3])):
            partition = choice.choices([0, 1, -1, PARTITIONS], [10, 8, 1, 1])[0]
            entries.append((kind, group, partition, choice.random() > 0.03, self._fields(kind)))
        # Of one partition named twice, the order of the answers is a hash map's.
        return choice.randrange(2), list({(entry[2], entry[3]): entry for entry in entries}.values())

    def _fields(self, kind: type) -> dict[str, Any]:
        choice = self._random
        leader_epoch = LeaderEpoch(choice.choices([-1, 0, 1, 2, 3], [1, 6, 6, 2, 1])[0])
        state_epoch = choice.choices([-1, 0, 1, 2], [1, 8, 4, 1])[0]
        start = Offset(choice.choice([-1, 0, 0, 0, 5, 10, 20, 30]))
        if kind is InitializeState:
            return {"state_epoch": state_epoch, "start_offset": start}
        if kind in (ReadState, SummarizeState):
            return {"leader_epoch": leader_epoch}
        if kind is DeleteState:
            return {}
        batches = []
        for _ in range(choice.randrange(5)):
            first = choice.randrange(40)
            last = Offset(first + choice.choice([0, 0, 1, 4, 12]))
            batches.append(StateBatch(Offset(first), last, choice.choice([0, 2, 3, 4]), choice.randint(1, 4)))
        return {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start,
            "delivery_complete_count": choice.choice([-1, 0, 1, 7]),
            "batches": tuple(batches),
        }


def carry_out(broker: Kafka | Ours, version: int, entries: list[Entry]) -> Shown:
    """Send one message; the replies by topic and partition."""
    requests: list[StateRequest] = [
        kind(key=key_of(broker, group, partition, known=known), **fields)
        for kind, group, partition, known, fields in entries
    ]
    message = message_of(requests)
    versions = VERSIONS[message.API_KEY]
    answer = broker.ask(message, versions[version % len(versions)])
    return {
        (TOPIC if topic_id == broker.topic_id else uuid_text(topic_id), partition): reply
        for (topic_id, partition), reply in replies_in(type(requests[0]), answer).items()
    }


def compare(kafka: Kafka, ours: Ours, seed: int, steps: int) -> None:
    """Raises AssertionError, with the seed and the step, where an answer differs."""
    history = History(seed)
    for step in range(steps):
        version, entries = history.step()
        theirs, own = (carry_out(broker, version, entries) for broker in (kafka, ours))
        assert own == theirs, f"seed {seed}, step {step}: {entries}\n{own}\n{theirs}"


def clear(broker: Kafka | Ours) -> bool:
    """Forget the states, so that another history begins; False if the coordinator cannot yet."""
    replies: list[StateReply] = []
    for group in ("g", "h:1"):
        entries: list[Entry] = [(DeleteState, group, partition, True, {}) for partition in range(PARTITIONS)]
        replies += carry_out(broker, 0, entries).values()
    return not any(reply.error_code for reply in replies)
