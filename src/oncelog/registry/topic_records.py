"""The records of `_schemas` as Confluent writes them: JSON keys and values, by the key's `keytype`.

A value that cannot be read is an error of that record alone: a newer registry may have written it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from oncelog.base.units import INT32_MAX
from oncelog.registry.guids import guid_of
from oncelog.registry.metadata import InvalidMetadata, check_metadata, check_rule_set
from oncelog.schemas.schema import Reference, Schema, SchemaType

TOPIC: Final = "_schemas"
MAGICS: Final = (0, 1)
"""Versions of a key's format. Confluent writes 1 for schemas, 0 for others and by old registries, and reads both."""
Document = Mapping[str, Any]


class KeyType(StrEnum):
    SCHEMA = "SCHEMA"
    CONFIG = "CONFIG"
    MODE = "MODE"
    NOOP = "NOOP"
    DELETE_SUBJECT = "DELETE_SUBJECT"
    CLEAR_SUBJECT = "CLEAR_SUBJECT"
    CONTEXT = "CONTEXT"


class Key(NamedTuple):
    """``subject`` is None for the global config and mode; for a context it is the context's name."""

    type: KeyType
    subject: str | None = None
    version: int = 0


NOOP: Final = Key(KeyType.NOOP)


class UnreadableRecord(ValueError):
    """A key or value that is not a registry's, or that a newer registry wrote."""


@dataclass(frozen=True, slots=True)
class Version:
    """The value of a schema's record. Without ``guid`` in the record it follows from the schema."""

    subject: str
    version: int
    id: int
    schema: Schema
    guid: UUID
    deleted: bool = False
    timestamp_ms: int = -1


Value = Version | Document
"""The value of a schema's record, or the JSON of another one."""


class TopicRecord(NamedTuple):
    """A record to write, or one that was read; without a value it deletes."""

    key: Key
    value: Value | None


def encode_key(key: Key) -> bytes:
    document: dict[str, object] = {"keytype": key.type.value}
    if key.type is KeyType.CONTEXT:
        document |= {"tenant": "default", "context": key.subject}
        # Jackson writes the inherited field last.
        return _json(document | {"magic": 0})
    if key.subject is not None:
        document["subject"] = key.subject
    if key.type is KeyType.SCHEMA:
        document["version"] = key.version
    return _json(document | {"magic": int(key.type is KeyType.SCHEMA)})


def decode_key(data: bytes | None) -> Key:
    """Raises UnreadableRecord."""
    document = _document(data or b"")
    try:
        kind = KeyType(document.get("keytype", ""))
    except ValueError:
        raise UnreadableRecord(f"the key type {document.get('keytype')!r} is unknown") from None
    magic = document.get("magic", MAGICS[0])
    if type(magic) is not int or magic not in MAGICS:
        raise UnreadableRecord(f"a key of type {kind.value} has the magic {magic!r}, and this version reads 0 and 1")
    name = document.get("context" if kind is KeyType.CONTEXT else "subject")
    version = document.get("version", 0) if kind is KeyType.SCHEMA else 0
    is_named = isinstance(name, str) or (name is None and kind in (KeyType.CONFIG, KeyType.MODE, KeyType.NOOP))
    if not is_named or type(version) is not int:
        raise UnreadableRecord(f"a key of type {kind.value} has no subject or no version")
    return Key(kind, name, version)


def encode_value(key: Key, value: Value) -> bytes:
    if not isinstance(value, Version):
        return _json(value)
    schema = value.schema
    document: dict[str, object] = {"subject": value.subject, "version": value.version, "id": value.id}
    document["md5"] = base64.b64encode(value.guid.bytes).decode()
    document["schema"] = schema.text
    if schema.type is not SchemaType.AVRO:
        document["schemaType"] = schema.type.value
    document |= schema_fields(schema)
    return _json(document | {"deleted": value.deleted})


def decode_value(key: Key, data: bytes, timestamp_ms: int = -1) -> Value:
    """Raises UnreadableRecord."""
    document = _document(data)
    if key.type is not KeyType.SCHEMA:
        return document
    schema_id: Any = document.get("id")
    text = document.get("schema")
    is_numbered = type(schema_id) is int and 0 <= schema_id <= INT32_MAX and 0 < key.version <= INT32_MAX
    if not is_numbered or not isinstance(text, str) or key.subject is None:
        raise UnreadableRecord(f"version {key.version} of {key.subject} has no valid number, no id or no schema")
    schema = read_schema(document)
    guid = _guid(document.get("md5")) or guid_of(schema)
    return Version(
        key.subject, key.version, schema_id, schema, guid, bool(document.get("deleted", False)), timestamp_ms
    )


def read_schema(document: Document) -> Schema:
    """The schema of a record or a request. Raises UnreadableRecord."""
    try:
        kind = SchemaType(document.get("schemaType") or SchemaType.AVRO)
    except ValueError:
        raise UnreadableRecord(f"Invalid schema type {document['schemaType']}") from None
    text, metadata = document.get("schema"), document.get("metadata")
    rule_set = document.get("ruleSet")
    if not isinstance(text, str | None):
        raise UnreadableRecord("the field schema has to be text")
    for name, value in (("metadata", metadata), ("ruleSet", rule_set)):
        if not isinstance(value, dict | None):
            raise UnreadableRecord(f"the field {name} has to be an object")
    try:
        check_metadata(metadata)
        check_rule_set(rule_set)
    except InvalidMetadata as error:
        raise UnreadableRecord(str(error)) from None
    return Schema(text or "", kind, _references(document.get("references")), metadata, rule_set)


def schema_fields(schema: Schema) -> dict[str, object]:
    """The optional fields of a schema, in records and answers alike."""
    fields: dict[str, object] = {}
    if schema.references:
        fields["references"] = [reference_document(reference) for reference in schema.references]
    if schema.metadata is not None:
        fields["metadata"] = schema.metadata
    if schema.rule_set is not None:
        fields["ruleSet"] = schema.rule_set
    return fields


def reference_document(reference: Reference) -> dict[str, object]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def _references(value: object) -> tuple[Reference, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UnreadableRecord("the field references has to be a list of objects with name, subject and version")
    references = []
    for item in value:
        name, subject, version = item.get("name"), item.get("subject"), item.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
            raise UnreadableRecord("a reference has to have a name, a subject and a version")
        references.append(Reference(name, subject, version))
    return tuple(references)


def _guid(md5: object) -> UUID | None:
    try:
        return UUID(bytes=base64.b64decode(md5, validate=True)) if isinstance(md5, str) else None
    except ValueError:
        return None


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise UnreadableRecord("the record is not JSON") from None
    if not isinstance(document, dict):
        raise UnreadableRecord("the record is not a JSON object")
    return document


def _json(document: Mapping[str, Any]) -> bytes:
    # A lone surrogate, which JSON can escape, has no UTF-8.
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
