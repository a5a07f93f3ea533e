"""Types of Avro. A name that is used again is the same object, so a recursive type is a cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
COMPLEX: Final = frozenset({"record", "enum", "array", "map", "union", "fixed"})
NO_DEFAULT: Final = object()


@dataclass(slots=True, eq=False)
class AvroType:
    """``properties`` are the attributes that the specification does not name, ``logicalType`` among them."""

    kind: str
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Array(AvroType):
    items: AvroType = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Map(AvroType):
    values: AvroType = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Union(AvroType):
    branches: tuple[AvroType, ...] = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Named(AvroType):
    full_name: str = field(kw_only=True)
    doc: str | None = field(default=None, kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)  # full names, in their order

    @property
    def namespace(self) -> str | None:
        return self.full_name.rpartition(".")[0] or None

    @property
    def simple_name(self) -> str:
        return self.full_name.rpartition(".")[2]


@dataclass(slots=True, eq=False)
class Fixed(Named):
    size: int = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Enum(Named):
    symbols: tuple[str, ...] = field(kw_only=True)
    default: str | None = field(default=None, kw_only=True)


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: AvroType
    doc: str | None = None
    default: Any = NO_DEFAULT
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Record(Named):
    is_error: bool = False
    fields: list[Field] = field(default_factory=list)
