"""Avro types to JSON, as Java's Schema.toString writes them: the text that a registry stores and compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.schemas.formats import json_text
from oncelog.schemas.formats.avro.defaults import normalized_default
from oncelog.schemas.formats.avro.types import (
    COMPLEX,
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Union,
)

_TYPE_NAMES: Final = PRIMITIVES | COMPLEX


def canonical_text(root: AvroType, referenced: frozenset[str] = frozenset()) -> str:
    """``referenced`` are full names that are written as names only, never as their definitions."""
    return json_text.write(_Writer(referenced, normalize=False).type(root, None))


def normalized_text(root: AvroType, referenced: frozenset[str] = frozenset()) -> str:
    """The same for schemas that differ only in the order of attributes and aliases, and in empty docs."""
    return json_text.write(_Writer(referenced, normalize=True).type(root, None))


class _Writer:
    def __init__(self, referenced: frozenset[str], *, normalize: bool) -> None:
        self._known = set(referenced)
        self._normalize = normalize

    def type(self, kind: AvroType, namespace: str | None) -> Any:
        if isinstance(kind, Union):
            return [self.type(branch, namespace) for branch in kind.branches]
        if isinstance(kind, Array):
            items = self.type(kind.items, namespace)
            return {"type": "array", "items": items, **self._properties(kind)}
        if isinstance(kind, Map):
            values = self.type(kind.values, namespace)
            return {"type": "map", "values": values, **self._properties(kind)}
        if isinstance(kind, Named):
            return self._named(kind, namespace)
        return {"type": kind.kind, **self._properties(kind)} if kind.properties else kind.kind

    def _named(self, named: Named, namespace: str | None) -> Any:
        if named.full_name in self._known:
            return _qualified(named.full_name, namespace)
        self._known.add(named.full_name)
        kind = "error" if isinstance(named, Record) and named.is_error else named.kind
        written: dict[str, Any] = {"type": kind, "name": named.simple_name}
        if named.namespace != namespace:
            written["namespace"] = named.namespace or ""
        if named.doc is not None and (named.doc or not self._normalize):
            written["doc"] = named.doc
        if isinstance(named, Record):
            written["fields"] = [self._field(field, named.namespace) for field in named.fields]
        elif isinstance(named, Enum):
            written["symbols"] = named.symbols
            if named.default is not None:
                written["default"] = named.default
        elif isinstance(named, Fixed):
            written["size"] = named.size
        written.update(self._properties(named))
        if named.aliases:
            aliases = sorted(named.aliases, key=json_text.utf16) if self._normalize else named.aliases
            written["aliases"] = [_qualified(alias, named.namespace) for alias in aliases]
        return written

    def _field(self, field: Field, namespace: str | None) -> dict[str, Any]:
        written: dict[str, Any] = {"name": field.name, "type": self.type(field.type, namespace)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            default = field.default
            written["default"] = normalized_default(field.type, default) if self._normalize else default
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = sorted(field.aliases, key=json_text.utf16) if self._normalize else field.aliases
        properties = field.properties
        written.update(_sorted(properties) if self._normalize else properties)
        return written

    def _properties(self, kind: AvroType) -> Mapping[str, Any]:
        if not self._normalize:
            return kind.properties
        leading = ["logicalType"] if kind.properties.get("logicalType") in _LOGICAL else []
        if kind.properties.get("logicalType") == "decimal":
            leading += ["precision"] + (["scale"] if kind.properties.get("scale", 0) != 0 else [])
        chosen = {key: kind.properties[key] for key in leading if key in kind.properties}
        return {**chosen, **{key: value for key, value in _sorted(kind.properties).items() if key not in chosen}}


_LOGICAL: Final = frozenset(
    {
        "decimal", "big-decimal", "duration", "uuid", "date", "time-millis", "time-micros",
        "timestamp-millis", "timestamp-micros", "timestamp-nanos",
        "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
    }
)  # fmt: skip


def _qualified(full_name: str, namespace: str | None) -> str:
    space, _, simple = full_name.rpartition(".")
    return simple if space and space == namespace and simple not in _TYPE_NAMES else full_name


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value, key=json_text.utf16)}
    return [_sorted(element) for element in value] if isinstance(value, list) else value
