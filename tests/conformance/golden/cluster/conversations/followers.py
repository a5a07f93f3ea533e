"""Fetches from followers (KIP-392), as a follower by somebody who is none, and in sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog.wire.messages.fetch import FetchRequest, ReplicaState
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.conversations.leadership import until_followed
from tests.conformance.golden.cluster.requests import delete_records, fetch, produce
from tests.peers.clients.sweep.wire import versions

_RACKS: Final = ("", "rack-1", "rack-2", "rack-3", "rack-9")
_REPLICA_STATE_SINCE: Final = 15


def _topic(talk: Conversation, name: str, *replicas: int) -> bytes:
    """A topic with four records, of which all replicas know."""
    topic_id = talk.topic(name, {0: replicas})
    talk.ask(replicas[0], produce(name, topic_id, b"first", b"second"), 9)
    talk.ask(replicas[0], produce(name, topic_id, b"third", b"fourth"), 9)
    for replica in replicas:
        until_followed(talk, name, topic_id, replica, 4)
    return topic_id


def _racks(talk: Conversation) -> None:
    """A consumer names its rack: the leader sends it to the replica there, from version 11 on."""
    topic_id = _topic(talk, "f-racks", 1, 2)
    for version in versions(FetchRequest):
        for rack in _RACKS if version >= 11 else ("",):
            for offset in (0, 3, 4):
                talk.ask_each(fetch("f-racks", topic_id, whole={"rack_id": rack}, fetch_offset=offset), version)
    talk.ask(1, fetch("f-racks", topic_id, whole={"rack_id": "rack-2"}, fetch_offset=9), 17)
    talk.ask(1, fetch("f-racks", topic_id, whole={"rack_id": "rack-2"}, current_leader_epoch=7), 17)
    talk.stop(2)
    talk.until_partition("f-racks", leader=1, isr=(1,))
    talk.ask(1, fetch("f-racks", topic_id, whole={"rack_id": "rack-2"}), 17)
    talk.start(2)
    talk.until_partition("f-racks", leader=1, isr=(1, 2))
    until_followed(talk, "f-racks", topic_id, 2, 4)
    _until_preferred(talk, topic_id, 2)
    talk.ask(1, fetch("f-racks", topic_id, whole={"rack_id": "rack-2"}), 17)


def _until_preferred(talk: Conversation, topic_id: bytes, replica: int) -> None:
    talk.until(
        1,
        fetch("f-racks", topic_id, whole={"rack_id": f"rack-{replica}"}),
        12,
        lambda answer: answer.responses[0].partitions[0].preferred_read_replica == replica,
        f"sends consumers to broker {replica}",
    )


def _offsets(talk: Conversation) -> None:
    """Offsets that a follower has, has not any more, and has not yet."""
    topic_id = _topic(talk, "f-offsets", 1, 2, 3)
    talk.ask(1, delete_records("f-offsets", 2), 2)
    for replica in (2, 3):
        talk.until(
            replica,
            fetch("f-offsets", topic_id, fetch_offset=4),
            12,
            lambda answer: answer.responses[0].partitions[0].log_start_offset == 2,
            "has deleted two records",
        )
    for version in (4, 10, 11, 12, 13, 16, 18):
        for offset in (-1, 0, 1, 2, 3, 4, 5, 100):
            talk.ask_each(fetch("f-offsets", topic_id, fetch_offset=offset), version)
        for size in (0, 1, 100):
            talk.ask_each(fetch("f-offsets", topic_id, fetch_offset=2, partition_max_bytes=size), version)
            talk.ask_each(fetch("f-offsets", topic_id, whole={"max_bytes": size}, fetch_offset=2), version)
        if version >= 12:
            for epoch in (0, 1, 5):
                fetched = fetch("f-offsets", topic_id, fetch_offset=3, last_fetched_epoch=epoch)
                talk.ask_each(fetched, version)


def _as_replica(talk: Conversation) -> None:
    """Fetches as a replica by nobody, by a broker without a replica, and in an epoch that nobody has.

    A right one is not asked for: the leader would take it for the follower that it is.
    """
    topic_id = _topic(talk, "f-replica", 1, 2)
    for version in versions(FetchRequest):
        for replica in (3, 9):
            for offset in (0, 4):
                talk.ask_each(_by(replica, topic_id, version, fetch_offset=offset), version)
            talk.ask(1, _by(replica, topic_id, version, current_leader_epoch=0), version)
            talk.ask(1, _by(replica, topic_id, version, current_leader_epoch=5), version)
        if version >= _REPLICA_STATE_SINCE:
            for epoch in (-1, 0):
                talk.ask(1, _by(3, topic_id, version, replica_epoch=epoch), version)


def _by(replica: int, topic_id: bytes, version: int, replica_epoch: int = -1, **fields: Any) -> FetchRequest:
    whole: dict[str, Any] = {"replica_id": replica}
    if version >= _REPLICA_STATE_SINCE:
        whole = {"replica_state": ReplicaState(replica_id=replica, replica_epoch=replica_epoch)}
    return fetch("f-replica", topic_id, whole=whole, **fields)


def _sessions(talk: Conversation) -> None:
    """Sessions with each broker: those of others are unknown, and a session ends with its broker."""
    topic_id = _topic(talk, "f-session", 1, 2)
    for version in (7, 11, 12, 13, 16, 18):
        opened = {}
        for broker_id in talk.running:
            answer = talk.ask(broker_id, fetch("f-session", topic_id, whole={"session_epoch": 0}), version)
            opened[broker_id] = answer.session_id
        for broker_id, session_id in opened.items():
            known = {"session_id": session_id, "session_epoch": 1}
            nothing = fetch("f-session", topic_id, whole=known)
            nothing.topics.clear()
            talk.ask(broker_id, nothing, version)
    known = {"session_id": opened[2], "session_epoch": 2}
    talk.stop(2)
    talk.start(2)
    talk.until_partition("f-session", leader=1, isr=(1, 2))
    talk.ask(2, fetch("f-session", topic_id, whole=known), 18)


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "racks": _racks,
    "offsets-at-followers": _offsets,
    "fetch-as-replica": _as_replica,
    "fetch-sessions": _sessions,
}
