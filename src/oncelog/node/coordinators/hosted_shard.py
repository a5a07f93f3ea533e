"""A coordinator shard as the node has it: with its log, its alarm, and who waits for it to be loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import LeaderEpoch, Offset
from oncelog.node.coordinators.pending_requests import PendingRequest
from oncelog.node.deadlines import Alarm

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog


class Shard(Protocol):
    """What both kinds of shards have; a decision has ``records, reply, released``."""

    is_loaded: bool

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take over one record of the log."""

    def loaded(self, now_ms: int) -> Any:
        """The whole log has been applied."""

    def unloaded(self, now_ms: int) -> Any:
        """The shard is this broker's no more."""

    def aborted(self, decision: Any, error_code: ErrorCode, now_ms: int) -> Any:
        """A decision's records were refused."""

    def partitions_deleted(self, partitions: Any, now_ms: int) -> Any:
        """Partitions of topics are gone."""

    def deadline_ms(self) -> int | None:
        """When to tick next."""

    def tick(self, now_ms: int) -> Any:
        """Do one thing that is due."""


S = TypeVar("S", bound=Shard)


class HostedShard(Generic[S]):
    """A shard of this broker with its alarm and its log, which may not exist before the first record."""

    __slots__ = ("_log", "alarm", "leader_epoch", "next_offset", "open_log", "shard", "until_loaded")

    def __init__(self, shard: S, leader_epoch: LeaderEpoch, open_log: Callable[[], PartitionLog]) -> None:
        self.shard = shard
        self.leader_epoch = leader_epoch
        self.open_log = open_log
        self.alarm: Alarm | None = None
        self.next_offset = Offset(0)
        self.until_loaded: dict[PendingRequest, Callable[[S, int, int], Any]] = {}
        """Who wants to decide when the shard is loaded, and what."""
        self._log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        """The log, opened (and created, if need be) when it is first asked for."""
        if self._log is None:
            self._log = self.open_log()
        return self._log

    def is_empty(self) -> bool:
        """Whether there is no log yet, so nothing to load."""
        return self._log is None
