"""W1 to W4 and R7: high watermark, last stable offset and log start never fall, and acknowledged records are readable.

They are read from Fetch, ListOffsets and Produce responses, per incarnation of a topic. After a broker's restart, in a
new leader epoch, the first two may be lower until the log is durable again.
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
    def __init__(self, topics: Topics, report: Report) -> None:
        self._topics = topics
        self._report = report
        self._high: dict[PartitionKey, Rising] = defaultdict(Rising)
        self._stable: dict[PartitionKey, Rising] = defaultdict(Rising)
        self._start: dict[PartitionKey, Rising] = defaultdict(Rising)

    def restarted(self, *, power_lost: bool) -> None:
        self._high.clear()
        self._stable.clear()
        # Retention does not wait for the disk: a power cut may bring records back until they are removed again. Records
        # removed by DeleteRecords must not come back (H16).
        if power_lost:
            self._start.clear()

    def acknowledged(self, key: PartitionKey, next_offset: int, log_start: int, exchange: Exchange, index: int) -> None:
        """Records below ``next_offset`` were acknowledged with acks=all: the high watermark has passed them."""
        self._high[key].sent(index, next_offset)
        if log_start >= 0:
            self._check_rising(LOG_START, self._start[key], key, log_start, exchange, index)

    def fetched(self, exchange: Exchange, response: FetchResponse, index: int) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                key = self._topics.key(topic.topic, topic.topic_id, data.partition_index)
                if key is None or data.error_code:
                    continue
                high_watermark, last_stable, log_start = (
                    data.high_watermark,
                    data.last_stable_offset,
                    data.log_start_offset,
                )
                for rule, values, value in (
                    (HIGH_WATERMARK, self._high, high_watermark),
                    (LAST_STABLE, self._stable, last_stable),
                    (LOG_START, self._start, log_start),
                ):
                    if value >= 0:
                        self._fetched(rule, values[key], key, value, exchange, index)
                if (last_stable >= 0 and last_stable > high_watermark) or (
                    log_start >= 0 and log_start > high_watermark >= 0
                ):
                    self._report(
                        ORDER,
                        f"{self._topics.describe(key)}: start {log_start}, stable {last_stable}, high {high_watermark}",
                    )

    def listed(self, exchange: Exchange, response: ListOffsetsResponse, index: int) -> None:
        # A ListOffsets response: latest is the high watermark or, with read_committed, the last stable offset.
        times = {(t.name, p.partition_index): p.timestamp for t in exchange.request.topics for p in t.partitions}
        read_committed = exchange.request.isolation_level == 1
        for topic in response.topics:
            for answer in topic.partitions:
                key = self._topics.key(topic.name, bytes(16), answer.partition_index)
                timestamp = times.get((topic.name, answer.partition_index))
                if key is None or answer.error_code or answer.offset == _ERROR:
                    continue
                if timestamp == _EARLIEST:
                    self._check_rising(LOG_START, self._start[key], key, answer.offset, exchange, index)
                elif timestamp == _LATEST and read_committed:
                    self._check_rising(LAST_STABLE, self._stable[key], key, answer.offset, exchange, index)
                elif timestamp == _LATEST:
                    self._check_rising(HIGH_WATERMARK, self._high[key], key, answer.offset, exchange, index)

    def replicas_lost(self, names: Iterable[str]) -> None:
        """The only replicas of topics lost their disk: their ends may be lower."""

    def _fetched(
        self, rule: str, values: Rising, key: PartitionKey, value: int, exchange: Exchange, index: int
    ) -> None:
        self._check_rising(rule, values, key, value, exchange, index)

    def _check_rising(
        self, rule: str, values: Rising, key: PartitionKey, value: int, exchange: Exchange, index: int
    ) -> None:
        earlier = values.before(exchange.received_index)
        if earlier is not None and value < earlier:
            self._report(rule, f"{self._topics.describe(key)}: {earlier}, then {value}")
        values.sent(index, value)


class ClusterWatermarks(Watermarks):
    """R7: ListOffsets never returns less than an earlier response or acks=all acknowledgement of any broker.

    It covers high watermark and last stable offset. A new leader knows less than its predecessor: Fetch may show that,
    but ListOffsets waits (KIP-207). Log starts may differ between replicas.
    """

    def __init__(self, topics: Topics, report: Report) -> None:
        super().__init__(topics, report)
        # Called with every high watermark that a client sees or can conclude.
        self.on_high_watermark: Callable[[TopicPartition, TopicId, int], None] = lambda partition, topic_id, offset: (
            None
        )

    def acknowledged(self, key: PartitionKey, next_offset: int, log_start: int, exchange: Exchange, index: int) -> None:
        self._high[key].sent(index, next_offset)
        self._publish(key, next_offset)

    def _fetched(
        self, rule: str, values: Rising, key: PartitionKey, value: int, exchange: Exchange, index: int
    ) -> None:
        if rule is not LOG_START:
            values.sent(index, value)
        if rule is HIGH_WATERMARK:
            self._publish(key, value)

    def replicas_lost(self, names: Iterable[str]) -> None:
        lost = set(names)
        for values_by_key in (self._high, self._stable):
            for key in [key for key in values_by_key if self._topics.describe(key) in lost]:
                del values_by_key[key]

    def _check_rising(
        self, rule: str, values: Rising, key: PartitionKey, value: int, exchange: Exchange, index: int
    ) -> None:
        if rule is LOG_START:
            return
        super()._check_rising(FELL, values, key, value, exchange, index)
        if rule is HIGH_WATERMARK:
            self._publish(key, value)

    def _publish(self, key: PartitionKey, offset: int) -> None:
        topic, topic_id = self._topics.place(key, None)
        self.on_high_watermark(TopicPartition(topic, key[1]), topic_id, offset)
