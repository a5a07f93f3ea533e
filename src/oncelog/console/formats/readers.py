"""Bytes in MessagePack, Avro and Protobuf as plain values. Imported by the worker's process alone.

The rule: whatever is wrong is a :class:`NotReadable` with a sentence, or one of the errors that ``worker`` knows; bytes
that are left over are an error, for they were written by another schema.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, Final

from oncelog.console.formats.wire_format import message_path

INSTALL: Final = "pip install 'oncelog[console-formats]'"
_SINGLE_OBJECT: Final = b"\xc3\x01"
_FINGERPRINT_BYTES: Final = 10

Read = Callable[[bytes, bytes, bool], tuple[Any, str]]
"""From a payload, what follows a schema's id in a header, and whether it has an id, to a value and a note."""


class NotReadable(Exception):
    """Bytes that are not what they were said to be, or a library that is not installed."""


class Pairs(list[tuple[Any, Any]]):
    """The entries of a map whose keys need not be texts."""


def read_messagepack(payload: bytes, _rest: bytes = b"", _framed: bool = False) -> tuple[Any, str]:
    """One MessagePack value."""
    try:
        import msgpack
    except ImportError:
        raise NotReadable(f"it needs msgpack: {INSTALL}") from None
    try:
        unpack = msgpack.unpackb
        return unpack(payload, object_pairs_hook=Pairs, strict_map_key=False, unicode_errors="backslashreplace"), ""
    except msgpack.ExtraData as error:
        raise NotReadable(f"bytes left over: {len(error.extra)}") from None
    except msgpack.OutOfData:
        raise NotReadable("it ends too early") from None
    except (msgpack.UnpackException, ValueError, TypeError, OverflowError) as error:
        raise NotReadable(str(error) or type(error).__name__) from None


def avro_reader(content: bytes) -> Read:
    """A reader by an Avro schema. Raises NotReadable for what is no schema."""
    try:
        import fastavro
    except ImportError:
        raise NotReadable(f"it needs fastavro: {INSTALL}") from None
    try:
        schema = fastavro.parse_schema(json.loads(content))
    except Exception as error:  # noqa: BLE001 - a schema can be wrong in as many ways as the library has errors
        raise NotReadable(f"no Avro schema: {type(error).__name__}: {error}") from None

    def read(payload: bytes, _rest: bytes, _framed: bool) -> tuple[Any, str]:
        note = ""
        if payload.startswith(_SINGLE_OBJECT) and len(payload) >= _FINGERPRINT_BYTES:
            note = f"single object of the schema with fingerprint {payload[2:_FINGERPRINT_BYTES][::-1].hex()}"
            payload = payload[_FINGERPRINT_BYTES:]
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(source, schema, None)
        except EOFError:
            raise NotReadable("it ends too early") from None
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001 - hostile bytes reach every corner of the library
            raise NotReadable(f"{type(error).__name__}: {error}") from None
        if left := len(payload) - source.tell():
            raise NotReadable(f"bytes left over: {left}")
        return value, note

    return read


def protobuf_reader(content: bytes, message: str | None) -> Read:
    """A reader by a descriptor set: of the message named, else of that which the payload names, else of the first of
    the last file. Raises NotReadable for what is no descriptor set."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
        from google.protobuf.message import DecodeError
        from google.protobuf.unknown_fields import UnknownFieldSet
    except ImportError:
        raise NotReadable(f"it needs protobuf: {INSTALL}") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
        for one in files:
            pool.Add(one)
        last = pool.FindFileByName(files[-1].name)
        fixed = None if message is None else pool.FindMessageTypeByName(message)
    except KeyError as error:
        raise NotReadable(f"the descriptor set lacks it: {error.args[0]}") from None
    except Exception as error:  # noqa: BLE001 - as above
        raise NotReadable(f"no descriptor set, or one without --include_imports: {error}") from None
    names = [one.name for one in files[-1].message_type]
    if not names:
        raise NotReadable(f"{last.name}, the last file of the descriptor set, has no message")

    def chosen(payload: bytes, rest: bytes, framed: bool) -> tuple[Any, bytes]:
        """The type of a payload, and the payload without the path that names it."""
        if rest:
            path = message_path(rest)
        else:
            path = message_path(payload) if framed else ((0,), 0)
            payload = payload if path is None else payload[path[1] :]
        if path is None:
            raise NotReadable("no message is named after the schema's id")
        try:
            at = files[-1].message_type[path[0][0]]
            found = last.message_types_by_name[at.name]
            for index in path[0][1:]:
                at = at.nested_type[index]
                found = found.nested_types_by_name[at.name]
        except IndexError:
            raise NotReadable(f"the file has no message {'.'.join(map(str, path[0]))}") from None
        return fixed or found, payload

    def read(payload: bytes, rest: bytes, framed: bool) -> tuple[Any, str]:
        kind, payload = chosen(payload, rest, framed)
        made = message_factory.GetMessageClass(kind)()
        try:
            made.ParseFromString(payload)
            value = json_format.MessageToDict(made, preserving_proto_field_name=True, descriptor_pool=pool)
        except DecodeError:
            raise NotReadable(f"no message {kind.full_name}") from None
        except (json_format.Error, ValueError, TypeError, KeyError) as error:
            raise NotReadable(f"{kind.full_name}: {error}") from None
        unknown = len(UnknownFieldSet(made))
        return value, kind.full_name + (f", {unknown} fields are not in its schema" if unknown else "")

    return read
