"""A coordinator shard as the node hosts it: with its log, its alarm, and the requests that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import LeaderEpoch, Offset, TopicPartition
from oncelog.node.coordinators.pending_requests import PendingRequest
from oncelog.node.kernel.deadlines import Alarm

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog


class ShardDecision(Protocol):
    """The common part of both kinds of decisions."""

    @property
    def records(self) -> Sequence[tuple[bytes, bytes | None]]:
        """Keys and values to append as one batch and to apply."""

    @property
    def reply(self) -> object | None:
        """The reply to the request decided; None: it is parked, or nobody asked."""

    @property
    def released(self) -> Sequence[tuple[int, object]]:
        """Replies to requests that were parked, by token."""


class Shard(Protocol):
    """The common part of both kinds of shards; each has its own kind of ``ShardDecision``."""

    is_loaded: bool

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take over one record of the log."""

    def loaded(self, now_ms: int) -> Any:
        """Begin to decide: the whole log has been applied."""

    def unloaded(self, now_ms: int) -> Any:
        """Decide no more: another broker leads the partition; the decision releases all who are parked."""

    def append_failed(self, decision: Any, error_code: ErrorCode, now_ms: int) -> Any:
        """Take back a decision whose records were refused."""

    def partitions_deleted(self, partitions: Any, now_ms: int) -> Any:
        """Forget partitions of topics that are gone."""

    def deadline_ms(self) -> int | None:
        """Time of the next tick; None: never."""

    def tick(self, now_ms: int) -> Any:
        """Do one thing that is due."""


S = TypeVar("S", bound=Shard)
D = TypeVar("D", bound=ShardDecision)
"""The decisions of the shards."""


class HostedShard(Generic[S]):
    """A shard that this broker leads in one epoch.

    ``log`` is None as long as the internal topic's log is still to be created: then there is nothing to load.
    """

    __slots__ = (
        "alarm",
        "is_led",
        "leader_epoch",
        "log",
        "next_offset",
        "partition",
        "pending",
        "shard",
        "until_loaded",
    )

    def __init__(
        self, shard: S, partition: TopicPartition, leader_epoch: LeaderEpoch, log: PartitionLog | None
    ) -> None:
        self.shard = shard
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.log = log
        self.alarm: Alarm | None = None
        self.is_led = True
        """False once this broker has resigned: what was under way for it is dropped when it comes back."""
        self.next_offset = Offset(0) if log is None else Offset(log.log_start_offset)
        """Offset at which loading goes on."""
        self.until_loaded: dict[PendingRequest, None] = {}
        """Requests that decide when the shard is loaded, in order of arrival."""
        self.pending: dict[int, PendingRequest] = {}
        """Requests that wait for their reply, by token."""
