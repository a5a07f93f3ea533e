"""W1 to W4: high watermark, last stable offset and log start offset never fall, and what is acknowledged is readable.

Seen in Fetch, ListOffsets and Produce responses, per incarnation of a topic. A restart of the broker is a new leader
epoch: the first two may begin lower then, until the log was made durable again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from oncelog.base.ids import TopicId, TopicPartition
from oncelog.sim.checkers.wire.exchange import Exchange, PartitionKey, Report, Rising, Topics
from oncelog.wire.messages.fetch import FetchResponse
from oncelog.wire.messages.list_offsets import ListOffsetsResponse

HIGH_WATERMARK: Final = "W1 high watermark fell"
LAST_STABLE: Final = "W2 last stable offset fell"
LOG_START: Final = "W3 log start offset fell"
ORDER: Final = "W4 offsets out of order"
FELL: Final = "R7 end fell from leader to leader"
_EARLIEST: Final = -2
_LATEST: Final = -1
_ERROR: Final = -1


class Watermarks:
    """The offsets of every partition as clients were told."""

    def __init__(self, topics: Topics, report: Report) -> None:
        self._topics = topics
        self._report = report
        self._high: dict[PartitionKey, Rising] = defaultdict(Rising)
        self._stable: dict[PartitionKey, Rising] = defaultdict(Rising)
        self._start: dict[PartitionKey, Rising] = defaultdict(Rising)

    def restarted(self, *, power_lost: bool) -> None:
        """A new leader epoch everywhere. Retention does not wait for the disk: what it has removed may be there again
        after a power cut, until it is removed again (what DeleteRecords has removed may not: H16)."""
        self._high.clear()
        self._stable.clear()
        if power_lost:
            self._start.clear()

    def acknowledged(self, key: PartitionKey, next_offset: int, log_start: int, asked: Exchange, index: int) -> None:
        """Records below ``next_offset`` were acknowledged by acks=all: the high watermark has passed them."""
        self._high[key].sent(index, next_offset)
        if log_start >= 0:
            self._told(LOG_START, self._start[key], key, log_start, asked, index)

    def fetched(self, asked: Exchange, response: FetchResponse, index: int) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                key = self._topics.key(topic.topic, topic.topic_id, data.partition_index)
                if key is None or data.error_code:
                    continue
                high, stable, start = data.high_watermark, data.last_stable_offset, data.log_start_offset
                for rule, known, value in (
                    (HIGH_WATERMARK, self._high, high),
                    (LAST_STABLE, self._stable, stable),
                    (LOG_START, self._start, start),
                ):
                    if value >= 0:
                        self._fetched(rule, known[key], key, value, asked, index)
                if (stable >= 0 and stable > high) or (start >= 0 and start > high >= 0):
                    self._report(ORDER, f"{self._topics.show(key)}: start {start}, stable {stable}, high {high}")

    def listed(self, asked: Exchange, response: ListOffsetsResponse, index: int) -> None:
        """A ListOffsets response: latest is the high watermark or, at read_committed, the last stable offset."""
        times = {(t.name, p.partition_index): p.timestamp for t in asked.request.topics for p in t.partitions}
        committed = asked.request.isolation_level == 1
        for topic in response.topics:
            for answer in topic.partitions:
                key = self._topics.key(topic.name, bytes(16), answer.partition_index)
                timestamp = times.get((topic.name, answer.partition_index))
                if key is None or answer.error_code or answer.offset == _ERROR:
                    continue
                if timestamp == _EARLIEST:
                    self._told(LOG_START, self._start[key], key, answer.offset, asked, index)
                elif timestamp == _LATEST and committed:
                    self._told(LAST_STABLE, self._stable[key], key, answer.offset, asked, index)
                elif timestamp == _LATEST:
                    self._told(HIGH_WATERMARK, self._high[key], key, answer.offset, asked, index)

    def replicas_lost(self, names: Iterable[str]) -> None:
        """The only replicas of topics began anew: their ends may be lower, as after a restart of the only broker."""

    def _fetched(self, rule: str, known: Rising, key: PartitionKey, value: int, asked: Exchange, index: int) -> None:
        self._told(rule, known, key, value, asked, index)

    def _told(self, rule: str, known: Rising, key: PartitionKey, value: int, asked: Exchange, index: int) -> None:
        before = known.before(asked.came)
        if before is not None and value < before:
            self._report(rule, f"{self._topics.show(key)}: {before}, then {value}")
        known.sent(index, value)


class ClusterWatermarks(Watermarks):
    """R7: what ListOffsets tells is not lower than what any broker has told before, of the high watermark or the last
    stable offset, or acknowledged by acks=all. A new leader knows less than the last one: Fetch may tell that, but
    ListOffsets waits until it knows (KIP-207). Where a log starts may differ from replica to replica.
    """

    def __init__(self, topics: Topics, report: Report) -> None:
        super().__init__(topics, report)
        self.on_high: Callable[[TopicPartition, TopicId, int], None] = lambda partition, topic_id, offset: None
        """Called with every high watermark that a client is told, or that follows from what it is told."""

    def acknowledged(self, key: PartitionKey, next_offset: int, log_start: int, asked: Exchange, index: int) -> None:
        self._high[key].sent(index, next_offset)
        self._tell(key, next_offset)

    def _fetched(self, rule: str, known: Rising, key: PartitionKey, value: int, asked: Exchange, index: int) -> None:
        if rule is not LOG_START:
            known.sent(index, value)
        if rule is HIGH_WATERMARK:
            self._tell(key, value)

    def replicas_lost(self, names: Iterable[str]) -> None:
        lost = set(names)
        for known in (self._high, self._stable):
            for key in [key for key in known if self._topics.show(key) in lost]:
                del known[key]

    def _told(self, rule: str, known: Rising, key: PartitionKey, value: int, asked: Exchange, index: int) -> None:
        if rule is LOG_START:
            return
        super()._told(FELL, known, key, value, asked, index)
        if rule is HIGH_WATERMARK:
            self._tell(key, value)

    def _tell(self, key: PartitionKey, offset: int) -> None:
        topic, topic_id = self._topics.place(key, None)
        self.on_high(TopicPartition(topic, key[1]), topic_id, offset)
