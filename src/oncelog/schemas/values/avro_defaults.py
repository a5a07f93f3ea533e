"""Defaults of fields as values: fastavro would return their JSON, without the defaults within them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from oncelog.schemas.formats.avro.defaults import DefaultCheck
from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.formats.avro.types import NO_DEFAULT, Array, AvroType, Map, Record, Union


def with_default_values(schema: AvroSchema) -> Any:
    """The schema as fastavro has it, with values for the JSON of its defaults."""
    values = {
        (record.full_name, field.name): default_value(field.type, field.default)
        for record in _records(schema.root, set())
        for field in record.fields
        if field.default is not NO_DEFAULT
    }
    return replaced(schema.fastavro, values) if values else schema.fastavro


def default_value(kind: AvroType, value: Any) -> Any:
    """A default in JSON, which is valid for its type, as fastavro reads such a value."""
    if isinstance(kind, Union):
        branch = next(branch for branch in kind.branches if DefaultCheck().is_valid(branch, value))
        return default_value(branch, value)
    if isinstance(kind, Array):
        return [default_value(kind.items, element) for element in value]
    if isinstance(kind, Map):
        return {key: default_value(kind.values, element) for key, element in value.items()}
    if isinstance(kind, Record):
        return {field.name: default_value(field.type, value.get(field.name, field.default)) for field in kind.fields}
    if kind.kind in ("float", "double"):
        return float(value)
    return _logical(kind, value.encode("latin-1") if kind.kind in ("bytes", "fixed") else value)


def _logical(kind: AvroType, value: Any) -> Any:
    if "logicalType" not in kind.properties:
        return value
    import fastavro

    named = {name: getattr(kind, name) for name in ("size", "symbols") if hasattr(kind, name)}
    schema = {"type": kind.kind, "name": "Default", **named, **kind.properties}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, value)
    data.seek(0)
    return fastavro.schemaless_reader(data, schema, None)


def _records(kind: AvroType, seen: set[int]) -> Iterator[Record]:
    waiting = [kind]
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        if isinstance(kind, Record):
            yield kind
            waiting += [field.type for field in kind.fields]
        elif isinstance(kind, Union):
            waiting += kind.branches
        elif isinstance(kind, Array | Map):
            waiting.append(kind.items if isinstance(kind, Array) else kind.values)


def replaced(node: Any, values: dict[tuple[str, str], Any]) -> Any:
    """A schema as fastavro has it, with other defaults by record and field."""
    if isinstance(node, list):
        return [replaced(element, values) for element in node]
    if not isinstance(node, dict):
        return node
    copy = {
        key: replaced(element, values) if key in ("type", "items", "values", "fields") else element
        for key, element in node.items()
    }
    if "__named_schemas" in node:
        copy["__named_schemas"] = {name: replaced(named, values) for name, named in node["__named_schemas"].items()}
    for field in copy.get("fields", ()):
        if (node["name"], field["name"]) in values:
            field["default"] = values[node["name"], field["name"]]
    return copy
