"""Default values of fields: whether they fit a type, and how a normalised schema writes them."""

from __future__ import annotations

from typing import Any

from oncelog.schemas.formats.avro.types import NO_DEFAULT, Array, AvroType, Map, Record, Union
from oncelog.schemas.formats.limits import MAX_DEFAULT_VALUES, MAX_DEPTH
from oncelog.schemas.schema import SchemaError


class DefaultCheck:
    """Checks that defaults fit their types. The default of a record contains those of its fields, and so on: it may be
    exponentially longer than the schema, so the values of all defaults are counted."""

    def __init__(self) -> None:
        self.values = 0

    def is_valid(self, kind: AvroType, value: Any, depth: int = 0) -> bool:
        """Follows the specification's table; the default of a union fits any branch (since Avro 1.12)."""
        self.values += 1
        if self.values > MAX_DEFAULT_VALUES:
            raise SchemaError(f"the defaults of the schema have more than {MAX_DEFAULT_VALUES} values in all")
        if depth > MAX_DEPTH:  # a record whose default needs the same default
            return False
        depth += 1
        if isinstance(kind, Union):
            return any(self.is_valid(branch, value, depth) for branch in kind.branches)
        if isinstance(kind, Array):
            return isinstance(value, list) and all(self.is_valid(kind.items, element, depth) for element in value)
        if isinstance(kind, Map):
            values = value.values() if isinstance(value, dict) else [NO_DEFAULT]
            return all(self.is_valid(kind.values, element, depth) for element in values)
        if isinstance(kind, Record):
            return isinstance(value, dict) and all(
                self.is_valid(field.type, value.get(field.name, field.default), depth) for field in kind.fields
            )
        return _is_valid_scalar(kind.kind, value)


def _is_valid_scalar(kind: str, value: Any) -> bool:
    if kind in {"string", "bytes", "enum", "fixed"}:
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if kind in {"float", "double"}:
        return True
    bits = 31 if kind == "int" else 63
    return isinstance(value, int) and -(1 << bits) <= value < 1 << bits


def normalized_default(kind: AvroType, value: Any) -> Any:
    """The default with its keys in order and its numbers as its type has them: 1 for a double is 1.0."""
    if isinstance(kind, Union):
        branch = next((branch for branch in kind.branches if DefaultCheck().is_valid(branch, value)), None)
        return value if branch is None else normalized_default(branch, value)
    if isinstance(kind, Array):
        return [normalized_default(kind.items, element) for element in value]
    if isinstance(kind, Map):
        return {key: normalized_default(kind.values, value[key]) for key in sorted(value)}
    if isinstance(kind, Record):
        defaults = {field.name: value.get(field.name, field.default) for field in kind.fields}
        types = {field.name: field.type for field in kind.fields}
        return {
            name: normalized_default(types[name], defaults[name])
            for name in sorted(defaults)
            if defaults[name] is not NO_DEFAULT
        }
    return float(value) if kind.kind in {"float", "double"} and not isinstance(value, str) else value
