"""Values of a Protobuf schema, in Protobuf's JSON mapping with the names of the schema's text."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, EncodeError

from oncelog.schemas.formats.protobuf.schema import ProtobufSchema
from oncelog.schemas.schema import SchemaError
from oncelog.schemas.values.errors import NotReadable, NotWritable
from oncelog.schemas.values.protobuf_values import decoded
from oncelog.schemas.wire_format import encoded_path, message_path


class ProtobufCodec:
    """Reads and writes the messages of one schema. ``reader`` is the schema that they are read as, ``message`` the full
    name of those that it writes."""

    def __init__(
        self, schema: ProtobufSchema, reader: ProtobufSchema | None = None, message: str | None = None
    ) -> None:
        """Raises SchemaError for a message that the schema does not have."""
        self._schema = schema
        self._reader = reader or schema
        self._path = (0,) if message is None else schema.message_path(message)

    def read(self, payload: bytes, rest: bytes, in_header: bool) -> tuple[Any, str]:
        """A message and its note, by the path of indexes in ``rest`` or before the payload. Raises NotReadable."""
        bare_header = in_header and not rest
        path = ((0,), 0) if bare_header else message_path(rest if in_header else payload)
        if path is None:
            raise NotReadable("the bytes after the schema's id do not name a message")
        try:
            name = self._schema.message_name(path[0])
            kind = self._reader.pool.FindMessageTypeByName(name)
        except SchemaError as error:
            raise NotReadable(str(error)) from None
        except KeyError:
            raise NotReadable(f"the schema to read as has no message {name}") from None
        body = payload if in_header else payload[path[1] :]
        try:
            value, note, unknown = decoded(self._reader.files, self._reader.pool, kind, body)
        except DecodeError:
            raise NotReadable(f"it does not parse as {name}") from None
        return value, note + (f", {unknown} fields are not in its schema" if unknown else "")

    def write(self, value: Any) -> tuple[bytes, bytes]:
        """The path of indexes, and the message. Raises NotWritable."""
        message = self._schema.message_class(self._path)()
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._schema.pool)
            return encoded_path(self._path), message.SerializeToString(deterministic=True)
        except (json_format.Error, EncodeError, ValueError, TypeError, AttributeError) as error:
            raise NotWritable(f"it is no {message.DESCRIPTOR.full_name}: {error}") from None
