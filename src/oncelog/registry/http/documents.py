"""JSON documents of answers, in the form of Confluent's registry."""

from __future__ import annotations

from typing import Any

from oncelog.registry.topic_records import Version, schema_fields
from oncelog.schemas.schema import Schema

Document = dict[str, Any]


def schema_document(version: Version) -> Document:
    """The schema without its place, as under an id."""
    schema = version.schema
    document: Document = {"guid": str(version.guid), "schemaType": schema.type.value, "schema": schema.text}
    document |= schema_fields(schema)
    if version.timestamp_ms >= 0:
        document["ts"] = version.timestamp_ms
    return document | {"deleted": version.deleted}


def version_document(version: Version) -> Document:
    place = {"subject": version.subject, "version": version.version, "id": version.id}
    return place | schema_document(version)


def registered_document(version: Version, sent: Schema) -> Document:
    """The answer to a registration: with the schema only if the registry added something to it.

    Clients that get a schema here use its text from then on, some in a form that they did not send.
    """
    schema = version.schema
    place = {"id": version.id, "version": version.version, "guid": str(version.guid)}
    is_complete = bool(sent.text.strip()) and (sent.metadata, sent.rule_set) == (schema.metadata, schema.rule_set)
    return place if is_complete else place | schema_document(version)
