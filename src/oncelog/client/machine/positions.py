"""Fetch positions: builds the next request to each leader, and moves each partition's position after a response.

A position moves by whole batches, read from headers alone, so the next request can be sent before anything is decoded.
A partition is in at most one request at a time. A retriable error keeps the position and requests new metadata; any
other removes the partition and is reported. Sessions (KIP-227) are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode, PeerError
from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.machine.metadata import ClusterView
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.machine.whole_batches import bytes_of_cut, formats, whole_batches
from oncelog.client.setting_checks import check_range
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

LAST_VERSION_BY_NAME: Final = 12
"""The last Fetch version with topic names; later ones use ids (KIP-516)."""
_MOST_PARTITION_BYTES: Final = 512 * MIB
"""Larger messages are not fetched."""


class Fetched(NamedTuple):
    """The response for one partition. ``records`` are whole batches, which may start before ``position``."""

    partition: TopicPartition
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """Aborted transactions: producer id and first offset, for read_committed."""
    error_code: int
    position: int
    """The requested offset: records below it have to be skipped."""
    next_offset: int
    """The position after these records."""
    topic_id: bytes = NO_TOPIC_ID
    """The topic id used in the request; zeros if the broker uses names."""
    has_message_sets: bool = False
    """True if ``records`` has entries of formats 0 and 1, which have to be requested."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Limits of a fetch, as in Apache Kafka's consumer."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * MIB
    partition_max_bytes: int = MIB
    read_committed: bool = False
    old_formats: bool = False
    """Also fetch message sets (formats 0 and 1), from brokers before 0.11 and topics written then; for callers that
    read ``Fetched`` with ``consumed_records``. Otherwise they are an error."""

    def __post_init__(self) -> None:
        for name, least in (("max_wait_ms", 0), ("min_bytes", 0), ("max_bytes", 1), ("partition_max_bytes", 1)):
            check_range(name, getattr(self, name), least)


@dataclass(slots=True)
class _Partition:
    position: int
    until: int | None
    max_bytes: int
    in_flight: bool = False
    not_before_ms: int = 0
    failures: int = field(default=0)


class Positions:
    def __init__(self, view: ClusterView, settings: FetchSettings) -> None:
        self.settings = settings
        self._view = view
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._names: dict[bytes, TopicName] = {}
        """Topics by the ids in requests: the view may have newer ids by now (a topic created again)."""

    def __len__(self) -> int:
        return len(self._partitions)

    def assign(
        self, positions: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Fetch exactly these. A partition already at its ``until`` is left out."""
        self._partitions = {
            partition: _Partition(
                position, None if until is None else until.get(partition), self.settings.partition_max_bytes
            )
            for partition, position in positions.items()
            if until is None or partition not in until or position < until[partition]
        }

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch ``positions`` from other offsets, the rest as before. Responses for the old offsets will be dropped."""
        for partition, offset in positions.items():
            state = self._partitions.get(partition)
            until = None if state is None else state.until
            self._partitions[partition] = _Partition(offset, until, self.settings.partition_max_bytes)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching ``partitions``; responses in flight are dropped."""
        for partition in partitions:
            self._partitions.pop(partition, None)

    def of(self, partition: TopicPartition) -> int | None:
        """The next offset to fetch, None if the partition is not fetched."""
        state = self._partitions.get(partition)
        return None if state is None else state.position

    def without_leader(self, now_ms: int) -> list[TopicName]:
        """Topics whose metadata is needed, because a due partition has no leader."""
        topics = {p.topic: None for p in self._due(now_ms) if self._view.leader(p) is None}
        return [TopicName(topic) for topic in topics]

    def postpone(self, partitions: Iterable[TopicPartition], until_ms: int) -> None:
        """Do not fetch ``partitions`` before a time."""
        for partition in partitions:
            if partition in self._partitions:
                self._partitions[partition].not_before_ms = until_ms

    def next_due_ms(self) -> int | None:
        """When the first postponed partition is due; None if none is postponed."""
        return min(
            (s.not_before_ms for s in self._partitions.values() if not s.in_flight and s.not_before_ms), default=None
        )

    def leaders(self, now_ms: int) -> dict[int, list[TopicPartition]]:
        """The partitions that can be fetched now, by leader."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in self._due(now_ms):
            leader = self._view.leader(partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append(partition)
        return by_leader

    def request(self, partitions: list[TopicPartition]) -> tuple[FetchRequest, dict[TopicPartition, int], int | None]:
        """A request for ``partitions``, the positions that it asks for, and its highest version."""
        by_topic: dict[TopicName, list[FetchPartition]] = {}
        positions: dict[TopicPartition, int] = {}
        for partition in partitions:
            state = self._partitions[partition]
            state.in_flight = True
            state.not_before_ms = 0
            positions[partition] = state.position
            info = self._view.partition(partition)
            by_topic.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=-1 if info is None else info.leader_epoch,
                    fetch_offset=state.position,
                    partition_max_bytes=state.max_bytes,
                )
            )
        message = FetchRequest(
            max_wait_ms=self.settings.max_wait_ms,
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.max_bytes,
            isolation_level=int(self.settings.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(topic=topic, topic_id=bytes(self._view.topic_id(topic)), partitions=parts)
                for topic, parts in by_topic.items()
            ],
        )
        names = self._view.topic_ids(by_topic)
        self._names |= names or {}
        at_most = None if names is not None else LAST_VERSION_BY_NAME
        return message, positions, at_most

    def lost(self, requested: Mapping[TopicPartition, int]) -> None:
        """The request for these partitions will not be answered: they may be fetched again."""
        for partition in requested:
            if partition in self._partitions:
                self._partitions[partition].in_flight = False

    def answered(self, requested: Mapping[TopicPartition, int], response: Any, now_ms: int) -> list[Fetched]:
        """Apply a FetchResponse. Returns its results, without those that will be retried or were reassigned since.
        Raises PeerError for invalid batches."""
        self.lost(requested)
        if response.error_code:
            return self._refused(requested, response.error_code, now_ms)
        results: list[Fetched] = []
        for topic in response.responses:
            name = topic.topic or self._names.get(bytes(topic.topic_id))
            if name is None:
                raise PeerError("the broker answered for a topic that was not asked for")
            for data in topic.partitions:
                partition = TopicPartition(TopicName(name), data.partition_index)
                # Hostile or confused brokers must not move positions.
                if partition not in requested:
                    raise PeerError(f"the broker answered for {partition}, which was not asked for")
                fetched = self._take(partition, requested[partition], data, now_ms)
                if fetched is not None:
                    results.append(fetched._replace(topic_id=bytes(topic.topic_id)))
        return results

    def _due(self, now_ms: int) -> list[TopicPartition]:
        return [p for p, s in self._partitions.items() if not s.in_flight and s.not_before_ms <= now_ms]

    def _refused(self, requested: Mapping[TopicPartition, int], error_code: int, now_ms: int) -> list[Fetched]:
        results = (self._failed(partition, position, error_code, now_ms) for partition, position in requested.items())
        return [result for result in results if result is not None]

    def _take(self, partition: TopicPartition, position: int, data: Any, now_ms: int) -> Fetched | None:
        state = self._partitions.get(partition)
        # Reassigned or moved by ``seek`` meanwhile.
        if state is None or state.position != position:
            return None
        if data.error_code:
            hint = getattr(data, "current_leader", None)
            moved = hint is not None and self._view.leader_moved(partition, hint.leader_id, hint.leader_epoch)
            if not moved:
                return self._failed(partition, position, data.error_code, now_ms, data)
            return None
        state.failures = 0
        records = memoryview(data.records) if data.records is not None else memoryview(b"")
        size, next_offset = whole_batches(records, position, old_formats=self.settings.old_formats)
        if self.settings.old_formats and not size and len(records):
            # Before Fetch 3 a message larger than the limit is truncated.
            state.max_bytes = max(2 * state.max_bytes, bytes_of_cut(records))
            too_large = state.max_bytes > _MOST_PARTITION_BYTES
            return self._failed(partition, position, ErrorCode.MESSAGE_TOO_LARGE, now_ms) if too_large else None
        state.max_bytes = self.settings.partition_max_bytes
        state.position = next_offset
        if size:  # limits favour the first partitions of a request, so a served one moves to the end
            self._partitions[partition] = self._partitions.pop(partition)
        if state.until is not None and next_offset >= state.until:
            del self._partitions[partition]
        return Fetched(
            partition,
            records[:size],
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            [(transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions or ()],
            ErrorCode.NONE,
            position,
            next_offset,
            has_message_sets=self.settings.old_formats and any(old for _, _, old in formats(records[:size])),
        )

    def _failed(
        self, partition: TopicPartition, position: int, error_code: int, now_ms: int, data: Any = None
    ) -> Fetched | None:
        state = self._partitions.get(partition)
        if state is None:
            return None
        action = remedy(error_code)
        # Damaged records would come again at every retry.
        if action is Remedy.FAIL or error_code == ErrorCode.CORRUPT_MESSAGE:
            del self._partitions[partition]
            start = -1 if data is None else data.log_start_offset
            high = -1 if data is None else data.high_watermark
            return Fetched(partition, memoryview(b""), high, -1, start, [], error_code, position, position)
        state.failures += 1
        state.not_before_ms = now_ms + min(50 << min(state.failures, 5), 1000)
        if action is Remedy.REFRESH_METADATA:
            self._view.forget(partition.topic)
        return None
