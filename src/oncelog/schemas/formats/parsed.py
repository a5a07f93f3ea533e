"""Parse a schema of any format."""

from __future__ import annotations

from typing import Protocol

from oncelog.schemas.formats.avro.schema import AvroSchema, parse_avro
from oncelog.schemas.formats.json_schema.schema import JsonSchema, parse_json_schema
from oncelog.schemas.formats.limits import check_text
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema, parse_protobuf
from oncelog.schemas.formats.references import Resolve, dependencies_of, no_references
from oncelog.schemas.schema import Reference, Schema, SchemaType

AnySchema = AvroSchema | ProtobufSchema | JsonSchema


class ParsedSchema(Protocol):
    """The attributes of all formats. ``canonical`` is the text that a registry stores and compares, ``normalized`` the
    one of ``normalize=true``; ``name`` is the full name of the record or of the first message, or the title."""

    @property
    def type(self) -> SchemaType: ...
    @property
    def references(self) -> tuple[Reference, ...]: ...
    @property
    def name(self) -> str | None: ...
    @property
    def canonical(self) -> str: ...
    @property
    def normalized(self) -> str: ...


def parse(schema: Schema, resolve: Resolve = no_references) -> AnySchema:
    """``resolve`` gives the schema that a reference names. Raises SchemaError if it is not valid or too large."""
    check_text(schema.text)
    dependencies = dependencies_of(schema, resolve)
    if schema.type is SchemaType.AVRO:
        return parse_avro(schema, dependencies)
    if schema.type is SchemaType.PROTOBUF:
        return parse_protobuf(schema, dependencies)
    return parse_json_schema(schema, dependencies)
