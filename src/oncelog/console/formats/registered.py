"""Readers of values by a registry's schema, which the console fetched. For the worker process alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.console.formats import avro_values
from oncelog.console.formats.readers import INSTALL, Read, avro_value
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType
from oncelog.schemas.values.errors import NotReadable

if TYPE_CHECKING:
    from oncelog.schemas.formats.avro.schema import AvroSchema
    from oncelog.schemas.formats.protobuf.schema import ProtobufSchema


def registered_reader(document: Any) -> Read:
    """A reader by a schema and those that it uses. Raises NotReadable for a schema that is not usable."""
    dependencies = {name: _schema(used) for name, used in document["dependencies"].items()}
    try:
        from oncelog.schemas.formats.avro.schema import AvroSchema
        from oncelog.schemas.formats.parsed import parse
        from oncelog.schemas.formats.protobuf.schema import ProtobufSchema

        schema = parse(_schema(document), lambda reference: dependencies[reference.name])
        if isinstance(schema, AvroSchema):
            return _avro_reader(schema)
        assert isinstance(schema, ProtobufSchema)
        return _protobuf_reader(schema)
    except SchemaError as error:
        raise NotReadable(f"its schema is not usable: {error}") from None
    except ImportError as error:
        raise NotReadable(f"decoding needs {error.name}: {INSTALL}") from None


def _avro_reader(schema: AvroSchema) -> Read:
    import fastavro

    from oncelog.schemas.values.avro import AvroCodec

    avro_values.install(fastavro.read.LOGICAL_READERS)
    codec = AvroCodec(schema)

    def read(payload: bytes, _rest: bytes, _framed: bool) -> tuple[Any, str]:
        return avro_value(lambda unicode_errors: codec.read(payload, unicode_errors=unicode_errors))

    return read


def _protobuf_reader(schema: ProtobufSchema) -> Read:
    from oncelog.schemas.values.protobuf import ProtobufCodec

    codec = ProtobufCodec(schema)
    return lambda payload, rest, framed: codec.read(payload, rest, in_header=not framed)


def _schema(document: Any) -> Schema:
    references = tuple(Reference(*reference) for reference in document["references"])
    return Schema(document["text"], SchemaType[document["type"]], references)
