"""Versions that Apache Kafka 4 and kio no longer have (KIP-896): those before 0.11, of which old clients ask.

Stated as differences to kio's first version, after Apache Kafka 3.9's schemas: whatever that version has the older ones
have too, but for the fields that came later, and beside those that went. The oracle of the tests is Apache Kafka 3.9.1.
"""

from __future__ import annotations

from typing import NamedTuple

from codegen.model import Api, Field, Struct, VersionRange


class OldVersions(NamedTuple):
    """The older versions of one API."""

    first: int
    later: dict[str, int]
    """By "Struct.field": the first version of a field that the oldest does not have."""
    gone: dict[str, tuple[str, Field]]
    """By struct: a field of old versions alone, and the one it stands before."""


def _field(
    name: str, kind: str, last: int, *, first: int = 0, is_array: bool = False, default: str | None = None
) -> Field:
    return Field(name, kind, VersionRange(first, last), is_array=is_array, default=default)


OLD_VERSIONS = {
    "produce": OldVersions(
        0,
        {
            "ProduceRequest.transactional_id": 3,
            "ProduceResponse.throttle_time_ms": 1,
            "PartitionProduceResponse.log_append_time_ms": 2,
        },
        {},
    ),
    "fetch": OldVersions(
        0,
        {
            "FetchRequest.max_bytes": 3,
            "FetchRequest.isolation_level": 4,
            "FetchResponse.throttle_time_ms": 1,
            "PartitionData.last_stable_offset": 4,
            "PartitionData.aborted_transactions": 4,
        },
        {},
    ),
    "list_offsets": OldVersions(
        0,
        {"ListOffsetsPartitionResponse.timestamp": 1, "ListOffsetsPartitionResponse.offset": 1},
        {
            "ListOffsetsPartition": ("", _field("max_num_offsets", "int32", 0, default="1")),
            "ListOffsetsPartitionResponse": ("timestamp", _field("old_style_offsets", "int64", 0, is_array=True)),
        },
    ),
    "offset_commit": OldVersions(
        0,
        {
            "OffsetCommitRequest.generation_id_or_member_epoch": 1,
            "OffsetCommitRequest.member_id": 1,
            "OffsetCommitRequest.retention_time_ms": 2,
        },
        {
            "OffsetCommitRequestPartition": (
                "committed_metadata",
                _field("commit_timestamp", "int64", 1, first=1, default="-1"),
            )
        },
    ),
    "offset_fetch": OldVersions(0, {}, {}),
}
"""By module."""

_WITH_LATER_VERSIONS = {"fetch": {"AbortedTransaction"}}
"""Structs, by module, that no old version has."""


def add_old_versions(api: Api) -> None:
    """Let ``api``, as kio has it, begin with its oldest version."""
    old = OLD_VERSIONS.get(api.module)
    if old is None:
        return
    current = api.versions.first
    unused = set(old.later)
    for struct in api.structs.values():
        if struct.versions.first == current and struct.name not in _WITH_LATER_VERSIONS.get(api.module, ()):
            _extend(struct, current, old)
            unused -= {f"{struct.name}.{field.name}" for field in struct.fields}
    if unused or not set(old.gone) <= set(api.structs):
        raise ValueError(f"{api.module} has no {sorted(unused | set(old.gone) - set(api.structs))}")
    api.baseline = current
    api.versions = VersionRange(old.first, api.versions.last)


def _extend(struct: Struct, current: int, old: OldVersions) -> None:
    struct.versions = VersionRange(old.first, struct.versions.last)
    for field in struct.fields:
        if field.versions.first == current:
            first = old.later.get(f"{struct.name}.{field.name}", old.first)
            field.versions = VersionRange(first, field.versions.last)
            if field.nullable is not None and field.nullable.first == current:
                field.nullable = VersionRange(first, field.nullable.last)
    if struct.name in old.gone:
        before, field = old.gone[struct.name]
        names = [each.name for each in struct.fields if each.tag is None]
        struct.fields.insert(names.index(before) if before else len(names), field)
