"""A parsed Avro schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from oncelog.schemas.formats import json_text
from oncelog.schemas.formats.avro.parsing import Parser
from oncelog.schemas.formats.avro.text import canonical_text, normalized_text
from oncelog.schemas.formats.avro.types import AvroType, Named, Record
from oncelog.schemas.schema import Reference, Schema, SchemaType


@dataclass(frozen=True)
class AvroSchema:
    """``resolved`` is the text with every referenced type in it; ``fastavro`` the same, parsed by that library."""

    type: ClassVar = SchemaType.AVRO
    root: AvroType
    references: tuple[Reference, ...] = ()
    referenced: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def name(self) -> str | None:
        return self.root.full_name if isinstance(self.root, Record) else None

    @cached_property
    def canonical(self) -> str:
        return canonical_text(self.root, self.referenced)

    @cached_property
    def normalized(self) -> str:
        return normalized_text(self.root, self.referenced)

    @cached_property
    def resolved(self) -> str:
        return canonical_text(self.root)

    @cached_property
    def fastavro(self) -> Any:
        from fastavro.schema import parse_schema

        return parse_schema(json_text.read(self.resolved), named_schemas={})


def parse_avro(schema: Schema, dependencies: Mapping[str, Schema]) -> AvroSchema:
    """``dependencies``: what the schema references, by name, each after those it needs itself. Raises SchemaError."""
    parser = Parser()
    roots = [parser.parse(dependency.text) for dependency in dependencies.values()]
    referenced = frozenset(root.full_name for root in roots if isinstance(root, Named))
    return AvroSchema(parser.parse(schema.text), schema.references, referenced)
