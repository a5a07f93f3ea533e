"""Records of the internal topics, decoded: ``__consumer_offsets``, ``__transaction_state``, ``__share_group_state``.

Unreadable records become ``{"unknown": …}`` with the version and the reason. Of streams groups (KIP-1071) only keys are
read: values have a schema for each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TOPIC_ID,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    TopicId,
    uuid_text,
)
from oncelog.base.notation.json_values import to_json
from oncelog.cli.log.dump.share_states import share_state_record
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal import consumer_group_records, share_group_records, transaction_records
from oncelog.records.internal.consumer_group_records import ClassicMemberValue
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
from oncelog.records.internal.share_group_records import NamedPartitions, ShareKey

_KEY_VERSIONS: Final[Mapping[type, int]] = consumer_group_records.KEY_VERSIONS | share_group_records.KEY_VERSIONS
_TAGGED: Final = {
    "previous_producer_id": NO_PRODUCER_ID,
    "next_producer_id": NO_PRODUCER_ID,
    "client_transaction_version": 0,
    "next_producer_epoch": NO_PRODUCER_EPOCH,
}
"""Values that are left out because they are defaults."""


def decode_internal(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """Key and value of a record of an internal topic, as JSON values; None for any other topic."""
    if topic == CONSUMER_OFFSETS:
        return _group_record(key, value)
    if topic == TRANSACTION_STATE:
        return _transaction_record(key, value)
    if topic == SHARE_GROUP_STATE:
        return share_state_record(key, value)
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
            "members": [_member(member, group.protocol_type) for member in group.members],
        }
    if isinstance(about, Unknown):
        newer = _newer_group_record(about.version, key, value)
        return {"kind": "unknown", "unknown": about.reason} if newer is None else newer
    return _newer_record(about, value)


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
            partitions = decode_assignment(member.assignment).partitions if member.assignment else ()
            row["partitions"] = [str(partition) for partition in partitions]
        except CorruptBatch as error:
            row["unknown"] = str(error)
    return row


def _newer_record(key: consumer_group_records.Key | ShareKey, value: bytes | None) -> dict[str, Any]:
    """A record of a group of the consumer protocol (KIP-848) or of a share group (KIP-932)."""
    kind, further = _KINDS[_KEY_VERSIONS[type(key)]]
    row: dict[str, Any] = {"kind": kind, "group": key.group}
    if further is not None:
        row[further] = key[-1]
    if value is None:
        return {**row, "deleted": True}
    try:
        if isinstance(key, ShareKey):
            decoded: NamedTuple | None = share_group_records.decode_value(key, value)
        else:
            decoded = consumer_group_records.decode_value(key, value)
    except CorruptBatch as error:
        return {**row, "value_bytes": len(value), "unknown": str(error)}
    if decoded is None:
        return {**row, "value_bytes": len(value)}
    fields = decoded._asdict()
    # As for members of classic groups.
    if "client_host" in fields:
        fields["host"] = fields.pop("client_host")
    return row | {name: _FIELDS.get(name, to_json)(field) for name, field in fields.items()}


def _classic_member(classic: ClassicMemberValue | None) -> dict[str, Any] | None:
    if classic is None:
        return None
    offers = [{"name": offer.name, "topics": _topics_offered(offer.metadata)} for offer in classic.protocols]
    return {"session_timeout_ms": classic.session_timeout_ms, "protocols": offers}


def _topics_offered(metadata: bytes) -> list[str] | None:
    try:
        return list(decode_subscription(metadata).topics)
    except CorruptBatch:
        return None


def _partitions(assignment: Mapping[TopicId, Sequence[int] | Mapping[int, int]]) -> list[dict[str, Any]]:
    """Partitions by topic id; those of a current assignment have the epoch in which the member got each."""
    return [
        {"topic_id": uuid_text(topic), "partitions": to_json(partitions)} for topic, partitions in assignment.items()
    ]


def _named_partitions(topics: Mapping[TopicId, NamedPartitions]) -> list[dict[str, Any]]:
    return [
        {"topic_id": uuid_text(topic), "topic": named.name, "partitions": list(named.partitions)}
        for topic, named in topics.items()
    ]


def _member_state(code: int) -> str:
    from oncelog.core.groups.modern.members import MemberState

    return MemberState(code).name if code in [*MemberState] else f"UNKNOWN ({code})"


_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    "classic": _classic_member,
    "partitions": _partitions,
    "assigned": _partitions,
    "pending_revocation": _partitions,
    "state": _member_state,
    "initializing": _named_partitions,
    "initialized": _named_partitions,
    "deleting": lambda topics: [{"topic_id": uuid_text(topic), "topic": name} for topic, name in topics.items()],
}
"""Fields of values with a form of their own in JSON."""


def _transaction_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    name = transaction_records.decode_key(key)
    if not isinstance(name, str):
        return {"kind": "unknown", "unknown": name.reason}
    row: dict[str, Any] = {"kind": "transaction", "transactional_id": name}
    if value is None:
        return {**row, "deleted": True}
    held = transaction_records.decode_value(value)
    if isinstance(held, transaction_records.Unknown):
        return {**row, "unknown": held.reason}
    row |= {
        "producer_id": held.producer_id,
        "producer_epoch": held.producer_epoch,
        "timeout_ms": held.timeout_ms,
        "state": transaction_records.STATE_NAMES[held.status],
        "partitions": [f"{topic}-{index}" for topic, indexes in held.partitions or () for index in indexes],
        "last_update_timestamp": held.last_update_timestamp,
        "start_timestamp": held.start_timestamp,
    }
    tagged = held._asdict()
    return row | {name: tagged[name] for name, default in _TAGGED.items() if tagged[name] != default}


_MEMBER: Final = "member_id"
_KINDS: Final[dict[int, tuple[str, str | None]]] = {
    3: ("consumer_group", None),
    4: ("consumer_group_partitions", None),
    5: ("consumer_group_member", _MEMBER),
    6: ("consumer_group_target_assignment", None),
    7: ("consumer_group_target_assignment_member", _MEMBER),
    8: ("consumer_group_current_assignment", _MEMBER),
    10: ("share_group_member", _MEMBER),
    11: ("share_group", None),
    12: ("share_group_target_assignment", None),
    13: ("share_group_target_assignment_member", _MEMBER),
    14: ("share_group_current_assignment", _MEMBER),
    15: ("share_group_partitions", None),
    16: ("consumer_group_regular_expression", "regular_expression"),
    17: ("streams_group", None),
    19: ("streams_group_member", _MEMBER),
    20: ("streams_group_target_assignment", None),
    21: ("streams_group_target_assignment_member", _MEMBER),
    22: ("streams_group_current_assignment", _MEMBER),
    23: ("streams_group_topology", None),
}
"""Kinds by the number that a key begins with, each with the name of the field behind the group's id."""


def _newer_group_record(number: int | None, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """The kind of a record and the names in its key; None for a key that is none of these."""
    if key is None or number not in _KINDS:
        return None
    kind, further = _KINDS[number]
    reader = Reader(key[2:])
    try:
        row: dict[str, Any] = {"kind": kind, "group": reader.string()}
        if further is not None:
            row[further] = reader.string()
    except CorruptBatch as error:
        return {"kind": kind, "unknown": str(error)}
    return {**row, "deleted": True} if value is None else {**row, "value_bytes": len(value)}
