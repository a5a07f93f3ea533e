"""A follower's incremental fetch session with one leader (KIP-227): requests name only the partitions that changed.

The leader reads by the positions as of the last request sent. An unanswered or refused request ends the session; the
next one is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicId, group_by_key
from oncelog.core.sessions.fetch import INITIAL_EPOCH, next_epoch
from oncelog.core.sessions.fetch_cache import NO_SESSION
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from oncelog.wire.messages.fetch import ReplicaState as WireReplicaState

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig

# Topic id and partition.
Key = tuple[TopicId, int]

_LOST_SESSIONS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchPosition(NamedTuple):
    offset: int
    last_epoch: int
    """Leader epoch of the preceding record; −1: none."""
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    """The follower's high watermark (KIP-1166): the leader answers at once if its own is higher."""

    def differs_from(self, other: FetchPosition | None) -> bool:
        return other is None or self[:4] != other[:4]


class FetchRequests:
    def __init__(self) -> None:
        self._positions: dict[Key, FetchPosition] = {}
        # Keys with another position than the leader knows, or no longer fetched.
        self._changed: dict[Key, None] = {}
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self.sent: dict[Key, FetchPosition] = {}
        """Positions by key, as the leader knows them from the session."""

    def fetch_from(self, key: Key, position: FetchPosition) -> None:
        """Fetch a partition from ``position`` with the next request."""
        if position.differs_from(self._positions.get(key)):
            self._changed[key] = None
        self._positions[key] = position

    def stop_fetching(self, key: Key) -> None:
        """Leave a partition out, for a while or for good."""
        if self._positions.pop(key, None) is not None:
            self._changed[key] = None

    def is_empty(self) -> bool:
        return not self._positions

    def reset(self) -> None:
        self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        self.sent.clear()

    def answered(self, response: FetchResponse) -> bool:
        """Handle the head of a response; False if the leader refused the session, so that a new one must begin."""
        if response.error_code in _LOST_SESSIONS:
            self.reset()
            return False
        if response.error_code or response.session_id == NO_SESSION:
            self.reset_after_answer()
        else:
            self._session_id, self._epoch = response.session_id, next_epoch(self._epoch)
        return True

    def reset_after_answer(self) -> None:
        """Begin a new session, but keep ``sent``: this response is still read by it."""
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
            requested = list(self._positions)
        else:
            requested = [key for key in self._changed if key in self._positions]
            gone = [key for key in self._changed if key not in self._positions and key in self.sent]
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in group_by_key(gone).items()
            ]
            for key in gone:
                del self.sent[key]
            self.sent.update((key, self._positions[key]) for key in requested)
        request.topics = [
            FetchTopic(
                topic_id=topic_id,
                partitions=[_partition(index, self._positions[topic_id, index], limit) for index in indexes],
            )
            for topic_id, indexes in group_by_key(requested).items()
        ]
        self._changed.clear()
        return request


def _partition(index: int, position: FetchPosition, limit: int) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.offset,
        last_fetched_epoch=position.last_epoch,
        log_start_offset=position.log_start_offset,
        partition_max_bytes=limit,
        high_watermark=position.high_watermark,
    )
