"""One record produced. Part of ``changes``, and by its rule."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.producer import Producer
from oncelog.client.errors import ClientError
from oncelog.client.machine.producer import Delivered, Failed, Outcome, ProducerSettings
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, confirmed
from oncelog.records.record import Headers

DELIVERY_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record as it was shown, and where it goes."""

    where: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def produce_one(client: Client, permit: Permit, changes: Changes, new: NewRecord, typed: str) -> int:
    """Append a record, once; its offset, −1 where the broker does not say. The audit has sizes and digests, and no
    content. Raises ClientError, which says if it may have been written nonetheless."""
    confirmed(typed, new.where.topic, "topic")
    details = {
        "topic": new.where.topic,
        "partition": new.where.partition,
        "key": _digest(new.key),
        "value": _digest(new.value),
        "headers": [name for name, _ in new.headers],
    }
    return changes.noted(permit, "produce", details, lambda: _append(client, new))


def _append(client: Client, new: NewRecord) -> int:
    outcomes: list[Outcome] = []
    settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=DELIVERY_MS)
    with Producer(client, settings, on_outcome=outcomes.append) as producer:
        topic, partition = new.where
        producer.send(topic, new.value, key=new.key, partition=partition, headers=new.headers)
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            written = "may have been written, or not" if outcome.maybe_appended else "is not written"
            raise ClientError(f"the record {written}: {outcome.message or f'error {outcome.error_code}'}")
        if isinstance(outcome, Delivered):
            return outcome.base_offset
    raise ClientError("the broker has said nothing about the record")


def _digest(data: bytes | None) -> dict[str, object] | None:
    return None if data is None else {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
