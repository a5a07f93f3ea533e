"""`Decoder`: keys and values of records to Python values, by the schemas that they name in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.base.bounded_cache import text_bytes
from oncelog.base.units import KIB, MIB
from oncelog.schemas.client.caches import Cache
from oncelog.schemas.client.errors import NotRegistered
from oncelog.schemas.client.registry import LATEST, Registry, context_of
from oncelog.schemas.formats.parsed import AnySchema, parse
from oncelog.schemas.schema import Schema, SchemaError
from oncelog.schemas.values.codecs import Codec, codec_of
from oncelog.schemas.values.errors import NotReadable
from oncelog.schemas.wire_format import VALUE, framed

if TYPE_CHECKING:
    from oncelog.records.record import Headers

CODECS_BYTES: Final = 64 * MIB
_PARSED_SHARE: Final = 16
"""Bytes of a parsed schema for each of its text, roughly."""


class Decoded(NamedTuple):
    """A value, the id or GUID of its schema, the schema, and remarks about odd parts. ``payload`` are its bytes."""

    value: Any
    schema_id: str
    schema: Schema
    note: str
    payload: bytes


class Decoder:
    """Decodes one part, ``"key"`` or ``"value"``, of records. Compiles each schema once; for several threads.

    ``reader`` is the schema that all are read as: ``SUBJECT``, ``SUBJECT@VERSION`` or a Schema; None reads each by the
    schema that wrote it. ``context``, as ``:.NAME:``, says whose ids they are.
    """

    def __init__(
        self, registry: Registry, part: str = VALUE, *, reader: str | Schema | None = None, context: str = ""
    ) -> None:
        self._registry = registry
        self._part = part
        self._context = context
        self._reader = reader
        self._parsed_reader: AnySchema | None = None
        self._codecs: Cache[str, tuple[Schema, Codec | SchemaError]] = Cache(CODECS_BYTES)

    def decode(self, data: bytes, headers: Headers | Sequence[tuple[str, bytes | None]] = ()) -> Decoded:
        """Raises NotReadable for bytes that name no schema, or one that does not explain them; RegistryError for a
        registry that does not answer."""
        value = framed(data, self._part, tuple(headers))
        if value.schema_id is None:
            raise NotReadable("it names no schema: neither a header nor its first bytes")
        schema, codec = self._codec(value.schema_id)
        try:
            result, note = codec.read(value)
        except NotReadable as error:
            raise NotReadable(f"schema {value.schema_id}: {error}") from None
        return Decoded(result, value.schema_id, schema, note, value.payload)

    def _codec(self, schema_id: str) -> tuple[Schema, Codec]:
        compiled = self._codecs.get(schema_id)
        if compiled is None:
            try:
                schema = self._registry.schema(schema_id, self._context)
            except NotRegistered as error:
                raise NotReadable(str(error)) from None
            compiled = schema, self._compiled(schema)
            self._codecs.put(schema_id, compiled, _PARSED_SHARE * text_bytes(schema.text) + 8 * KIB)
        schema, codec = compiled
        if isinstance(codec, SchemaError):
            raise NotReadable(f"schema {schema_id} is not usable: {codec}")
        return schema, codec

    def _compiled(self, schema: Schema) -> Codec | SchemaError:
        if self._reader is not None and self._parsed_reader is None:
            self._parsed_reader = parsed_schema(self._registry, *_reader_schema(self._registry, self._reader))
        try:
            return codec_of(parsed_schema(self._registry, schema, self._context), reader=self._parsed_reader)
        except SchemaError as error:
            return error
        except NotRegistered as error:
            return SchemaError(str(error))


def parsed_schema(registry: Registry, schema: Schema, context: str = "") -> AnySchema:
    """A schema with those that it refers to. Raises SchemaError, RegistryError."""
    return parse(schema, registry.resolver(context))


def subject_version(text: str) -> tuple[str, str]:
    """``SUBJECT[@VERSION]`` as subject and version. Raises SchemaError."""
    subject, at, version = text.rpartition("@")
    if not at or not version.isascii() or not (version.isdigit() or version == LATEST):
        return text, LATEST
    return subject, version


def _reader_schema(registry: Registry, reader: str | Schema) -> tuple[Schema, str]:
    if isinstance(reader, Schema):
        return reader, ""
    subject, version = subject_version(reader)
    return registry.version(subject, version).schema, context_of(subject)
