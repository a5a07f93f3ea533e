"""`Encoder`: Python values, or JSON, to the bytes of a subject's schema."""

from __future__ import annotations

from typing import Any, NamedTuple

from oncelog.schemas.client.registry import Registry, context_of
from oncelog.schemas.schema import RegisteredSchema, Schema
from oncelog.schemas.values.codecs import codec_of
from oncelog.schemas.values.decoding import parsed_schema, subject_version
from oncelog.schemas.wire_format import VALUE, header_of, prefix_of


class Encoded(NamedTuple):
    """The bytes of a key or value, and the headers that the record needs for them."""

    data: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class Encoder:
    """Encodes values by one schema: a version of ``subject`` (``SUBJECT`` or ``SUBJECT@VERSION``), or ``schema``.

    ``register`` registers ``schema`` as a new version; otherwise the subject must have it. ``message`` is the full name
    of a Protobuf message, the first by default. ``in_header`` names the schema in a header of the record, by its GUID.
    Raises RegistryError, SchemaError.
    """

    def __init__(
        self,
        registry: Registry,
        subject: str,
        schema: Schema | None = None,
        *,
        register: bool = False,
        message: str | None = None,
        part: str = VALUE,
        in_header: bool = False,
    ) -> None:
        self.registered = _registered(registry, subject, schema, register)
        parsed = parsed_schema(registry, self.registered.schema, context_of(self.registered.subject))
        self._write = codec_of(parsed, message=message).write
        named = self.registered.guid or self.registered.schema_id
        self._header = header_of(part, named) if in_header else None

    def encode(self, value: Any) -> Encoded:
        """Raises NotWritable, which names the part that does not fit the schema."""
        path, payload = self._write(value)
        if self._header is None:
            return Encoded(prefix_of(self.registered.schema_id) + path + payload)
        name, data = self._header
        return Encoded(payload, ((name, data + path),))


def _registered(registry: Registry, subject: str, schema: Schema | None, register: bool) -> RegisteredSchema:
    if schema is None:
        return registry.version(*subject_version(subject))
    if register:
        registry.register(subject, schema)
    return registry.lookup(subject, schema)
