"""Shards that this broker leads, and the requests that wait for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import LeaderEpoch, Offset, TopicPartition
from oncelog.node.kernel.deadlines import Alarm

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that waits for a decision: first for its shard to load, then for its reply."""

    name: str
    """The group or transactional id."""
    wait: Any
    """The request as its handler yielded it: ``Coordinate`` or ``Transact``."""
    answer: Callable[[Any], None]
    """Called with the reply, or with a CoordinatorRefusal."""
    token: int | None = None
    """Identifies the reply, once the shard has decided."""
    alarm: Alarm | None = None


class ShardDecision(Protocol):
    """The interface common to decisions of both kinds."""

    @property
    def records(self) -> Sequence[tuple[bytes, bytes | None]]:
        """Keys and values to append as one batch and to apply."""

    @property
    def reply(self) -> object | None:
        """The reply to the request; None: it is parked, or there was no request."""

    @property
    def released(self) -> Sequence[tuple[int, object]]:
        """Replies to parked requests, by token."""


class Shard(Protocol):
    """The interface common to shards of both kinds; each has its own kind of ``ShardDecision``."""

    is_loaded: bool

    @property
    def skipped(self) -> Counter[str]:
        """Unreadable records."""

    def apply(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self, now_ms: int) -> Any:
        """Begin to decide: the whole log is applied."""

    def unloaded(self, now_ms: int) -> Any:
        """Stop deciding: another broker leads the partition. The decision releases all parked requests."""

    def append_failed(self, decision: Any, error_code: ErrorCode, now_ms: int) -> Any:
        """Undo a decision whose records were refused."""

    def partitions_deleted(self, partitions: Any, now_ms: int) -> Any:
        """Forget the partitions of deleted topics."""

    def deadline_ms(self) -> int | None:
        """Time of the next tick; None: none is due."""

    def tick(self, now_ms: int) -> Any:
        """Do one thing that is due."""


S = TypeVar("S", bound=Shard)


@dataclass(slots=True, eq=False)
class HostedShard(Generic[S]):
    """A shard that this broker leads in one epoch."""

    shard: S
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    log: PartitionLog | None
    """None until the internal topic's log is created; until then there is nothing to load."""
    next_offset: Offset
    """Offset at which loading continues."""
    is_led: bool = True
    """False once resigned: completions for it are dropped."""
    until_loaded: dict[PendingRequest, None] = field(default_factory=dict)
    """Requests that wait for the shard to load, in order of arrival."""
    pending: dict[int, PendingRequest] = field(default_factory=dict)
    """Requests that wait for their reply, by token."""
    alarm: Alarm | None = None
