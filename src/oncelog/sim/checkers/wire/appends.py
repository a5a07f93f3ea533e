"""W5 and W6: acknowledged records never share an offset, and a batch has one position however often it is sent.

An acks=1 response comes from the page cache: after a restart it proves nothing. A broker that does not sync loses all
acknowledgements in a restart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Final, NamedTuple

from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.records.batch import BatchHeader, CorruptBatch, iter_headers
from oncelog.sim.checkers.wire.append_times import AppendTimes
from oncelog.sim.checkers.wire.exchange import Exchange, PartitionKey, Report, Topics
from oncelog.sim.checkers.wire.watermarks import Watermarks
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse

OVERLAP: Final = "W5 acknowledged offsets overlap"
MOVED: Final = "W6 batch in two places"
_ALL: Final = -1
FOREVER: Final = 1 << 62


class _Range(NamedTuple):
    first: int
    following: int
    certain: bool


class AcknowledgedBatch(NamedTuple):
    """A batch acknowledged with acks=all. Its checksum stands for its bytes."""

    partition: TopicPartition
    topic_id: TopicId
    offset: int
    crc: int
    batch_length: int
    # A DeleteRecords request may have removed everything below this offset.
    deleted_before: int = 0


class Place(NamedTuple):
    """The position of a producer's batch. ``certain``: it survives a restart."""

    offset: int
    certain: bool


# (partition, producer id, epoch, base sequence).
BatchKey = tuple[PartitionKey, int, int, int]


class Appends:
    def __init__(self, topics: Topics, report: Report, watermarks: Watermarks, *, only_certain: bool = False) -> None:
        self._topics = topics
        # The next leader may lack batches acknowledged with acks=1, and its election is not visible on the wire.
        self._only_certain = only_certain
        self._report = report
        self._watermarks = watermarks
        self.times = AppendTimes()
        self._ranges: dict[PartitionKey, list[_Range]] = defaultdict(list)
        self._places: dict[BatchKey, Place] = {}
        self._durable: dict[tuple[PartitionKey, int], AcknowledgedBatch] = {}
        self._trimmed: dict[PartitionKey, int] = {}

    def durable(self) -> list[AcknowledgedBatch]:
        trimmed = self._trimmed
        return [b._replace(deleted_before=trimmed.get(key, 0)) for (key, _), b in self._durable.items()]

    def trim_requested(self, key: PartitionKey, before: int) -> None:
        """A client requests the deletion of records below ``before``; −1: of all readable ones."""
        self._trimmed[key] = max(self._trimmed.get(key, 0), FOREVER if before < 0 else before)

    def restarted(self, *, keeps_all: bool) -> None:
        """Forget batches that may be lost: those not certainly durable."""
        if not keeps_all:
            self._ranges.clear()
            self._places.clear()
            self._durable.clear()
        self._places = {key: place for key, place in self._places.items() if place.certain}
        for key, ranges in self._ranges.items():
            self._ranges[key] = [range_ for range_ in ranges if range_.certain]

    def produced(self, exchange: Exchange, response: ProduceResponse, index: int) -> None:
        request: ProduceRequest = exchange.request
        sent = {
            (topic.name, topic.topic_id, data.index): data.records
            for topic in request.topic_data
            for data in topic.partition_data
        }
        for topic in response.responses:
            for answer in topic.partition_responses:
                key = self._topics.key(topic.name, topic.topic_id, answer.index)
                records = sent.get((topic.name, topic.topic_id, answer.index))
                if key is None or answer.error_code or answer.base_offset < 0 or records is None:
                    continue
                headers = [] if self._only_certain and request.acks != _ALL else _headers(records)
                if headers:
                    received = exchange.received_index
                    self.times.appended(key, topic, answer.index, headers[0], answer.base_offset, received)
                    topic_name_and_id = self._topics.place(key, topic.name)
                    self._acknowledged(
                        key, headers, answer.base_offset, topic_name_and_id, certain=request.acks == _ALL
                    )
                    if request.acks == _ALL:
                        following = answer.base_offset + sum(header.last_offset_delta + 1 for header in headers)
                        self._watermarks.acknowledged(key, following, answer.log_start_offset, exchange, index)

    def _acknowledged(
        self,
        key: PartitionKey,
        headers: list[BatchHeader],
        base_offset: int,
        topic_name_and_id: tuple[TopicName, TopicId],
        *,
        certain: bool,
    ) -> None:
        offset = base_offset
        for header in headers:
            following = offset + header.last_offset_delta + 1
            is_known = self.placed(key, header, offset, certain=certain)
            if not is_known:
                self._occupy(key, _Range(offset, following, certain))
            if certain and not (is_known and (key, offset) in self._durable):
                # A duplicate's acknowledgement is for the first batch, even if its own bytes differ.
                partition = TopicPartition(topic_name_and_id[0], key[1])
                self._durable[key, offset] = AcknowledgedBatch(
                    partition, topic_name_and_id[1], offset, header.crc, header.batch_length
                )
            offset = following

    def placed(self, key: PartitionKey, header: BatchHeader, offset: int, *, certain: bool) -> bool:
        """Record that a batch of an idempotent producer is at ``offset``. Returns True if the batch was known."""
        if header.producer_id < 0 or header.base_sequence < 0:
            return False
        batch = key, header.producer_id, header.producer_epoch, header.base_sequence
        place = self._places.get(batch)
        if place is not None and place.offset != offset:
            producer = f"producer {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}"
            self._report(MOVED, f"{self._topics.describe(key)}: {producer} at {place.offset} and at {offset}")
        self._places[batch] = Place(offset, certain or (place is not None and place.certain))
        return place is not None

    def _occupy(self, key: PartitionKey, added: _Range) -> None:
        ranges = self._ranges[key]
        position = len(ranges)
        if ranges and ranges[-1].first > added.first:
            position = bisect_right(ranges, added)
        for other in ranges[max(position - 1, 0) : position + 1]:
            if other.first < added.following and added.first < other.following:
                ours, theirs = f"{added.first} to {added.following - 1}", f"{other.first} to {other.following - 1}"
                self._report(OVERLAP, f"{self._topics.describe(key)}: {theirs}, then {ours}")
        ranges.insert(position, added)


def _headers(records: object) -> list[BatchHeader]:
    if not isinstance(records, (bytes, bytearray, memoryview)):
        return []
    headers = []
    try:
        for _, header in iter_headers(records):
            headers.append(header)
    except CorruptBatch:
        return []
    return headers
