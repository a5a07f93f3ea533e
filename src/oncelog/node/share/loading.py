"""Reads the state of a share partition from its coordinator, and chooses where a new group begins.

``share.auto.offset.reset`` (KIP-932): ``earliest`` is the log's start, ``latest`` the end of what is appended now,
``by_duration`` the first record of the last so many milliseconds. The last one reads records, so a request searches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset
from oncelog.core.share.errors import client_error
from oncelog.core.share.model import NO_START_OFFSET, Refusal, ShareState
from oncelog.handlers.broker.shares import NOT_LEADER, LedSharePartition

if TYPE_CHECKING:
    from oncelog.core.share_state.model import ShareKey
    from oncelog.node.cluster.group_settings import ShareSettingsOfGroups
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.logs.delayed_fetches import DelayedFetches
    from oncelog.node.logs.group_commit import GroupCommit
    from oncelog.node.replication.partitions import PartitionManager
    from oncelog.node.share.persister import SharePersister, StateRead


class StateLoader:
    """``loaded(led, state or refusal)`` is called once for each share partition that is still led by then."""

    def __init__(
        self,
        partitions: PartitionManager,
        group_commit: GroupCommit,
        delayed_fetches: DelayedFetches,
        deadlines: Deadlines,
        persister: SharePersister,
        settings: ShareSettingsOfGroups,
        loaded: Callable[[LedSharePartition, ShareState | Refusal], None],
    ) -> None:
        self._partitions = partitions
        self._group_commit = group_commit
        self._delayed_fetches = delayed_fetches
        self._deadlines = deadlines
        self._persister = persister
        self._settings = settings
        self._loaded = loaded
        self._searches: dict[ShareKey, tuple[LedSharePartition, ShareState]] = {}

    def load(self, led: LedSharePartition) -> None:
        self._persister.read(led.key, led.leader_epoch, partial(self._read, led))

    def dropped(self, led: LedSharePartition) -> None:
        search = self._searches.get(led.key)
        if search is not None and search[0] is led:
            del self._searches[led.key]

    def begin_at(self, led: LedSharePartition, offset: Offset | Refusal) -> None:
        """Go on with the offset that was found for ``search_from_ms``."""
        _, state = self._searches.pop(led.key, (led, None))
        if led.refusal is None and state is not None:
            self._loaded(led, offset if isinstance(offset, Refusal) else state._replace(start_offset=offset))

    def _read(self, led: LedSharePartition, read: StateRead) -> None:
        if led.refusal is not None:
            return  # dropped meanwhile
        if read.error_code != ErrorCode.NONE or read.state is None:
            self._loaded(led, client_error(read.error_code, read.message or ""))
            return
        led.durable_start = led.sent_start = read.state.start_offset
        if read.state.start_offset != NO_START_OFFSET:
            self._loaded(led, read.state)
        else:
            self._choose_start(led, read.state)

    def _choose_start(self, led: LedSharePartition, state: ShareState) -> None:
        if led.refusal is not None:
            return
        leader = self._partitions.leader_log(led.partition)
        if isinstance(leader, ErrorCode):
            self._loaded(led, NOT_LEADER)
            return
        reset = self._settings.of(led.key.group_id).offset_reset
        if reset.strategy == "earliest":
            self._loaded(led, state._replace(start_offset=leader.log.log_start_offset))
        elif not leader.has_reached_epoch_start():
            # Until then the readable end may be lower than one that the former leader told (KIP-207).
            again = partial(self._choose_start, led, state)
            self._group_commit.when_durable(leader.log, leader.replicas.epoch_start, again)
        elif reset.strategy == "latest":
            # Records on their way to the disk came before the group: with acks=1 they are acknowledged.
            end = leader.log.high_watermark if leader.appended_end is None else leader.appended_end
            self._loaded(led, state._replace(start_offset=end))
        else:
            led.search_from_ms = self._deadlines.now_ms - reset.duration_ms
            self._searches[led.key] = led, state
            self._delayed_fetches.wake(led.key)
