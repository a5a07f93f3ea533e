"""Values of an Avro schema, by fastavro."""

from __future__ import annotations

import io
from typing import Any

from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.schema import SchemaError
from oncelog.schemas.values.avro_bounds import checker
from oncelog.schemas.values.avro_defaults import with_default_values
from oncelog.schemas.values.avro_input import fitted
from oncelog.schemas.values.errors import NotReadable, NotWritable


class AvroCodec:
    """Reads and writes the values of one schema. ``reader`` is the schema that they are read as."""

    def __init__(self, schema: AvroSchema, reader: AvroSchema | None = None) -> None:
        """Raises SchemaError for a schema that fastavro does not take."""
        self._root = schema.root
        try:
            self._schema = schema.fastavro
            self._check = checker(self._schema)
            self._reader = None if reader is None else with_default_values(reader)
        except Exception as error:  # noqa: BLE001 - a schema can be wrong in as many ways as the library has errors
            raise SchemaError(f"fastavro does not take the schema: {type(error).__name__}: {error}") from None

    def read(self, payload: bytes, *, unicode_errors: str = "strict") -> Any:
        """Raises NotReadable; UnicodeDecodeError for text that is not UTF-8; MemoryError."""
        self._check(payload)
        return read_datum(payload, self._schema, self._reader, unicode_errors)

    def write(self, value: Any) -> bytes:
        """The bytes of a value: Python's types, or those of JSON. Raises NotWritable."""
        import fastavro

        target = io.BytesIO()
        suited = fitted(self._root, value)
        try:
            fastavro.schemaless_writer(target, self._schema, suited)
        except Exception as error:  # noqa: BLE001 - as above: ranges of numbers, digits of decimals
            raise NotWritable(f"{type(error).__name__}: {error}") from None
        return target.getvalue()


def read_datum(payload: bytes, schema: Any, reader: Any = None, unicode_errors: str = "strict") -> Any:
    """A payload that is one value, by schemas as fastavro has them. Raises as ``AvroCodec.read`` does."""
    import fastavro

    source = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(source, schema, reader, handle_unicode_errors=unicode_errors)
    except EOFError:
        raise NotReadable("it ends too early") from None
    except (MemoryError, RecursionError, UnicodeDecodeError):
        raise
    except Exception as error:  # noqa: BLE001 - hostile bytes reach every corner of the library
        raise NotReadable(f"{type(error).__name__}: {error}") from None
    if left := len(payload) - source.tell():
        raise NotReadable(f"bytes left over: {left}")
    return value
