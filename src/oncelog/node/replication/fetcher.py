"""Copies partitions from one leader: fetches, appends, and truncates where the logs diverge (KIP-101, KIP-279,
KIP-595).

**A follower fetches on only when its records are on disk** (``log.sync.policy=commit``): its fetch offset tells the
leader which records it has, and the leader advances the high watermark by that, which must survive a power cut of all
brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from oncelog.core.replicas.follower import EpochEnd, truncation_offset
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.kernel.events import Fatal, Report
from oncelog.node.replication.fetch_requests import FetchPosition, FetchRequests, Key
from oncelog.node.replication.services import ReplicationServices
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.append_replicated import append_replicated
from oncelog.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from oncelog.wire.messages.fetch import FetchResponse, PartitionData
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog

FIRST_WAIT_MS: Final = 20
"""Pause before the first retry: most errors come from an image that is slightly behind. It doubles up to
``replica.fetch.backoff.ms``."""
ADDED_MS: Final = 20
"""Age from which a fetch held by the leader is ended because a partition was added that it does not name. A request
sent after it makes the leader answer, instead of holding it for ``replica.fetch.wait.max.ms``."""
THROTTLED_MS: Final = 100
"""Pause before a throttled copy is retried."""
_LATEST: Final = -1
_EARLIEST: Final = -2


class FetchPhase(Enum):
    # The only phase in which the partition is in a request. Records lead to SYNCING, a divergence is truncated and
    # fetched again, an offset out of the leader's range leads to LOOKING_UP, any other error to WAITING.
    FETCHING = "fetching"
    # Until the log is on disk: FETCHING.
    SYNCING = "syncing"
    # Until the leader's first and last offset are known, and the log is truncated: FETCHING.
    LOOKING_UP = "looking up"
    # After a pause, or in another leader epoch: FETCHING. A copy that lags also waits while the follower throttle is
    # exceeded (KIP-73), every copy while the disk is full.
    WAITING = "waiting"


class _Copy:
    __slots__ = ("key", "leader_end", "leader_epoch", "log", "partition", "phase", "wait_ms")

    def __init__(self, partition: TopicPartition, log: PartitionLog, leader_epoch: LeaderEpoch) -> None:
        self.partition = partition
        self.key: Key = (log.topic_id, partition.partition)
        self.log = log
        self.leader_epoch = leader_epoch
        self.phase = FetchPhase.SYNCING
        self.wait_ms = FIRST_WAIT_MS
        self.leader_end = 0
        """The leader's high watermark, as last received."""


class LeaderFetcher:
    def __init__(self, leader: BrokerId, services: ReplicationServices) -> None:
        self._leader = leader
        self._services = services
        self._requests = FetchRequests()
        self._copies: dict[Key, _Copy] = {}
        self._by_partition: dict[TopicPartition, _Copy] = {}
        self._syncing = 0
        # Number of the last request.
        self._request = 0
        self._is_under_way = False
        # Number of the last request that was ended by another sent after it.
        self._nudged = 0
        self._sent_ms = 0
        self._not_before_ms = 0
        self._wait_ms = FIRST_WAIT_MS
        # A log start has risen into the middle of a segment and is not written yet.
        self._log_starts_rose = False

    def follow(self, partition: TopicPartition, log: PartitionLog, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition in ``leader_epoch``; no effect if it is the present one."""
        current = self._by_partition.get(partition)
        if current is not None and current.leader_epoch == leader_epoch and current.log is log:
            return
        if current is not None:
            self.stop(partition)
        copy = _Copy(partition, log, leader_epoch)
        self._by_partition[partition] = self._copies[copy.key] = copy
        self._sync(copy)

    def stop(self, partition: TopicPartition) -> None:
        copy = self._by_partition.pop(partition, None)
        if copy is None:
            return
        del self._copies[copy.key]
        self._requests.stop_fetching(copy.key)
        if copy.phase is FetchPhase.SYNCING:
            self._syncing -= 1
        copy.phase = FetchPhase.WAITING

    def max_lag(self) -> int:
        return max((copy.leader_end - copy.log.log_end_offset for copy in self._copies.values()), default=0)

    def _is_current(self, copy: _Copy) -> bool:
        return self._copies.get(copy.key) is copy

    def _sync(self, copy: _Copy) -> None:
        copy.phase = FetchPhase.SYNCING
        self._syncing += 1
        self._services.group_commit.when_synced(copy.log, partial(self._synced, copy))

    def _synced(self, copy: _Copy) -> None:
        if self._is_current(copy) and copy.phase is FetchPhase.SYNCING:
            self._syncing -= 1
            self._continue(copy)

    def _continue(self, copy: _Copy) -> None:
        log, services = copy.log, self._services
        throttle, now_ms = services.metadata.follower_throttle, services.deadlines.now_ms
        if services.directory.is_offline:
            self._wait(copy)
            return
        if copy.leader_end > log.log_end_offset and throttle.holds_back(copy.partition, now_ms):
            copy.phase = FetchPhase.WAITING
            self._requests.stop_fetching(copy.key)
            services.deadlines.at(now_ms + THROTTLED_MS, partial(self._waited, copy))
            return
        copy.phase = FetchPhase.FETCHING
        start, end, high_watermark = log.log_start_offset, log.log_end_offset, log.high_watermark
        self._requests.fetch_from(
            copy.key, FetchPosition(end, log.leader_epoch, copy.leader_epoch, start, high_watermark)
        )
        if self._is_under_way:
            deadlines = self._services.deadlines
            deadlines.at(max(deadlines.now_ms, self._sent_ms + ADDED_MS), partial(self._nudge_held, self._request))

    def _wait(self, copy: _Copy) -> None:
        copy.phase = FetchPhase.WAITING
        self._requests.stop_fetching(copy.key)
        longest_ms = int(self._services.metadata.config.get("replica.fetch.backoff.ms"))
        deadlines = self._services.deadlines
        deadlines.at(deadlines.now_ms + min(copy.wait_ms, longest_ms), partial(self._waited, copy))
        copy.wait_ms = min(2 * copy.wait_ms, max(longest_ms, FIRST_WAIT_MS))

    def _waited(self, copy: _Copy, _now_ms: int) -> None:
        if self._is_current(copy) and copy.phase is FetchPhase.WAITING:
            self._continue(copy)

    def fetch(self) -> None:
        """Send the next request, once the last one is answered and its records are on disk."""
        services = self._services
        now_ms = services.deadlines.now_ms
        if self._is_under_way or self._syncing or self._requests.is_empty() or now_ms < self._not_before_ms:
            return
        config = services.metadata.config
        request = self._requests.next_request(services.metadata.broker_id, services.metadata.broker_epoch, config)
        self._request += 1
        self._is_under_way, self._sent_ms = True, now_ms
        services.links.request(
            self._leader,
            LinkPurpose.FETCH,
            request,
            partial(self._answered, self._request),
            int(config.get("replica.socket.timeout.ms")),
        )

    def _nudge_held(self, request: int, _now_ms: int) -> None:
        """Make the leader answer a held request that does not name an added partition."""
        if self._is_under_way and self._request == request and self._nudged != request:
            self._nudged = request
            services = self._services
            # An empty request: the leader answers a held fetch when another request arrives. Sending a new fetch
            # instead would end the session, and so cost as much as all partitions of this leader.
            nudge = ListOffsetsRequest(replica_id=services.metadata.broker_id)
            services.links.request(self._leader, LinkPurpose.FETCH, nudge, lambda _response: None)

    def _answered(self, request: int, response: FetchResponse | None) -> None:
        if request != self._request or not self._is_under_way:
            return
        self._is_under_way = False
        if response is None:
            self._requests.reset()
            self._pause()
            return
        self._wait_ms = FIRST_WAIT_MS
        if not self._requests.answered(response):
            return
        if response.error_code:
            self._pause()
            return
        for topic in response.responses:
            for data in topic.partitions:
                self._take(topic.topic_id, data)
        if self._log_starts_rose:
            self._keep_log_starts()

    def _keep_log_starts(self) -> None:
        """Make log starts durable before the leader learns of them: DeleteRecords is answered by that."""
        self._log_starts_rose = False
        try:
            self._services.persist_log_starts()
        except OSError as error:
            self._report("error", f"risen log starts could not be written: {error}")

    def _pause(self) -> None:
        deadlines = self._services.deadlines
        self._not_before_ms = deadlines.now_ms + self._wait_ms
        longest_ms = int(self._services.metadata.config.get("replica.fetch.backoff.ms"))
        self._wait_ms = min(2 * self._wait_ms, max(longest_ms, FIRST_WAIT_MS))
        deadlines.at(self._not_before_ms, lambda _now: None)  # due fetches are sent at the end of each event

    def _take(self, topic_id: bytes, data: PartitionData) -> None:
        key = (TopicId(topic_id), data.partition_index)
        copy = self._copies.get(key)
        if copy is None or copy.phase is not FetchPhase.FETCHING:
            return
        sent = self._requests.sent.get(copy.key)
        # The partition may have been removed and added again while the request was in flight.
        if sent is None or sent.leader_epoch != copy.leader_epoch or sent.offset != copy.log.log_end_offset:
            return  # the answer to a request of another leadership
        try:
            self._take_in(copy, data)
        except AppendRefused as refused:
            self._report("error", f"cannot append what the leader of {copy.partition} sent: {refused.message}")
            self._wait(copy)
        except OSError as error:
            self._failed(copy, error)

    def _take_in(self, copy: _Copy, data: PartitionData) -> None:
        log, services = copy.log, self._services
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._look_up(copy)
        elif data.error_code:
            self._wait(copy)
        elif data.diverging_epoch is not None:
            self._truncate(copy, EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
        else:
            copy.leader_end = data.high_watermark
            appended, start, was_inside = None, log.log_start_offset, log.starts_inside_segment
            if data.records:
                records = _contiguous(data.records)
                appended = append_replicated(
                    log, records, now_ms=services.deadlines.now_ms, leader_epoch=copy.leader_epoch
                )
                services.metadata.follower_throttle.record(copy.partition, len(records), services.deadlines.now_ms)
            copy.wait_ms = FIRST_WAIT_MS
            if data.transactional_ids:
                log.transactions.told(copy.partition, bytes(data.transactional_ids))
            if log.follow(data.high_watermark, data.log_start_offset):
                services.delayed_fetches.changed(copy.partition)
            if log.starts_inside_segment and (log.log_start_offset != start or not was_inside):
                self._log_starts_rose = True  # the start rose, or the first batch extends over it
            if appended is not None and appended.batch_count:
                self._sync(copy)
            # Most responses carry only a high watermark; then the position requested before still holds.
            elif data.records or not self._is_unchanged(copy, start):
                self._continue(copy)

    def _is_unchanged(self, copy: _Copy, log_start: int) -> bool:
        log = copy.log
        is_same = log.log_start_offset == log_start and copy.leader_end <= log.log_end_offset
        return is_same and not self._services.directory.is_offline

    def _truncate(self, copy: _Copy, leader_end: EpochEnd) -> None:
        log = copy.log
        own_end = EpochEnd(*log.epoch_end_offset(leader_end.epoch, log.leader_epoch))
        offset = truncation_offset(leader_end, own_end, log.log_end_offset)
        self._cut(copy, partial(truncate_to, log, offset, self._services.deadlines.now_ms))

    def _cut(self, copy: _Copy, cut: Callable[[], object]) -> None:
        try:
            cut()
        except OSError as error:
            # The state of the disk is unknown: the node must not go on.
            self._services.outbox.effects.append(Fatal(f"could not truncate {copy.partition}: {error}"))
            return
        self._services.delayed_fetches.changed(copy.partition)
        self._sync(copy)

    def _look_up(self, copy: _Copy) -> None:
        """Query the leader's first and last offset, to truncate this log or start it over."""
        copy.phase = FetchPhase.LOOKING_UP
        self._requests.stop_fetching(copy.key)
        offsets: dict[int, int] = {}
        for timestamp in (_EARLIEST, _LATEST):
            lookup = ListOffsetsPartition(
                partition_index=copy.partition.partition, current_leader_epoch=copy.leader_epoch, timestamp=timestamp
            )
            services = self._services
            services.links.request(
                self._leader,
                LinkPurpose.CONTROL,
                ListOffsetsRequest(
                    replica_id=services.metadata.broker_id,
                    topics=[ListOffsetsTopic(name=copy.partition.topic, partitions=[lookup])],
                ),
                partial(self._looked_up, copy, offsets, timestamp),
                int(services.metadata.config.get("replica.socket.timeout.ms")),
            )

    def _looked_up(
        self, copy: _Copy, offsets: dict[int, int], timestamp: int, response: ListOffsetsResponse | None
    ) -> None:
        if not self._is_current(copy) or copy.phase is not FetchPhase.LOOKING_UP:
            return
        answer = _only_partition(response)
        if answer is None or answer.error_code:
            self._wait(copy)
            return
        offsets[timestamp] = answer.offset
        if len(offsets) < 2:
            return
        log, now_ms = copy.log, self._services.deadlines.now_ms
        if offsets[_EARLIEST] <= log.log_end_offset:
            self._cut(copy, partial(truncate_to, log, offsets[_LATEST], now_ms))
        else:
            self._cut(copy, partial(truncate_fully_and_start_at, log, offsets[_EARLIEST], now_ms))

    def _failed(self, copy: _Copy, error: OSError) -> None:
        self._report("error", f"cannot append to {copy.partition}: {error}")
        self._wait(copy)

    def _report(self, level: str, message: str) -> None:
        self._services.outbox.effects.append(Report(level, message))


def _contiguous(records: object) -> memoryview | bytes:
    if isinstance(records, bytes | bytearray | memoryview):
        return memoryview(records)
    return b"".join(records)  # type: ignore[arg-type]  # buffers, as an answer from a socket has them


def _only_partition(response: ListOffsetsResponse | None) -> ListOffsetsPartitionResponse | None:
    if response is None or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return None
    return response.topics[0].partitions[0]
