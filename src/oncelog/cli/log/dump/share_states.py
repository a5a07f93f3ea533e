"""Records of ``__share_group_state``, decoded: snapshots and updates of share partitions' states (KIP-932)."""

from __future__ import annotations

from typing import Any

from oncelog.base.ids import uuid_text
from oncelog.core.share.model import RecordState
from oncelog.records.internal.share_state_records import (
    NO_COUNT,
    SnapshotKey,
    StateBatch,
    Unknown,
    decode_key,
    decode_value,
)


def share_state_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    name = decode_key(key)
    if isinstance(name, Unknown):
        return {"kind": "unknown", "unknown": name.reason}
    row: dict[str, Any] = {
        "kind": "share_snapshot" if isinstance(name, SnapshotKey) else "share_update",
        "group": name.group,
        "topic_id": uuid_text(name.topic_id),
        "partition": name.partition,
    }
    if value is None:
        return {**row, "deleted": True}
    content = decode_value(name, value)
    if isinstance(content, Unknown):
        return {**row, "value_bytes": len(value), "unknown": content.reason}
    fields = content._asdict()
    if fields["delivery_complete_count"] == NO_COUNT:
        del fields["delivery_complete_count"]
    return row | {**fields, "batches": [_batch(batch) for batch in content.batches]}


def _batch(batch: StateBatch) -> dict[str, Any]:
    state = batch.delivery_state
    return {
        "first_offset": batch.first_offset,
        "last_offset": batch.last_offset,
        "state": RecordState(state).name if state in [*RecordState] else f"UNKNOWN ({state})",
        "delivery_count": batch.delivery_count,
    }
