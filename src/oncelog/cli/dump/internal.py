"""Records of the internal topics, decoded: ``__consumer_offsets`` and ``__transaction_state``.

What this version cannot read comes out as ``{"unknown": …}`` with the version and the reason.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.ids import CONSUMER_OFFSETS, NO_TOPIC_ID, TRANSACTION_STATE, uuid_text
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_protocol import decode_assignment, decode_subscription
from oncelog.records.internal.group_records import (
    GroupMetadataKey,
    MemberMetadata,
    OffsetCommitKey,
    Unknown,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
)
from oncelog.records.internal.primitives import Reader

TRANSACTION_STATES: Final = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}
_MIN_PARTITIONS_BYTES: Final = 3


def decode_internal(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """Key and value of an internal record in plain words; None for any other topic."""
    if topic == CONSUMER_OFFSETS:
        return _group_record(key, value)
    if topic == TRANSACTION_STATE:
        try:
            return _transaction_record(key, value)
        except CorruptBatch as error:
            return {"unknown": str(error)}
    return None


def _group_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    about = decode_key(key)
    if isinstance(about, OffsetCommitKey):
        row: dict[str, Any] = {"group": about.group, "topic": about.topic, "partition": about.partition}
        if value is None:
            return {"kind": "offset", **row, "deleted": True}
        offset = decode_offset_commit_value(value)
        if isinstance(offset, Unknown):
            return {"kind": "offset", **row, "unknown": offset.reason}
        row |= {
            "committed": offset.offset,
            "leader_epoch": offset.leader_epoch,
            "metadata": offset.metadata,
            "commit_timestamp": offset.commit_timestamp,
        }
        if offset.expire_timestamp >= 0:
            row["expire_timestamp"] = offset.expire_timestamp
        if offset.topic_id != NO_TOPIC_ID:
            row["topic_id"] = uuid_text(offset.topic_id)
        return {"kind": "offset", **row}
    if isinstance(about, GroupMetadataKey):
        if value is None:
            return {"kind": "group", "group": about.group, "deleted": True}
        group = decode_group_metadata_value(value)
        if isinstance(group, Unknown):
            return {"kind": "group", "group": about.group, "unknown": group.reason}
        return {
            "kind": "group",
            "group": about.group,
            "protocol_type": group.protocol_type,
            "generation": group.generation,
            "protocol": group.protocol,
            "leader": group.leader,
            "state_timestamp": group.current_state_timestamp,
            "members": [_member(one, group.protocol_type) for one in group.members],
        }
    return {"kind": "unknown", "unknown": about.reason}


def _member(member: MemberMetadata, protocol_type: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
    }
    if protocol_type == "consumer":
        try:
            row["topics"] = list(decode_subscription(member.subscription).topics) if member.subscription else []
            found = decode_assignment(member.assignment).partitions if member.assignment else ()
            row["partitions"] = [str(one) for one in found]
        except CorruptBatch as error:
            row["unknown"] = str(error)
    return row


def _transaction_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """A transactional id and its state (TransactionLogKey 0, TransactionLogValue 0 and 1)."""
    if key is None:
        raise CorruptBatch("no key")
    reader = Reader(key)
    version = reader.int16()
    if version != 0:
        return {"kind": "unknown", "unknown": f"key of version {version}"}
    row: dict[str, Any] = {"kind": "transaction", "transactional_id": reader.string()}
    if value is None:
        return {**row, "deleted": True}
    version = Reader(value).int16()
    if version not in (0, 1):
        return {**row, "unknown": f"value of version {version}"}
    reader = Reader(value[2:], flexible=version >= 1)
    row |= {
        "producer_id": reader.int64(),
        "producer_epoch": reader.int16(),
        "timeout_ms": reader.int32(),
        "state": TRANSACTION_STATES.get(reader.take(1)[0], "unknown"),
        "partitions": _partitions(reader),
        "last_update_timestamp": reader.int64(),
        "start_timestamp": reader.int64(),
    }
    tags = reader.tagged_fields()
    for tag, name in ((0, "previous_producer_id"), (1, "next_producer_id"), (2, "client_transaction_version")):
        if tag in tags:
            row[name] = int.from_bytes(tags[tag], "big", signed=True)
    return row


def _partitions(reader: Reader) -> list[str]:
    """Topic-partitions of a transaction; the array may be null, which the shared reader's count refuses."""
    size = reader.unsigned_varint() - 1 if reader.flexible else reader.int32()
    if size < 0:
        return []
    if size * _MIN_PARTITIONS_BYTES > reader.left:
        raise CorruptBatch(f"array of {size} elements, {reader.left} bytes left")
    found: list[str] = []
    for _ in range(size):
        topic = reader.string()
        found += [f"{topic}-{reader.int32()}" for _ in range(reader.count(4))]
        reader.tagged_fields()
    return found
