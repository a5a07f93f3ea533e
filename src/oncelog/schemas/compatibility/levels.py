"""Levels of compatibility, and what a registry answers about a schema that does not meet the one of its subject."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from oncelog.schemas.compatibility.avro import avro_differences
from oncelog.schemas.compatibility.json_schema import json_differences
from oncelog.schemas.compatibility.protobuf import protobuf_differences
from oncelog.schemas.compatibility.rules import Difference
from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.formats.json_schema.schema import JsonSchema
from oncelog.schemas.formats.parsed import AnySchema
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema

_MAX_SHOWN: Final = 10 * 1024
_MAX_DIFFERENCES: Final = 1000


class Level(StrEnum):
    """BACKWARD: the new schema reads values of the old one; FORWARD: the old schema reads values of the new one; FULL:
    both. TRANSITIVE ones hold for all versions, the others for the latest."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")


def incompatibilities(new: AnySchema, versions: Iterable[tuple[int, AnySchema]], level: Level) -> list[str]:
    """Messages as a registry's ``messages``, empty if the new schema is compatible.

    ``versions`` are those of the subject, the latest first, with their numbers; they are read only as far as needed.
    Raises SchemaError if schemas are too large to compare.
    """
    if level is Level.NONE:
        return []
    for version, old in versions:
        messages = _compare(new, old, version, level)
        if messages:
            return [*messages, f"{{compatibility: '{level}'}}"]
        if not level.is_transitive:
            break
    return []


def _compare(new: AnySchema, old: AnySchema, version: int, level: Level) -> list[str]:
    if new.type is not old.type:
        return ["Incompatible because of different schema type"]
    messages = []
    if not level.startswith("BACKWARD"):
        messages += [difference.describe("old", "new") for difference in differences(old, new)[:_MAX_DIFFERENCES]]
    if not level.startswith("FORWARD"):
        messages += [difference.describe("new", "old") for difference in differences(new, old)[:_MAX_DIFFERENCES]]
    if messages:
        messages.append(f"{{oldSchemaVersion: {version}}}")
        text = old.canonical
        shown = f"'{text}'" if len(text) <= _MAX_SHOWN else f"<truncated> '{text[:_MAX_SHOWN]}...'"
        messages.append(f"{{oldSchema: {shown}}}")
    return messages


def differences(reader: AnySchema, writer: AnySchema) -> list[Difference]:
    """Reasons why values of ``writer`` cannot be read with ``reader``; none if all can. Both are of one format."""
    if isinstance(reader, AvroSchema) and isinstance(writer, AvroSchema):
        return avro_differences(reader.root, writer.root)
    if isinstance(reader, ProtobufSchema) and isinstance(writer, ProtobufSchema):
        return protobuf_differences(reader, writer)
    assert isinstance(reader, JsonSchema)
    assert isinstance(writer, JsonSchema)
    return json_differences(reader.documents, writer.documents)
