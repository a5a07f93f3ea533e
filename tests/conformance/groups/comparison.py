"""Records of both coordinators as values, and whether they are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oncelog.core.groups.consumer.records import AnyRecord, encode
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal import consumer_group_records, group_records
from oncelog.records.internal.consumer_group_records import (
    CurrentMemberValue,
    MemberValue,
    RegexValue,
    TargetMemberValue,
    Value,
)
from oncelog.records.internal.consumer_protocol import decode_assignment
from oncelog.records.internal.group_records import GroupMetadataKey, GroupMetadataValue

EncodedRecord = tuple[bytes, bytes | None]


class Different(Exception):
    """The two coordinators disagree."""


def as_bytes(records: list[list[str]]) -> list[EncodedRecord]:
    """The judge's records."""
    return [(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for key, value in records]


def decoded(record: EncodedRecord) -> AnyRecord:
    """A record, which must encode to the bytes that it came as."""
    key_bytes, value_bytes = record
    version = int.from_bytes(key_bytes[:2], "big")
    result: AnyRecord
    if version == group_records.GROUP_METADATA_KEY_VERSION:
        key = group_records.decode_key(key_bytes)
        assert isinstance(key, GroupMetadataKey)
        classic = None if value_bytes is None else group_records.decode_group_metadata_value(value_bytes)
        assert classic is None or isinstance(classic, GroupMetadataValue)
        result = key, classic
    else:
        named = consumer_group_records.decode_key(version, key_bytes[2:])
        value = None if value_bytes is None else consumer_group_records.decode_value(named, value_bytes)
        result = named, value
    assert encode(result) == record, result
    return result


def compare_records(ours: Sequence[AnyRecord], theirs: Sequence[AnyRecord]) -> None:
    """Raises Different unless the records are equal and of kinds in equal order; hash maps order those of a kind."""
    if [type(key) for key, _ in ours] != [type(key) for key, _ in theirs] or _ordered(ours) != _ordered(theirs):
        lines = [f"ours:   {record}" for record in ours] + [f"theirs: {record}" for record in theirs]
        raise Different("\n".join(lines))


def assigned(assignment: bytes) -> object:
    """An assignment of the consumer protocol without the order of its partitions; malformed bytes as they are."""
    try:
        decoded_assignment = decode_assignment(assignment)
    except CorruptBatch:
        return assignment
    return assignment[:2], sorted(decoded_assignment.partitions), decoded_assignment.user_data


def _ordered(records: Sequence[AnyRecord]) -> list[tuple[str, object, object]]:
    comparable = [(type(key).__name__, key, _comparable(value)) for key, value in records]
    return sorted(comparable, key=lambda record: (record[0], record[1]))


def _comparable(value: Value | GroupMetadataValue | None) -> object:
    match value:
        case TargetMemberValue():
            return {topic: tuple(sorted(partitions)) for topic, partitions in value.partitions.items()}
        case CurrentMemberValue():
            return value._replace(state=int(value.state))
        case MemberValue() | RegexValue():
            return value._replace(topics=tuple(sorted(value.topics)))
        case GroupMetadataValue():
            # The leader is the first member in the order of a hash map; the time is that of the last state or record.
            members = [
                (replace(member, assignment=b""), assigned(member.assignment))
                for member in sorted(value.members, key=lambda member: member.member_id)
            ]
            return value.protocol_type, value.generation, value.protocol, members
        case _:
            return value
