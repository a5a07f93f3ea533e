"""A codec of any schema: payloads to values and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.formats.parsed import AnySchema
from oncelog.schemas.formats.protobuf.schema import ProtobufSchema
from oncelog.schemas.schema import SchemaError
from oncelog.schemas.values.errors import NotReadable
from oncelog.schemas.wire_format import Framed


class Codec(NamedTuple):
    """``read`` raises NotReadable and returns a value and a note about it, ``write`` raises NotWritable and returns
    what follows the schema's id, then the payload."""

    read: Callable[[Framed], tuple[Any, str]]
    write: Callable[[Any], tuple[bytes, bytes]]


def codec_of(schema: AnySchema, *, reader: AnySchema | None = None, message: str | None = None) -> Codec:
    """``reader`` is the schema to read as, ``message`` the full name of the Protobuf message to write. Raises
    SchemaError."""
    if reader is not None and reader.type is not schema.type:
        raise SchemaError(f"the schema to read as is {reader.type.value}, the writer's is {schema.type.value}")
    if message is not None and not isinstance(schema, ProtobufSchema):
        raise SchemaError(f"a message is chosen in a Protobuf schema, and this one is {schema.type.value}")
    if isinstance(schema, AvroSchema):
        return _avro(schema, reader)
    if isinstance(schema, ProtobufSchema):
        from oncelog.schemas.values.protobuf import ProtobufCodec

        assert reader is None or isinstance(reader, ProtobufSchema)
        messages = ProtobufCodec(schema, reader, message)
        return Codec(lambda data: messages.read(data.payload, data.rest, data.in_header), messages.write)
    from oncelog.schemas.values.json_schema import JsonCodec

    documents = JsonCodec(schema)
    return Codec(lambda data: (documents.read(data.payload), ""), lambda value: (b"", documents.write(value)))


def _avro(schema: AvroSchema, reader: AnySchema | None) -> Codec:
    from oncelog.schemas.values.avro import AvroCodec

    assert reader is None or isinstance(reader, AvroSchema)
    values = AvroCodec(schema, reader)

    def read(data: Framed) -> tuple[Any, str]:
        try:
            return values.read(data.payload), ""
        except UnicodeDecodeError:
            raise NotReadable("a string in it is not UTF-8") from None

    return Codec(read, lambda value: (b"", values.write(value)))
