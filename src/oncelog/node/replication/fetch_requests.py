"""A follower's side of its incremental fetch session with one leader (KIP-227): requests that name only what changed.

The session's state is what the leader will read by: what was wanted when the last request was sent. A request that is
not answered, or refused, ends it; the next one is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicId
from oncelog.core.sessions.fetch import INITIAL_EPOCH, next_epoch
from oncelog.core.sessions.fetch_cache import NO_SESSION
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from oncelog.wire.messages.fetch import ReplicaState as WireReplicaState

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig

Key = tuple[TopicId, int]
"""Topic id and partition."""

_LOST_SESSIONS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchPosition(NamedTuple):
    """The place in a log that a follower fetches from."""

    offset: int
    last_epoch: int
    """Leader epoch of the record before; −1: none."""
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    """The high watermark that the follower knows (KIP-1166): the leader answers at once where it knows a later one."""

    def differs_from(self, other: FetchPosition | None) -> bool:
        return other is None or self[:4] != other[:4]


class FetchRequests:
    """The fetch session of one follower with one leader, and its next request."""

    def __init__(self) -> None:
        self._positions: dict[Key, FetchPosition] = {}
        self._changed: dict[Key, None] = {}
        """Keys whose place is another than the leader knows, or that are not wanted any more."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self.sent: dict[Key, FetchPosition] = {}
        """The place of each partition as the leader knows it from the session."""

    def fetch_from(self, key: Key, place: FetchPosition) -> None:
        """Fetch a partition from ``place`` with the next request."""
        if place.differs_from(self._positions.get(key)):
            self._changed[key] = None
        self._positions[key] = place

    def stop_fetching(self, key: Key) -> None:
        """Leave a partition out, for a while or for good."""
        if self._positions.pop(key, None) is not None:
            self._changed[key] = None

    def is_empty(self) -> bool:
        return not self._positions

    def reset(self) -> None:
        """Begin a new session with the next request."""
        self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self.sent.clear()

    def answered(self, response: FetchResponse) -> bool:
        """Take in the head of an answer; False if the leader refused the session: begin a new one at once."""
        if response.error_code in _LOST_SESSIONS:
            self.reset()
            return False
        if response.error_code or response.session_id == NO_SESSION:
            self.reset_after_answer()
        else:
            self._session_id, self._epoch = response.session_id, next_epoch(self._epoch)
        return True

    def reset_after_answer(self) -> None:
        """Begin a new session, though this answer may still be read by what was sent."""
        self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH

    def next_request(self, broker_id: BrokerId, broker_epoch: int, config: BrokerConfig) -> FetchRequest:
        limit = int(config.get("replica.fetch.max.bytes"))
        request = FetchRequest(
            replica_id=broker_id,
            replica_state=WireReplicaState(replica_id=broker_id, replica_epoch=broker_epoch),
            max_wait_ms=int(config.get("replica.fetch.wait.max.ms")),
            min_bytes=int(config.get("replica.fetch.min.bytes")),
            max_bytes=int(config.get("replica.fetch.response.max.bytes")),
            session_id=self._session_id,
            session_epoch=self._epoch,
        )
        is_full = self._epoch == INITIAL_EPOCH
        if is_full:
            self.sent = dict(self._positions)
            asked = list(self._positions)
        else:
            asked = [key for key in self._changed if key in self._positions]
            gone = [key for key in self._changed if key not in self._positions and key in self.sent]
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in _by_topic(gone).items()
            ]
            for key in gone:
                del self.sent[key]
            self.sent.update((key, self._positions[key]) for key in asked)
        request.topics = [
            FetchTopic(
                topic_id=topic_id,
                partitions=[_partition(index, self._positions[topic_id, index], limit) for index in indexes],
            )
            for topic_id, indexes in _by_topic(asked).items()
        ]
        self._changed.clear()
        return request


def _by_topic(keys: list[Key]) -> dict[TopicId, list[int]]:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return topics


def _partition(index: int, place: FetchPosition, limit: int) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=place.leader_epoch,
        fetch_offset=place.offset,
        last_fetched_epoch=place.last_epoch,
        log_start_offset=place.log_start_offset,
        partition_max_bytes=limit,
        high_watermark=place.high_watermark,
    )
