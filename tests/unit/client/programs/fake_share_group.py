"""A fake share group: its coordinator, and leaders that keep sessions and locks by Apache Kafka's rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.message import Response
from oncelog.wire.messages import share_acknowledge, share_fetch
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from oncelog.wire.messages.share_fetch import AcquiredRecords, ShareFetchRequest, ShareFetchResponse
from oncelog.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.client.programs.fake_answers import coordinated
from tests.unit.client.programs.fake_brokers import FakeBrokers

LOCK_MS: Final = 30_000
INTERVAL_MS: Final = 5_000
Offset = tuple[str, int, int]
"""Topic, partition, offset."""


def topic_id(name: str) -> bytes:
    """The id that the fake brokers give a topic."""
    return name.encode().ljust(16)


@dataclass
class FakeRecord:
    state: str = "available"
    """Or acquired, accepted, rejected, gap."""
    deliveries: int = 0
    member: str = ""
    until_ms: int = 0


@dataclass
class FakeSession:
    epoch: int = 1
    """The epoch of the next request."""
    partitions: set[tuple[bytes, int]] = field(default_factory=set)


class FakeShareGroup:
    """A group of one topic, ``t``, with the partitions that ``brokers.leaders`` has."""

    def __init__(self, brokers: FakeBrokers, partitions: int = 2) -> None:
        self.brokers = brokers
        self.heartbeats: list[ShareGroupHeartbeatRequest] = []
        self.heartbeat_codes: list[int] = []
        self.fetch_codes: list[int] = []
        """Errors of the next whole ShareFetch answers."""
        self.acknowledge_codes: list[int] = []
        """Errors of the next acknowledgements of a partition."""
        self.lost: set[type[Any]] = set()
        """Requests whose next answer is lost, with the connection."""
        self.ignored: set[type[Any]] = set()
        """Requests that are lost before they arrive, once."""
        self.records: dict[Offset, FakeRecord] = {}
        self.holes: set[Offset] = set()
        """Offsets in batches without a record."""
        self.damaged: set[Offset] = set()
        """Base offsets of batches with a wrong checksum."""
        self.epochs: dict[str, int] = {}
        self.told: dict[str, Any] = {}
        self.sessions: dict[tuple[int, str], FakeSession] = {}
        self.lock_ms = LOCK_MS
        self.delay_ms: dict[int, int] = {}
        """By broker: what its answers to share fetches take longer."""
        brokers.leaders["t"] = {index: 1 + index * 2 % 3 for index in range(partitions)}
        coordinated(brokers)
        brokers.answers |= {
            ShareGroupHeartbeatRequest: self._heartbeat,
            ShareFetchRequest: self._answer,
            ShareAcknowledgeRequest: self._answer,
        }

    def append(self, partition: int, count: int, topic: str = "t") -> None:
        start = 1 + max((at[2] for at in self.records if at[:2] == (topic, partition)), default=-1)
        self.records |= {(topic, partition, offset): FakeRecord() for offset in range(start, start + count)}

    def states(self, partition: int = 0) -> list[str]:
        return [record.state for at, record in sorted(self.records.items()) if at[1] == partition]

    def disconnect(self, broker: int, member: str) -> None:
        """A member's connection to a broker ends: the broker releases what was acquired over it."""
        if (broker, member) in self.sessions:
            self._end(broker, member)

    def _heartbeat(self, _: int, message: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse | None:
        self.heartbeats.append(message)
        if self.heartbeat_codes:
            return ShareGroupHeartbeatResponse(error_code=self.heartbeat_codes.pop(0))
        member = message.member_id
        if message.member_epoch < 0:
            self.epochs.pop(member, None)
            return ShareGroupHeartbeatResponse(member_epoch=-1)
        if message.member_epoch and message.member_epoch != self.epochs.get(member):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        names = message.subscribed_topic_names
        if names is not None:
            self.told[member] = None
            self.epochs[member] = self.epochs.get(member, 0) + 1
        target = {"t": sorted(self.brokers.leaders["t"])}
        assignment = None
        if self.told.get(member) != target:
            self.told[member] = target
            rows = [TopicPartitions(topic_id=topic_id(name), partitions=rows) for name, rows in target.items()]
            assignment = Assignment(topic_partitions=rows)
        return ShareGroupHeartbeatResponse(
            member_id=member,
            member_epoch=self.epochs[member],
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )

    def _answer(self, broker: int, message: Any) -> Response | None:
        kind = type(message)
        if kind in self.ignored:
            self.ignored.discard(kind)
            self.disconnect(broker, message.member_id)
            return None
        answer: ShareFetchResponse | ShareAcknowledgeResponse
        if kind is ShareFetchRequest:
            answer = self._fetch(broker, message)
            is_empty = not answer.responses and not answer.error_code
            self.brokers.slow_ms[broker] = self.delay_ms.get(broker, 0) + (message.max_wait_ms if is_empty else 0)
        else:
            answer = self._settle(broker, message)
            self.brokers.slow_ms[broker] = 0
        if kind in self.lost:
            self.lost.discard(kind)
            self.disconnect(broker, message.member_id)
            return None
        return answer

    def _fetch(self, broker: int, message: ShareFetchRequest) -> ShareFetchResponse:
        if self.fetch_codes:
            code = self.fetch_codes.pop(0)
            if code == ErrorCode.SHARE_SESSION_NOT_FOUND:
                self.sessions.pop((broker, message.member_id or ""), None)
            return ShareFetchResponse(error_code=code)
        session = self._session(broker, message)
        if isinstance(session, ErrorCode):
            return ShareFetchResponse(error_code=session)
        acknowledged = self._acknowledged(broker, message, share_fetch)
        for topic in message.topics:
            session.partitions |= {(topic.topic_id, row.partition_index) for row in topic.partitions}
        for forgotten in message.forgotten_topics_data:
            session.partitions -= {(forgotten.topic_id, index) for index in forgotten.partitions}
        answers: list[share_fetch.ShareFetchableTopicResponse] = []
        left = message.max_records
        for at in sorted({*session.partitions, *acknowledged}):
            data = acknowledged.get(at) or share_fetch.PartitionData(partition_index=at[1], records=b"")
            if at in session.partitions:
                left -= self._acquire(broker, message, at, data, left)
            if at in acknowledged or data.error_code or data.acquired_records:
                answers.append(share_fetch.ShareFetchableTopicResponse(topic_id=at[0], partitions=[data]))
        return ShareFetchResponse(acquisition_lock_timeout_ms=self.lock_ms, responses=answers)

    def _acquire(
        self, broker: int, message: ShareFetchRequest, at: tuple[bytes, int], data: share_fetch.PartitionData, most: int
    ) -> int:
        name, index = at[0].rstrip().decode(), at[1]
        leader = self.brokers.leaders.get(name, {}).get(index)
        if leader != broker:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return 0
        now_ms = self.brokers.now_ms
        batches: list[bytearray] = []
        for stored_at, record in sorted(self.records.items()):
            if stored_at[:2] != (name, index) or len(data.acquired_records) >= most:
                continue
            if record.state == "acquired" and record.until_ms <= now_ms:
                record.state = "available"
            if record.state != "available":
                continue
            record.state, record.member, record.until_ms = "acquired", message.member_id or "", now_ms + self.lock_ms
            record.deliveries += 1
            data.acquired_records.append(
                AcquiredRecords(first_offset=stored_at[2], last_offset=stored_at[2], delivery_count=record.deliveries)
            )
            values = () if stored_at in self.holes else [Record(stored_at[2], 0, None, b"%d" % stored_at[2])]
            batch = build_batch(values, base_offset=stored_at[2], last_offset=stored_at[2], max_timestamp=0)
            if stored_at in self.damaged:
                batch[-1] ^= 1
            batches.append(batch)
        data.records = b"".join(batches)
        return len(data.acquired_records)

    def _settle(self, broker: int, message: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        if message.share_session_epoch == 0:
            return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = self._session(broker, message)
        if isinstance(session, ErrorCode):
            return ShareAcknowledgeResponse(error_code=session)
        rows = [
            share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=at[0], partitions=[data])
            for at, data in self._acknowledged(broker, message, share_acknowledge).items()
        ]
        if message.share_session_epoch < 0:
            self._end(broker, message.member_id or "")
        return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=self.lock_ms, responses=rows)

    def _session(self, broker: int, message: Any) -> FakeSession | ErrorCode:
        key = broker, message.member_id
        if message.share_session_epoch == 0:
            for topic in message.topics:
                assert not any(row.acknowledgement_batches for row in topic.partitions), "acknowledged at epoch 0"
            self.sessions[key] = FakeSession()
            return self.sessions[key]
        session = self.sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if message.share_session_epoch > 0:
            if message.share_session_epoch != session.epoch:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            session.epoch += 1
        return session

    def _acknowledged(self, broker: int, message: Any, module: Any) -> dict[tuple[bytes, int], Any]:
        """Carry out acknowledgements. Returns the answers by partition."""
        answers: dict[tuple[bytes, int], Any] = {}
        data: Any
        for topic in message.topics:
            for row in topic.partitions:
                if not row.acknowledgement_batches:
                    continue
                code = self._carry_out(broker, message.member_id, topic.topic_id, row)
                if module is share_fetch:
                    data = share_fetch.PartitionData(
                        partition_index=row.partition_index, acknowledge_error_code=code, records=b""
                    )
                else:
                    data = share_acknowledge.PartitionData(partition_index=row.partition_index, error_code=code)
                answers[topic.topic_id, row.partition_index] = data
        return answers

    def _carry_out(self, broker: int, member: str, topic: bytes, row: Any) -> int:
        if self.acknowledge_codes:
            return self.acknowledge_codes.pop(0)
        name, last = topic.rstrip().decode(), -1
        if self.brokers.leaders[name][row.partition_index] != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        touched: list[tuple[FakeRecord, int]] = []
        for batch in row.acknowledgement_batches:
            assert last < batch.first_offset <= batch.last_offset, "not in order"
            assert len(batch.acknowledge_types) == 1
            last = batch.last_offset
            for offset in range(batch.first_offset, batch.last_offset + 1):
                record = self.records[name, row.partition_index, offset]
                is_locked = record.state == "acquired" and record.until_ms > self.brokers.now_ms
                if not is_locked or record.member != member:
                    return ErrorCode.INVALID_RECORD_STATE
                touched.append((record, batch.acknowledge_types[0]))
        for record, kind in touched:
            record.state = ("gap", "accepted", "available", "rejected", "acquired")[kind]
            record.until_ms = self.brokers.now_ms + self.lock_ms
        return ErrorCode.NONE

    def _end(self, broker: int, member: str) -> None:
        del self.sessions[broker, member]
        for (name, index, _), record in self.records.items():
            is_led_here = self.brokers.leaders[name][index] == broker
            if is_led_here and record.state == "acquired" and record.member == member:
                record.state = "available"
