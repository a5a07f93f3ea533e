"""How early a record can exist: not before the request that wrote a batch at its offset, or before it.

Indexes are those of the wire. A batch that is sent again may have been written by its first request.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import Any

from oncelog.records.batch import BatchHeader, read_header
from oncelog.records.errors import CorruptBatch
from oncelog.sim.checkers.wire.exchange import Exchange, PartitionKey

# (name and id of the topic as requests have them, partition, producer id and epoch, base sequence).
_BatchId = tuple[str, bytes, int, int, int, int]


class AppendTimes:
    def __init__(self) -> None:
        self._first_sent: dict[_BatchId, int] = {}
        # (offset, index of a request), both rising: records from the offset on did not exist before the request.
        self._points: dict[PartitionKey, list[tuple[int, int]]] = {}

    def earliest(self, key: PartitionKey, offset: int) -> int:
        """The index of a request before which there was no record at the offset; 0 if none is known."""
        points = self._points.get(key, [])
        position = bisect_right(points, offset, key=itemgetter(0))
        return points[position - 1][1] if position else 0

    def requested(self, exchange: Exchange) -> None:
        for topic in exchange.request.topic_data:
            for data in topic.partition_data:
                header = _first_header(data.records)
                if header is not None and header.producer_id >= 0:
                    batch_id = _batch_id(topic.name, topic.topic_id, data.index, header)
                    self._first_sent.setdefault(batch_id, exchange.received_index)

    def appended(
        self, key: PartitionKey, topic: Any, partition: int, header: BatchHeader, offset: int, at: int
    ) -> None:
        """A batch is at an offset for ever, as the answer to the request with the index ``at`` says."""
        sent = self._first_sent.get(_batch_id(topic.name, topic.topic_id, partition, header), at)
        points = self._points.setdefault(key, [])
        if not points or (offset > points[-1][0] and sent > points[-1][1]):
            points.append((offset, sent))


def _first_header(records: Any) -> BatchHeader | None:
    try:
        return read_header(records, 0) if records else None
    except CorruptBatch:
        return None


def _batch_id(name: str, topic_id: bytes, partition: int, header: BatchHeader) -> _BatchId:
    return name, bytes(topic_id), partition, header.producer_id, header.producer_epoch, header.base_sequence
