"""Versions that came after kio: those of Apache Kafka 4.4, of which kio 0.6.5 knows nothing.

Stated as differences to kio's last version. The oracle of the tests is Apache Kafka 4.4.0. An entry goes when kio has
the version.
"""

from __future__ import annotations

from typing import NamedTuple

from codegen.model import Api, Field, Struct, VersionRange


class NewerVersions(NamedTuple):
    """The newest version of one API."""

    last: int
    added: dict[str, list[tuple[str, Field]]]
    """By struct: the fields that the version adds, each with the name of the one that it stands behind."""
    ended: frozenset[str] = frozenset()
    """Fields that it no longer has, as "Struct.field"."""


def _field(name: str, kind: str, version: int, *, nullable: bool = False, default: str | None = None) -> Field:
    versions = VersionRange(version, version)
    return Field(name, kind, versions, nullable=versions if nullable else None, default=default)


def _null_string(name: str, version: int) -> Field:
    return _field(name, "string", version, nullable=True, default="None")


NEWER_VERSIONS = {
    # KIP-1242
    "api_versions": NewerVersions(
        5,
        {
            "ApiVersionsRequest": [
                ("client_software_version", _null_string("cluster_id", 5)),
                ("cluster_id", _field("node_id", "int32", 5, default="-1")),
            ]
        },
    ),
    # KIP-1319
    "txn_offset_commit": NewerVersions(
        6,
        {
            "TxnOffsetCommitRequestTopic": [("name", _field("topic_id", "uuid", 6))],
            "TxnOffsetCommitResponseTopic": [("name", _field("topic_id", "uuid", 6))],
        },
        frozenset({"TxnOffsetCommitRequestTopic.name", "TxnOffsetCommitResponseTopic.name"}),
    ),
    "delete_groups": NewerVersions(3, {"DeletableGroupResult": [("error_code", _null_string("error_message", 3))]}),
}
"""By module."""


def add_newer_versions(api: Api) -> None:
    """Let ``api``, as kio has it, end with its newest version. Raises ValueError when kio has it by now."""
    newer = NEWER_VERSIONS.get(api.module)
    if newer is None:
        return
    current = api.versions.last
    if current != newer.last - 1:
        raise ValueError(f"{api.module} has version {current} in kio: check its entry in NEWER_VERSIONS")
    for struct in api.structs.values():
        if struct.versions.last == current:
            _extend(struct, current, newer)
    for name, fields in newer.added.items():
        struct = api.structs[name]
        for behind, field in fields:
            struct.fields.insert([each.name for each in struct.fields].index(behind) + 1, field)
    api.versions = VersionRange(api.versions.first, newer.last)


def _extend(struct: Struct, current: int, newer: NewerVersions) -> None:
    struct.versions = VersionRange(struct.versions.first, newer.last)
    for field in struct.fields:
        if field.versions.last == current and f"{struct.name}.{field.name}" not in newer.ended:
            field.versions = VersionRange(field.versions.first, newer.last)
            if field.nullable is not None and field.nullable.last == current:
                field.nullable = VersionRange(field.nullable.first, newer.last)
