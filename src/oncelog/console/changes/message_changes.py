"""The audited change that produces one record; the rule is that of ``audited_changes``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.producer import Producer
from oncelog.client.errors import ClientError
from oncelog.client.machine.pending_batch import BatchOutcome, Delivered, Failed
from oncelog.client.machine.producer import ProducerSettings
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, confirmed
from oncelog.records.record import Headers

DELIVERY_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record as the page showed it, and its destination."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def produce_one(client: Client, permit: Permit, changes: Changes, new: NewRecord, typed: str) -> int:
    """Append one record and return its offset, −1 if the broker does not report it. The audit log has sizes and
    digests, no content. Raises ClientError, which says whether the record may have been written."""
    confirmed(typed, new.partition.topic, "topic")
    details = {
        "topic": new.partition.topic,
        "partition": new.partition.partition,
        "key": _digest(new.key),
        "value": _digest(new.value),
        "headers": [name for name, _ in new.headers],
    }
    return changes.noted(permit, "produce", details, lambda: _append(client, new))


def _append(client: Client, new: NewRecord) -> int:
    outcomes: list[BatchOutcome] = []
    settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=DELIVERY_MS)
    with Producer(client, settings, on_outcome=outcomes.append) as producer:
        topic, partition = new.partition
        producer.send(topic, new.value, key=new.key, partition=partition, headers=new.headers)
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            written = "may or may not have been written" if outcome.maybe_appended else "was not written"
            raise ClientError(f"the record {written}: {outcome.message or f'error {outcome.error_code}'}")
        if isinstance(outcome, Delivered):
            return outcome.base_offset
    raise ClientError("the broker did not answer for the record")


def _digest(data: bytes | None) -> dict[str, object] | None:
    return None if data is None else {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
