"""Writes the dead letters of share groups (KIP-1191) to the topic that their group names, here or at another broker.

A dead letter is written before its record is archived, and durable as with acks=all. It may be written twice: after a
failover, or a request whose answer was lost. As in Apache Kafka a record is archived even if its dead letter cannot be
written: when the topic is missing or not enabled, its leader refuses, or five attempts fail (15 s).

Copies for one partition of a dead letter topic wait in a lane and share the next batch, one batch at a time. What a
batch reads and writes is bounded, so that it holds the loop only briefly; the rest goes into the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicName, TopicPartition
from oncelog.base.tree import CommitOutcome
from oncelog.base.units import MINUTE_MS, SECOND_MS
from oncelog.core.configs.keys import TOPIC_KEYS
from oncelog.core.configs.topic import topic_value
from oncelog.core.controller.brokers.features import SHARE_VERSION
from oncelog.core.controller.outcomes import Refusal
from oncelog.core.controller.topics.changes import NewTopic, create_topics
from oncelog.core.share.model import DeadLetters
from oncelog.handlers.broker.shares import LedSharePartition
from oncelog.handlers.topics.creation import new_topic_id
from oncelog.node.kernel.events import Outbox, Report
from oncelog.node.share.dead_letter_records import (
    BATCH_BYTES,
    MAX_BATCH_BYTES,
    NO_RECORD,
    Originals,
    Source,
    encoded_size,
)
from oncelog.records.builder import build_batch
from oncelog.records.record import Record

if TYPE_CHECKING:
    from oncelog.node.cluster.group_settings import ShareSettingsOfGroups
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.replication.partitions import PartitionManager
    from oncelog.node.share.dead_letter_appends import DeadLetterAppends

_ENABLE_KEY: Final = "errors.deadletterqueue.group.enable"
_DEAD_LETTERS_SINCE: Final = 2
"""``share.version``."""
ATTEMPTS: Final = 5
_MOST_COPIES: Final = 100
"""Copies in one batch: the end of each is a write of its share partition's state."""
_BACKOFF_MS: Final = SECOND_MS
_MAX_BACKOFF_MS: Final = 30 * SECOND_MS
# The leader moved, or no answer came; then what Apache Kafka gives up at once: too few replicas, a full disk.
_RETRIABLE: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

Done = Callable[[bool, int], None]
"""Called once: with True when the dead letters are durable, False if they cannot be written or their share partition
was dropped; and with how many have headers alone, although the group copies records."""


@dataclass(slots=True, eq=False)
class _Copy:
    led: LedSharePartition
    source: Source
    letters: DeadLetters
    done: Done
    next_offset: int
    attempts: int = 0
    headers_only: int = 0
    """Dead letters written so, up to ``next_offset``."""


class _Part(NamedTuple):
    """The dead letters of a copy in one batch."""

    copy: _Copy
    end: int
    """The offset up to which the batch has all."""
    headers_only: int


@dataclass(slots=True)
class _Lane:
    """The copies for one partition of a dead letter topic; those of the batch under way come first."""

    queue: deque[_Copy] = field(default_factory=deque)
    is_busy: bool = False


class DeadLetterWriter:
    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionManager,
        metadata_log: MetadataLog,
        deadlines: Deadlines,
        outbox: Outbox,
        settings: ShareSettingsOfGroups,
        appends: DeadLetterAppends,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._metadata_log = metadata_log
        self._deadlines = deadlines
        self._outbox = outbox
        self._settings = settings
        self._appends = appends
        self._lanes: dict[TopicPartition, _Lane] = {}
        # Copies that wait for the creation of their topic.
        self._creating: dict[TopicName, list[_Copy]] = {}
        self._next_report_ms = 0
        self._next_warning_ms = 0

    def are_enabled(self) -> bool:
        return self._metadata.image.features.get(SHARE_VERSION, 0) >= _DEAD_LETTERS_SINCE

    def copy(self, led: LedSharePartition, letters: DeadLetters, done: Done) -> None:
        source = Source(led.key.group_id, led.key.topic_id, led.partition)
        self._start(_Copy(led, source, letters, done, letters.first_offset))

    def _start(self, copy: _Copy) -> None:
        if copy.led.refusal is not None:
            copy.done(False, 0)  # the next leader reads the state, and writes them
            return
        group_id = copy.source.group_id
        topic = self._settings.of(group_id).dead_letter_topic
        problem = self._problem(group_id, topic)
        if problem is not None:
            self._fail(copy, problem)
            return
        name = TopicName(topic)
        image = self._metadata.image.topics.get(name)
        if image is None:
            self._create(name, copy)
            return
        partition = TopicPartition(name, copy.source.partition.partition % len(image.partitions))
        self._lanes.setdefault(partition, _Lane()).queue.append(copy)
        self._send_next(partition)

    def _problem(self, group_id: GroupId, topic: str) -> str | None:
        """The reason why no dead letters can be written to the topic of a group."""
        config, topics = self._metadata.config, self._metadata.image.topics
        prefix = str(config.get("errors.deadletterqueue.topic.name.prefix") or "")
        if not topic:
            return f"share group {group_id} names no dead letter topic any more"
        if topic.startswith("__"):
            return f"the dead letter topic {topic} of share group {group_id} begins with __"
        image = topics.get(TopicName(topic))
        if image is not None and not topic_value(config, image.configs, TOPIC_KEYS[_ENABLE_KEY]):
            return f"the dead letter topic {topic} of share group {group_id} lacks {_ENABLE_KEY}=true"
        if image is None and not config.get("errors.deadletterqueue.auto.create.topics.enable"):
            return (
                f"the dead letter topic {topic} of share group {group_id} does not exist, and "
                "errors.deadletterqueue.auto.create.topics.enable is false"
            )
        if not topic.startswith(prefix):
            return f"the dead letter topic {topic} of share group {group_id} does not begin with {prefix}"
        return None

    # The topic

    def _create(self, name: TopicName, copy: _Copy) -> None:
        waiting = self._creating.get(name)
        if waiting is not None:
            waiting.append(copy)
            return
        self._creating[name] = [copy]
        self._decide_creation(name)

    def _decide_creation(self, name: TopicName) -> None:
        topic = NewTopic(name, configs=((_ENABLE_KEY, "true"), ("message.timestamp.type", "CreateTime")))
        metadata = self._metadata
        decided = create_topics(metadata.image, metadata.config, [topic], lambda: new_topic_id(metadata))
        outcome = decided.outcomes[0]
        if isinstance(outcome, Refusal) and outcome.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            reason = outcome.message or outcome.error_code.name
            for copy in self._creating.pop(name):
                self._fail(copy, f"the dead letter topic {name} cannot be created: {reason}")
        elif isinstance(outcome, Refusal):
            self._created(name)
        else:
            self._metadata_log.commit(decided.operations, partial(self._creation_ended, name))

    def _creation_ended(self, name: TopicName, outcome: CommitOutcome) -> None:
        if outcome is CommitOutcome.COMMITTED:
            self._created(name)
            return
        if outcome is CommitOutcome.CONFLICT:
            self._decide_creation(name)  # another change was committed: decide on its image
            return
        for copy in self._creating.pop(name):
            self._try_later(copy, f"the dead letter topic {name} cannot be created now")

    def _created(self, name: TopicName) -> None:
        for copy in self._creating.pop(name):
            self._start(copy)

    # The records

    def _send_next(self, partition: TopicPartition) -> None:
        lane = self._lanes[partition]
        if lane.is_busy:
            return
        dropped = [copy for copy in lane.queue if copy.led.refusal is not None]
        lane.queue = deque(copy for copy in lane.queue if copy.led.refusal is None)
        if lane.queue:
            lane.is_busy = True
            records, parts = self._next_batch(partition, lane)
            self._appends.append(partition, build_batch(records), partial(self._appended, partition, parts))
        else:
            del self._lanes[partition]
        for copy in dropped:
            copy.done(False, 0)

    def _next_batch(self, partition: TopicPartition, lane: _Lane) -> tuple[list[Record], list[_Part]]:
        image = self._metadata.image.topics.get(partition.topic)
        configs = {} if image is None else image.configs
        max_bytes = int(topic_value(self._metadata.config, configs, TOPIC_KEYS["max.message.bytes"]))  # type: ignore[arg-type]  # an INT
        originals = Originals(max_bytes)
        records: list[Record] = []
        parts: list[_Part] = []
        size = BATCH_BYTES
        for copy in islice(lane.queue, _MOST_COPIES):
            offset, letters, headers_only = copy.next_offset, copy.letters, 0
            copies = self._settings.of(copy.source.group_id).copies_dead_letters
            end = self._read(originals, copy) if copies else letters.last_offset + 1
            while offset < end:
                original = originals.get(copy.source, offset)
                headers = copy.source.headers(offset, letters)
                record = Record(len(records), self._deadlines.now_ms, *(original or NO_RECORD), headers)
                if records and size + encoded_size(record) > min(max_bytes, MAX_BATCH_BYTES):
                    break
                if size + encoded_size(record) > max_bytes:
                    record, original = record._replace(key=None, value=None), None
                headers_only += copies and original is None
                size += encoded_size(record)
                records.append(record)
                offset += 1
            if offset > copy.next_offset:
                parts.append(_Part(copy, offset, headers_only))
            if offset <= letters.last_offset:
                break
        return records, parts

    def _read(self, originals: Originals, copy: _Copy) -> int:
        """Read what a copy needs next, if there is room; returns the offset up to which it is known."""
        leader = self._partitions.leader_log(copy.source.partition)
        # A topic that was made again under the name has other records.
        if isinstance(leader, ErrorCode) or leader.log.topic_id != copy.source.topic_id:
            return copy.letters.last_offset + 1
        return originals.read(copy.source, leader.log, copy.next_offset, copy.letters.last_offset)

    def _appended(self, partition: TopicPartition, parts: list[_Part], error_code: ErrorCode) -> None:
        lane = self._lanes[partition]
        for copy, offset, headers_only in parts:
            if error_code == ErrorCode.NONE:
                copy.next_offset, copy.attempts = offset, 0
                copy.headers_only += headers_only
            if error_code == ErrorCode.NONE and offset <= copy.letters.last_offset:
                continue  # the rest goes into the next batch
            lane.queue.remove(copy)
            if error_code == ErrorCode.NONE:
                self._finish(copy)
            elif error_code in _RETRIABLE:
                self._try_later(copy, f"dead letters for {partition} could not be written: {error_code.name}")
            else:
                self._fail(copy, f"dead letters for {partition} are refused: {error_code.name}")
        lane.is_busy = False  # only now: the end of a copy may bring others into the lane
        self._send_next(partition)

    def _finish(self, copy: _Copy) -> None:
        now_ms = self._deadlines.now_ms
        if copy.headers_only and now_ms >= self._next_warning_ms:
            self._next_warning_ms = now_ms + MINUTE_MS
            group_id, _, partition = copy.source
            self._outbox.effects.append(
                Report(
                    "warning",
                    f"{copy.headers_only} dead letters of {partition} in share group {group_id} have headers alone: "
                    "their records cannot be read, or are larger than is copied",
                )
            )
        copy.done(True, copy.headers_only)

    # Failures

    def _try_later(self, copy: _Copy, problem: str) -> None:
        copy.attempts += 1
        if copy.attempts >= ATTEMPTS:
            self._fail(copy, problem)
            return
        delay_ms = min(_BACKOFF_MS << (copy.attempts - 1), _MAX_BACKOFF_MS)
        self._deadlines.at(self._deadlines.now_ms + delay_ms, lambda _now_ms: self._start(copy))

    def _fail(self, copy: _Copy, problem: str) -> None:
        now_ms = self._deadlines.now_ms
        if copy.led.refusal is None and now_ms >= self._next_report_ms:
            self._next_report_ms = now_ms + MINUTE_MS
            self._outbox.effects.append(
                Report("error", f"{problem}; its records are archived without a dead letter, as in Apache Kafka")
            )
        copy.done(False, 0)
