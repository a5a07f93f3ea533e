"""Requests about a partition at brokers that do not lead it, and with leader epochs that are old or to come.

``l-here`` is led by broker 1, followed by broker 2, and broker 3 has nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.wire.messages.delete_records import DeleteRecordsRequest
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.list_offsets import ListOffsetsRequest
from oncelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from oncelog.wire.messages.produce import ProduceRequest
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.conversations.elections import put_first
from tests.conformance.golden.cluster.requests import (
    PREFERRED,
    delete_records,
    describe_producers,
    elect,
    end_of_epoch,
    fetch,
    list_offsets,
    produce,
)
from tests.peers.clients.sweep.wire import NOWHERE, versions

_EPOCHS: Final = (-1, 0, 1, 2, 3, 9)


def _topic(talk: Conversation, name: str) -> bytes:
    """A topic with two records, which its follower has."""
    topic_id = talk.topic(name, {0: (1, 2)})
    talk.ask(1, produce(name, topic_id, b"first", b"second"), 9)
    until_followed(talk, name, topic_id, 2, 2)
    return topic_id


def until_followed(talk: Conversation, name: str, topic_id: bytes, broker_id: int, high_watermark: int) -> None:
    """Wait until a replica knows that all before an offset is committed."""
    talk.until(
        broker_id,
        fetch(name, topic_id),
        12,
        lambda answer: answer.responses[0].partitions[0].high_watermark == high_watermark,
        f"has the high watermark {high_watermark} of {name}",
    )


def _produce(talk: Conversation) -> None:
    topic_id = talk.topic("l-here", {0: (1, 2)})
    for version in versions(ProduceRequest):
        for acks in (-1, 1):
            for broker_id in talk.running:
                talk.ask(broker_id, produce("l-here", topic_id, acks=acks), version)
        talk.ask_each(produce("l-here", topic_id, partition=7), version)
        talk.ask_each(produce("l-nowhere", NOWHERE), version)
        both = produce("l-here", topic_id)
        both.topic_data += produce("l-nowhere", NOWHERE).topic_data
        talk.ask_each(both, version)
    for broker_id in talk.running:
        talk.at(broker_id).send(produce("l-here", topic_id, acks=0), 9)
        # An error of acks=0 closes the connection. The log's end would vary: the record is replicated by then or not.
        talk.ask(broker_id, list_offsets("l-here", -2), 7)


def _fetch(talk: Conversation) -> None:
    topic_id = _topic(talk, "l-here")
    for version in versions(FetchRequest):
        for offset in (0, 1, 2, 5, -1):
            talk.ask_each(fetch("l-here", topic_id, fetch_offset=offset), version)
        talk.ask_each(fetch("l-here", topic_id, whole={"isolation_level": 1}), version)
        talk.ask_each(fetch("l-here", topic_id, partition=7), version)
        talk.ask_each(fetch("l-nowhere", NOWHERE), version)


def _others(talk: Conversation) -> None:
    topic_id = _topic(talk, "l-here")
    for version in versions(ListOffsetsRequest):
        for timestamp in (-1, -2, -3, -4, -5, -6, 0, 2**60):
            talk.ask_each(list_offsets("l-here", timestamp), version)
        talk.ask_each(list_offsets("l-here", partition=7), version)
        talk.ask_each(list_offsets("l-here", isolation_level=1), version)
        for timestamp in (-1, -2, 0):
            talk.ask_each(list_offsets("l-here", timestamp, replica_id=-2), version)
    for version in versions(OffsetForLeaderEpochRequest):
        for leader_epoch in (-1, 0, 5):
            for replica_id in (-1, -2, 2):
                talk.ask_each(end_of_epoch("l-here", leader_epoch, replica_id=replica_id), version)
        talk.ask_each(end_of_epoch("l-here", 0, partition=7), version)
    talk.ask_each(describe_producers("l-here", 0, 7), 0)
    talk.ask_each(describe_producers("l-nowhere"), 0)
    for version in versions(DeleteRecordsRequest):
        for broker_id in (3, 2, 1):
            talk.ask(broker_id, delete_records("l-here", 1), version)
        talk.ask_each(delete_records("l-here", 1, partition=7), version)
        talk.ask_each(delete_records("l-here", 9), version)
    talk.until(
        2,
        fetch("l-here", topic_id, fetch_offset=2),
        12,
        lambda answer: answer.responses[0].partitions[0].log_start_offset == 1,
        "has deleted the first record",
    )
    talk.ask_each(fetch("l-here", topic_id, fetch_offset=0), 17)
    talk.ask_each(list_offsets("l-here", -2, replica_id=-2), 7)


def _epochs(talk: Conversation) -> None:
    """Records of three epochs: broker 1 leads in the first and the third, broker 2 in the second."""
    topic_id = _topic(talk, "l-epochs")
    talk.stop(2)
    talk.until_partition("l-epochs", leader=1, isr=(1,))
    talk.start(2)
    talk.until_partition("l-epochs", leader=1, isr=(1, 2))
    _ask_epochs(talk, topic_id)
    _move_to_other_and_back(talk, topic_id)
    _ask_epochs(talk, topic_id)


def _move_to_other_and_back(talk: Conversation, topic_id: bytes) -> None:
    put_first(talk, "l-epochs", (2, 1))
    talk.ask(1, elect(PREFERRED, ("l-epochs", 0)), 2)
    talk.until_partition("l-epochs", leader=2)
    talk.ask(2, produce("l-epochs", topic_id, b"of broker 2"), 9)
    until_followed(talk, "l-epochs", topic_id, 1, 3)
    put_first(talk, "l-epochs", (1, 2))
    talk.ask(3, elect(PREFERRED, ("l-epochs", 0)), 2)
    talk.until_partition("l-epochs", leader=1)
    talk.ask(1, produce("l-epochs", topic_id, b"of broker 1"), 9)
    until_followed(talk, "l-epochs", topic_id, 2, 4)


def _ask_epochs(talk: Conversation, topic_id: bytes) -> None:
    for version in (4, *range(9, 19)):
        for epoch in _EPOCHS if version >= 9 else (-1,):
            talk.ask_each(fetch("l-epochs", topic_id, current_leader_epoch=epoch), version)
        for last in _EPOCHS if version >= 12 else ():
            for offset in (1, 2, 3, 4):
                talk.ask_each(fetch("l-epochs", topic_id, fetch_offset=offset, last_fetched_epoch=last), version)
    for version in (4, 5, 11):
        for epoch in _EPOCHS:
            talk.ask_each(list_offsets("l-epochs", epoch=epoch), version)
            talk.ask_each(list_offsets("l-epochs", 0, epoch=epoch), version)
            talk.ask_each(list_offsets("l-epochs", -1, epoch=epoch, replica_id=-2), version)
    for version in versions(OffsetForLeaderEpochRequest):
        for leader_epoch in _EPOCHS:
            for epoch in _EPOCHS:
                talk.ask_each(end_of_epoch("l-epochs", leader_epoch, epoch=epoch), version)


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "produce-elsewhere": _produce,
    "fetch-elsewhere": _fetch,
    "offsets-elsewhere": _others,
    "leader-epochs": _epochs,
}
