"""The formats of the room ``schemas`` behind the registry's port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from oncelog.registry.formats import ParsedSchema, Resolve
from oncelog.schemas.compatibility.levels import Level, incompatibilities
from oncelog.schemas.formats.parsed import AnySchema, parse
from oncelog.schemas.schema import Schema, SchemaError, SchemaType

_FORMS: Final = {
    (SchemaType.AVRO, "resolved"): "resolved",
    (SchemaType.PROTOBUF, "serialized"): "serialized",
}
"""Attributes with the texts that `format=` names beside the canonical one."""


class LibraryFormats:
    def formatted(self, schema: ParsedSchema, form: str) -> str:
        parsed = cast("AnySchema", schema)
        if form == "default":
            return parsed.canonical
        attribute = _FORMS.get((parsed.type, form))
        if attribute is None:
            raise SchemaError(f"Format not supported: {form}")
        return str(getattr(parsed, attribute))

    def parse(self, schema: Schema, resolve: Resolve) -> ParsedSchema:
        return parse(schema, resolve)

    def incompatibilities(
        self, schema: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]], level: str
    ) -> list[str]:
        return incompatibilities(
            cast("AnySchema", schema), cast("Sequence[tuple[int, AnySchema]]", earlier), Level(level)
        )
