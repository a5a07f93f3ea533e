"""Avro's JSON to types: what Java's Avro 1.12 accepts, with the strict rules for new schemas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oncelog.schemas.formats import json_text
from oncelog.schemas.formats.avro.defaults import DefaultCheck
from oncelog.schemas.formats.avro.text import canonical_text
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
from oncelog.schemas.formats.limits import Budget, check_depth
from oncelog.schemas.schema import SchemaError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MAX_FIXED: Final = 2**31 - 1
_RESERVED: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_ENUM_RESERVED: Final = _RESERVED | {"default"}
_FIELD_RESERVED: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})


class Parser:
    """Parses the texts of a schema and of those it references, in their order; they share their names."""

    def __init__(self) -> None:
        self.named: dict[str, Named] = {}
        self._budget = Budget()
        self._defaults = DefaultCheck()

    def parse(self, text: str) -> AvroType:
        """Raises SchemaError."""
        value = json_text.read(text)
        if isinstance(value, str) and value not in PRIMITIVES and value not in self.named:
            raise SchemaError(f"{value!r} is neither a type of Avro nor the name of a referenced schema")
        return self._type(value, None, 0)

    def _type(self, value: Any, namespace: str | None, depth: int) -> AvroType:
        check_depth(depth)
        self._budget.spend()
        if isinstance(value, str):
            return self._by_name(value, namespace)
        if isinstance(value, list):
            return _union(tuple(self._type(branch, namespace, depth + 1) for branch in value))
        if not isinstance(value, dict):
            raise SchemaError(f"an Avro type is a name, an object or an array of types, not {_shown(value)}")
        kind = value.get("type")
        if isinstance(kind, (dict, list)):
            return self._type(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise SchemaError(f'an Avro type has a "type", which {_shown(value)} lacks')
        if kind in PRIMITIVES:
            return AvroType(kind, _properties(value, _RESERVED))
        if kind == "array":
            items = self._type(_required(value, "items"), namespace, depth + 1)
            return Array(kind, _properties(value, _RESERVED), items=items)
        if kind == "map":
            values = self._type(_required(value, "values"), namespace, depth + 1)
            return Map(kind, _properties(value, _RESERVED), values=values)
        if kind in {"record", "error", "enum", "fixed"}:
            return self._named(value, kind, namespace, depth)
        return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str | None) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        defined = self.named.get(full) or self.named.get(name)
        if defined is None:
            raise SchemaError(f'the type "{full}" is not defined before its use; define it or add a reference to it')
        return defined

    def _named(self, value: dict[str, Any], kind: str, namespace: str | None, depth: int) -> Named:
        full = _full_name(value, namespace)
        space = full.rpartition(".")[0] or None
        common: dict[str, Any] = {"full_name": full, "doc": _text(value, "doc"), "aliases": _aliases(value, space)}
        if kind == "enum":
            enum = _enum(value, common)
            self._budget.spend(len(enum.symbols))
            return self._defined(enum)
        if kind == "fixed":
            return self._defined(_fixed(value, common))
        record = Record("record", _properties(value, _RESERVED), is_error=kind == "error", **common)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f'the record {full} has no array "fields"')
        self.named.setdefault(full, record)
        for field in fields:
            record.fields.append(self._field(field, record, depth))
        names = [field.name for field in record.fields]
        if len(set(names)) < len(names):
            raise SchemaError(f'the record {full} has the field "{_repeated(names)}" twice')
        # A default may contain the record itself, so defaults are checked when its fields are complete.
        for parsed in record.fields:
            if parsed.default is not NO_DEFAULT and not self._defaults.is_valid(parsed.type, parsed.default):
                shown = _shown(parsed.default)
                raise SchemaError(f"the default {shown} of {full}.{parsed.name} is not valid for its type")
        return self._defined(record)

    def _defined(self, named: Named) -> Named:
        """The type, or an equal one of this name: two references may both contain it."""
        defined = self.named.setdefault(named.full_name, named)
        if defined is not named and canonical_text(defined) != canonical_text(named):
            raise SchemaError(f'the name "{named.full_name}" is defined twice; refer to it by its name')
        return defined

    def _field(self, value: Any, record: Record, depth: int) -> Field:
        if not isinstance(value, dict):
            raise SchemaError(f"a field of {record.full_name} is an object, not {_shown(value)}")
        name = _required_text(value, "name")
        if not _NAME.match(name):
            raise SchemaError(f'"{name}" in {record.full_name} is not a name of Avro: letters, digits and _')
        if "type" not in value:
            raise SchemaError(f'the field {record.full_name}.{name} has no "type"')
        order = str(value.get("order", "ascending")).lower()
        if order not in {"ascending", "descending", "ignore"}:
            raise SchemaError(f"the order of {record.full_name}.{name} is ascending, descending or ignore, not {order}")
        kind = self._type(value["type"], record.namespace, depth + 1)
        default = value.get("default", NO_DEFAULT)
        if kind.kind in {"float", "double"} and isinstance(default, str):
            default = _number(default, f"{record.full_name}.{name}")
        return Field(
            name, kind, _text(value, "doc"), default, order, _strings(value, "aliases"),
            _properties(value, _FIELD_RESERVED),
        )  # fmt: skip


def _union(branches: tuple[AvroType, ...]) -> Union:
    kinds = [branch.full_name if isinstance(branch, Named) else branch.kind for branch in branches]
    if "union" in kinds:
        raise SchemaError("a union does not contain another union directly; merge their branches")
    if len(set(kinds)) < len(kinds):
        raise SchemaError(f'a union has the type "{_repeated(kinds)}" twice')
    return Union("union", branches=branches)


def _enum(value: dict[str, Any], common: dict[str, Any]) -> Enum:
    full = common["full_name"]
    if not isinstance(value.get("symbols"), list):
        raise SchemaError(f'the enum {full} has no array "symbols"')
    symbols = _strings(value, "symbols")
    for symbol in symbols:
        if not _NAME.match(symbol):
            raise SchemaError(f'the symbol "{symbol}" of {full} is not a name of Avro: letters, digits and _')
    if len(set(symbols)) < len(symbols):
        raise SchemaError(f'the enum {full} has the symbol "{_repeated(symbols)}" twice')
    default = _text(value, "default")
    if default is not None and default not in symbols:
        raise SchemaError(f'the default "{default}" of the enum {full} is not one of its symbols')
    return Enum("enum", _properties(value, _ENUM_RESERVED), symbols=symbols, default=default, **common)


def _fixed(value: dict[str, Any], common: dict[str, Any]) -> Fixed:
    size = value.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= _MAX_FIXED:
        raise SchemaError(f"the fixed {common['full_name']} has a size from 0 to {_MAX_FIXED}, not {_shown(size)}")
    return Fixed("fixed", _properties(value, _RESERVED), size=size, **common)


def _full_name(value: dict[str, Any], namespace: str | None) -> str:
    name = _required_text(value, "name")
    space = _text(value, "namespace")
    if "." not in name:
        space = namespace if space is None else space
        name = f"{space}.{name}" if space else name
    if not all(_NAME.match(part) for part in name.split(".")):
        raise SchemaError(f'"{name}" is not a name of Avro: letters, digits and _, in parts separated by dots')
    if name in PRIMITIVES or name in COMPLEX:
        raise SchemaError(f'"{name}" is a type of Avro and cannot be the name of another')
    return name


def _aliases(value: dict[str, Any], namespace: str | None) -> tuple[str, ...]:
    names = _strings(value, "aliases")
    return tuple(dict.fromkeys(f"{namespace}.{name}" if namespace and "." not in name else name for name in names))


def _properties(value: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {key: element for key, element in value.items() if key not in reserved}


def _required(value: dict[str, Any], key: str) -> Any:
    if key not in value:
        raise SchemaError(f'the {value["type"]} {_shown(value)} has no "{key}"')
    return value[key]


def _required_text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise SchemaError(f'"{key}" is missing, or no text, in {_shown(value)}')
    return text


def _text(value: dict[str, Any], key: str) -> str | None:
    text = value.get(key)
    return text if isinstance(text, str) else None


def _strings(value: dict[str, Any], key: str) -> tuple[str, ...]:
    strings = value.get(key, [])
    if not isinstance(strings, list) or not all(isinstance(text, str) for text in strings):
        raise SchemaError(f'"{key}" is an array of texts, not {_shown(strings)}')
    return tuple(strings)


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SchemaError(f"the default {text!r} of {name} is not a number") from None


def _repeated(names: Iterable[str]) -> str:
    return next(name for name, count in Counter(names).items() if count > 1)


def _shown(value: Any) -> str:
    text = json_text.write(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
