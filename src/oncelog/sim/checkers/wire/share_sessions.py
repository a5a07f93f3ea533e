"""Share sessions as they show on the wire: which members fetch which partitions from which broker, on which connection.

A session may end earlier than a broker notices, never later: the rules that depend on it then say less.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.sim.checkers.wire.exchange import Exchange

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1


class ShareKey(NamedTuple):
    """A partition as one group sees it."""

    group: str
    topic_id: bytes
    partition: int


class SessionKey(NamedTuple):
    broker_id: int
    group: str
    member: str


@dataclass(slots=True)
class Session:
    opened_at: int
    """The index of the request that opened it."""
    partitions: dict[ShareKey, None] = field(default_factory=dict)
    # It belongs to one of them, and ends with that one.
    connections: set[Hashable] = field(default_factory=set)


# Called with the session that has ended, and True if its broker has no other of the group.
OnEnd = Callable[[SessionKey, Session, bool], None]


class Sessions:
    def __init__(self, on_end: OnEnd) -> None:
        self._on_end = on_end
        self._sessions: dict[SessionKey, Session] = {}

    def get(self, key: SessionKey) -> Session | None:
        return self._sessions.get(key)

    def fetch_requested(self, exchange: Exchange) -> Session | None:
        """The session after a ShareFetch; None after its last request."""
        request, key = exchange.request, key_of(exchange)
        if request.share_session_epoch == FINAL_EPOCH:
            self._end(key)
            return None
        session = self._sessions.get(key)
        if session is None or request.share_session_epoch == INITIAL_EPOCH:
            session = self._sessions[key] = Session(exchange.received_index)
        session.connections.add(exchange.connection)
        session.partitions.update(dict.fromkeys(keys_in(request.group_id, request.topics)))
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop(ShareKey(request.group_id, topic.topic_id, index), None)
        return session

    def acknowledge_requested(self, exchange: Exchange) -> None:
        key = key_of(exchange)
        if exchange.request.share_session_epoch == FINAL_EPOCH:
            self._end(key)
        elif key in self._sessions:
            self._sessions[key].connections.add(exchange.connection)

    def disconnected(self, connection: Hashable) -> None:
        for key in [key for key, session in self._sessions.items() if connection in session.connections]:
            self._end(key)

    def broker_died(self, broker_id: int) -> None:
        for key in [key for key in self._sessions if key.broker_id == broker_id]:
            self._end(key)

    def _end(self, key: SessionKey) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            is_last = not any(other[:2] == key[:2] for other in self._sessions)
            self._on_end(key, session, is_last)


def key_of(exchange: Exchange) -> SessionKey:
    request = exchange.request
    return SessionKey(exchange.broker_id, request.group_id, request.member_id)


def keys_in(group: str, topics: Any) -> Iterator[ShareKey]:
    for topic in topics:
        for partition in topic.partitions:
            yield ShareKey(group, topic.topic_id, partition.partition_index)
