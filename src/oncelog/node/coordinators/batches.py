"""The batches that coordinator shards append to their logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from oncelog.records.builder import build_batch
from oncelog.records.record import Record

if TYPE_CHECKING:
    from oncelog.core.groups.model import Producer

_BASE_SEQUENCE: Final = 0
"""The base sequence of every batch of transactional offsets, as in Apache Kafka: nobody numbers or checks them."""

KeysAndValues = Sequence[tuple[bytes, bytes | None]]


def batch_of(contents: KeysAndValues, now_ms: int) -> memoryview:
    """A batch of records that nobody's producer wrote."""
    return memoryview(build_batch(_records(contents, now_ms)))


def transactional_batch_of(contents: KeysAndValues, now_ms: int, producer: Producer) -> memoryview:
    """A batch in the transaction of a client's producer."""
    batch = build_batch(
        _records(contents, now_ms),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=_BASE_SEQUENCE,
        transactional=True,
    )
    return memoryview(batch)


def _records(contents: KeysAndValues, now_ms: int) -> list[Record]:
    return [Record(index, now_ms, key, value, ()) for index, (key, value) in enumerate(contents)]
