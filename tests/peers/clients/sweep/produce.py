"""Produce and InitProducerId."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from oncelog.records.compression import Codec
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire, batch, versions

FAR_FUTURE_MS: Final = 4_102_444_800_000


def _request(topic: str, topic_id: bytes, records: bytes | None, **fields: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=fields.pop("partition", 0), records=records)
    data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
    return ProduceRequest(topic_data=[data], **{"acks": -1, "timeout_ms": 10_000, **fields})


def _damaged(records: bytes, position: int, value: int) -> bytes:
    return records[:position] + bytes([value]) + records[position + 1 :]


def _refused_batches() -> Iterator[bytes]:
    good = batch(b"v")
    yield b""
    yield good[:40]
    yield good[:-1]
    yield good + b"\0" * 10
    yield good + good
    yield _damaged(good, 20, good[20] ^ 1)  # the CRC
    yield _damaged(good, 16, 1)  # an older format
    yield _damaged(good, 16, 9)  # an unknown format
    yield batch(b"v", control=True)
    yield batch(b"v", timestamp=FAR_FUTURE_MS)
    yield b"\0" * 7 + b"\7" + good[8:]  # a base offset, which producers leave at 0
    yield batch(b"x" * 1_100_000, codec=Codec.NONE)
    yield batch(b"v", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)


def _produce(wire: Wire) -> None:
    topic_id = wire.topic("sp-one", 2)
    compacted = wire.topic("sp-compacted", cleanup_policy="compact")
    stamped = wire.topic("sp-stamped", message_timestamp_type="LogAppendTime")
    small = wire.topic("sp-small", max_message_bytes="200")
    strict = wire.topic("sp-strict", min_insync_replicas="2")
    for version in versions(ProduceRequest):
        for codec in Codec:
            wire.call(_request("sp-one", topic_id, batch(b"v" * 50, b"w", codec=codec)), version)
        for acks in (1, -1, 2, -2):
            wire.call(_request("sp-one", topic_id, batch(b"v"), acks=acks), version)
        wire.call(_request("sp-none", NOWHERE, batch(b"v")), version)
        wire.call(_request("sp-one", topic_id, batch(b"v"), partition=5), version)
        wire.call(_request("sp-one", topic_id, batch(b"v"), partition=-1), version)
        wire.call(_request("sp-compacted", compacted, batch(b"v", key=None)), version)
        wire.call(_request("sp-compacted", compacted, batch(b"v", key=b"k")), version)
        wire.call(_request("sp-stamped", stamped, batch(b"v")), version)
        wire.call(_request("sp-small", small, batch(b"v" * 300)), version)
        wire.call(_request("sp-strict", strict, batch(b"v")), version)
        wire.call(_request("sp-strict", strict, batch(b"v"), acks=1), version)
        for records in _refused_batches():
            wire.call(_request("sp-one", topic_id, records), version)
        wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), version)


def _init_producer_id(wire: Wire) -> None:
    for version in versions(InitProducerIdRequest):
        plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        first = wire.call(plain, version)
        wire.call(plain, version)
        wire.call(
            InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=first.producer_id,
                producer_epoch=first.producer_epoch,
            ),
            version,
        )
        wire.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=5),
            version,
        )
        wire.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0, producer_id=7, producer_epoch=-1),
            version,
        )
        wire.call(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000), version)


def _idempotent(wire: Wire) -> None:
    topic_id = wire.topic("sp-idempotent")
    for version in versions(ProduceRequest):
        producer_id = wire.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        ).producer_id

        def send(
            sequence: int, *, epoch: int = 0, producer: int = producer_id, count: int = 2, at: int = version
        ) -> None:
            records = batch(*[b"v"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
            wire.call(_request("sp-idempotent", topic_id, records), at)

        for sequence in range(0, 14, 2):
            send(sequence)
        for duplicate in (12, 10, 4, 2, 0):
            send(duplicate)
        send(12, count=1)
        send(20)
        send(13)
        send(14, epoch=1)
        send(0, epoch=1)
        send(14)
        send(0, epoch=3)
        send(2, epoch=2)
        send(5, producer=producer_id + 100_000)
        send(0, producer=producer_id + 200_000, epoch=4)
        send(2**31 - 2, producer=producer_id + 300_000)
        send(0, producer=producer_id + 300_000)
        send(-1)
        send(0, epoch=-1)


def _acknowledged_not_at_all(wire: Wire) -> None:
    topic_id = wire.topic("sp-silent")
    for version in versions(ProduceRequest):
        wire.send(_request("sp-silent", topic_id, batch(b"v"), acks=0), version)
        wire.call(_request("sp-silent", topic_id, batch(b"w")), version)
        wire.send(_request("sp-none", NOWHERE, batch(b"v"), acks=0), version)
        if wire.call(_request("sp-silent", topic_id, batch(b"w")), version) is None:
            time.sleep(0.01)


SWEEPS: Final[dict[str, Sweep]] = {
    "produce": _produce,
    "produce-idempotent": _idempotent,
    "produce-silent": _acknowledged_not_at_all,
    "init-producer-id": _init_producer_id,
}
