"""Share sessions (KIP-932): the partitions that a member of a share group fetches from this broker, by request epoch.

A request with epoch 0 opens the member's session, in place of a former one, and requests with epochs 1, 2, … 2³¹−1, 1,
… continue it; they add and forget partitions. Epoch −1 is the last. ShareFetch and ShareAcknowledge share the epochs.
The rules:

1. A session belongs to the connection that opened it, and ends with that connection: the records of its member are
   released.
2. An answer has the partitions with records, an error, or an outcome of acknowledgements, and those that the request
   has added.
3. A partition that returned records moves to the end of the order.
4. A partition that a request names only to acknowledge records joins the session as any other, as in Apache Kafka; a
   request that acknowledges and forgets a partition leaves it out.
5. A request that is repeated on another connection takes the session over. The first one acquires nothing more, and is
   refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicId
from oncelog.base.units import INT32_MAX, MIB

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
PARTITION_BYTES: Final = 200
"""Memory of a partition in a session, measured."""
MAX_BYTES: Final = 24 * MIB
"""For the partitions of all sessions together, with those of ended ones until their records are released."""
_MAX_PARTITIONS: Final = MAX_BYTES // PARTITION_BYTES
# As many as a broker leads. An answer with all of them is made at once.
_MAX_SESSION_PARTITIONS: Final = 10_000

PartitionKey = tuple[TopicId, int]


class SessionKey(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class ShareSession:
    """A member's partitions in the order of reading; ``epoch`` is that of the next request."""

    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: dict[PartitionKey, bool], connection_id: int) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions = partitions
        """Each with True if the next answer must have it."""

    def must_answer(self, partition: PartitionKey, *, has_records: bool, has_error: bool) -> bool:
        """True if an answer has the partition; records that it is sent."""
        due = self.partitions.get(partition)
        if due is None:
            return True  # forgotten while its request waited
        if has_records:
            del self.partitions[partition]
        if has_records or has_error or due:
            # After an error the next success is always included.
            self.partitions[partition] = has_error
            return True
        return False


class Begun(NamedTuple):
    """The begin of a request: its session and partitions, or the error to answer."""

    error_code: ErrorCode
    session: ShareSession | None = None
    partitions: tuple[PartitionKey, ...] = ()
    epoch: int = INITIAL_EPOCH
    """The request's."""
    added: Collection[PartitionKey] = ()
    """The partitions that the request has added to the session: all of them if it opens it."""
    connection_id: int = -1
    """The session's then: a member may send its next request on any connection."""


class ShareSessions:
    """``most`` is ``group.share.max.share.sessions``; ``displaced`` is called when a request takes a session over, or
    opens another in its place: an earlier request may still wait. ``releasing`` tells how many partitions of ended
    sessions are left to release."""

    def __init__(
        self,
        most: int,
        displaced: Callable[[ShareSession], object] = lambda _session: None,
        releasing: Callable[[], int] = lambda: 0,
    ) -> None:
        self._most = most
        self._displaced = displaced
        self._releasing = releasing
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}
        self._by_group: dict[GroupId, int] = {}
        self.partition_count = 0
        self.evictions = 0
        """Sessions that ended with their connection."""

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        requested: Iterable[PartitionKey],
        forgotten: Iterable[PartitionKey],
        connection_id: int,
        *,
        acknowledges: bool,
    ) -> Begun:
        """Begin a ShareFetch that ``acknowledges`` records or not. A last request has no partitions to fetch."""
        if epoch == FINAL_EPOCH:
            session = self._sessions.get(key)
            error = ErrorCode.SHARE_SESSION_NOT_FOUND if session is None else ErrorCode.NONE
            return Begun(error, session, epoch=epoch)
        if epoch == INITIAL_EPOCH:
            return self._open(key, requested, connection_id, acknowledges=acknowledges)
        session = self._sessions.get(key)
        if session is None:
            return Begun(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if not self._continues(session, epoch, connection_id):
            return Begun(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        added = {partition: True for partition in requested if partition not in session.partitions}
        if not self._update(session, added, forgotten):
            # The sessions would outgrow their bound: the member starts over, with fewer partitions or later.
            return Begun(ErrorCode.SHARE_SESSION_NOT_FOUND)
        session.epoch = next_epoch(epoch)
        return Begun(ErrorCode.NONE, session, tuple(session.partitions), epoch, added, session.connection_id)

    def acknowledge(self, key: SessionKey, epoch: int, connection_id: int) -> ErrorCode:
        """Begin a ShareAcknowledge. A session cannot open with one."""
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return ErrorCode.NONE
        if not self._continues(session, epoch, connection_id):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = next_epoch(epoch)
        return ErrorCode.NONE

    def is_current(self, begun: Begun) -> bool:
        """True if no later request of the member has arrived, nor the same again on another connection, and its session
        is still open."""
        session = begun.session
        return (
            session is not None
            and self._sessions.get(session.key) is session
            and session.epoch == next_epoch(begun.epoch)
            and session.connection_id == begun.connection_id
        )

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def remove(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self.partition_count -= len(session.partitions)
        keys = self._by_connection[session.connection_id]
        del keys[key]
        if not keys:
            del self._by_connection[session.connection_id]
        self._by_group[key.group_id] -= 1
        if not self._by_group[key.group_id]:
            del self._by_group[key.group_id]
        return session

    def close(self, connection_id: int) -> list[ShareSession]:
        """End the sessions of a closed connection, and return them."""
        ended = [self._sessions[key] for key in self._by_connection.get(connection_id, ())]
        for session in ended:
            self.remove(session.key)
        self.evictions += len(ended)
        return ended

    def clear(self) -> None:
        for key in list(self._sessions):
            self.remove(key)

    def has_group(self, group_id: GroupId) -> bool:
        """True if a member of the group has a session here."""
        return group_id in self._by_group

    def _open(
        self, key: SessionKey, requested: Iterable[PartitionKey], connection_id: int, *, acknowledges: bool
    ) -> Begun:
        if acknowledges:
            return Begun(ErrorCode.INVALID_REQUEST)
        former = self.remove(key)
        if former is not None:
            self._displaced(former)
        partitions = dict.fromkeys(requested, False)
        if len(self._sessions) >= self._most or not self._has_room(len(partitions), len(partitions)):
            return Begun(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key, partitions, connection_id)
        self.partition_count += len(partitions)
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._by_group[key.group_id] = self._by_group.get(key.group_id, 0) + 1
        return Begun(ErrorCode.NONE, session, tuple(partitions), added=partitions, connection_id=connection_id)

    def _continues(self, session: ShareSession, epoch: int, connection_id: int) -> bool:
        if epoch == session.epoch:
            return True
        # The answer may have been lost with its connection, whose end is not known here yet: the request is repeated.
        if connection_id == session.connection_id or next_epoch(epoch) != session.epoch:
            return False
        keys = self._by_connection[session.connection_id]
        del keys[session.key]
        if not keys:
            del self._by_connection[session.connection_id]
        self._by_connection.setdefault(connection_id, {})[session.key] = None
        session.connection_id = connection_id
        self._displaced(session)
        return True

    def _has_room(self, added: int, size: int) -> bool:
        """True if a session of ``size`` partitions may have so many more than before."""
        kept = self.partition_count + self._releasing()
        return size <= _MAX_SESSION_PARTITIONS and kept + added <= _MAX_PARTITIONS

    def _update(
        self, session: ShareSession, added: Mapping[PartitionKey, bool], forgotten: Iterable[PartitionKey]
    ) -> bool:
        """Add and forget partitions; False, without a change, if there is no room."""
        partitions = session.partitions
        if not self._has_room(len(added), len(partitions) + len(added)):
            return False
        before = len(partitions)
        partitions.update(added)
        for partition in forgotten:
            partitions.pop(partition, None)
        self.partition_count += len(partitions) - before
        return True


def next_epoch(epoch: int) -> int:
    """The epoch after ``epoch``: never 0 again, and −1 stays."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == INT32_MAX else epoch + 1
