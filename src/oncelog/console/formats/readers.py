"""Readers of MessagePack, Avro and Protobuf that return plain values. For the worker process alone.

Errors are :class:`NotReadable`, or handled by ``decoder_worker``. Bytes left over are an error: another schema wrote
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from oncelog.console.formats import avro_values
from oncelog.schemas.values.errors import NotReadable
from oncelog.schemas.wire_format import message_path

INSTALL: Final = "pip install 'oncelog[console-formats]'"
_SINGLE_OBJECT: Final = b"\xc3\x01"
_FINGERPRINT_BYTES: Final = 10
_NOT_UTF_8: Final = "text that is not UTF-8 has \\x in it"

Read = Callable[[bytes, bytes, bool], tuple[Any, str]]
"""Takes a payload, the bytes after a schema's id in a header, and True for a payload with an id; returns a value and a
note."""


class Pairs(list[tuple[Any, Any]]):
    """The entries of a map whose keys need not be strings."""


def read_messagepack(payload: bytes, _rest: bytes = b"", _framed: bool = False) -> tuple[Any, str]:
    try:
        import msgpack
    except ImportError:
        raise NotReadable(f"decoding needs msgpack: {INSTALL}") from None
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
    """A reader by an Avro schema. Raises NotReadable for an invalid schema."""
    try:
        import fastavro

        from oncelog.schemas.values.avro import read_datum
    except ImportError:
        raise NotReadable(f"decoding needs fastavro: {INSTALL}") from None
    try:
        schema = fastavro.parse_schema(json.loads(content))
    except Exception as error:  # noqa: BLE001 - a schema can be wrong in as many ways as the library has errors
        raise NotReadable(f"not an Avro schema: {type(error).__name__}: {error}") from None

    avro_values.install(fastavro.read.LOGICAL_READERS)
    own = bytes.fromhex(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO"))

    def read(payload: bytes, _rest: bytes, _framed: bool) -> tuple[Any, str]:
        if not payload.startswith(_SINGLE_OBJECT) or len(payload) < _FINGERPRINT_BYTES:
            return bare(payload)
        fingerprint = payload[len(_SINGLE_OBJECT) : _FINGERPRINT_BYTES]
        # A payload may begin with these two bytes by chance. Another fingerprint may belong to an older schema.
        if fingerprint == own:
            return single_object(payload, fingerprint)
        try:
            return bare(payload)
        except NotReadable as error:
            try:
                return single_object(payload, fingerprint)
            except NotReadable:
                raise error from None

    def single_object(payload: bytes, fingerprint: bytes) -> tuple[Any, str]:
        value, note = bare(payload[_FINGERPRINT_BYTES:])
        name = f"single object of the schema with fingerprint {fingerprint[::-1].hex()}"
        return value, f"{name}, {note}" if note else name

    def bare(payload: bytes) -> tuple[Any, str]:
        return avro_value(lambda unicode_errors: read_datum(payload, schema, None, unicode_errors))

    return read


def avro_value(read: Callable[[str], Any]) -> tuple[Any, str]:
    """A value and its note, by a function of how to treat text that is not UTF-8."""
    avro_values.take_note()
    try:
        return read("strict"), avro_values.take_note()
    except UnicodeDecodeError:
        avro_values.take_note()
        value = read("backslashreplace")
        return value, ", ".join(filter(None, (_NOT_UTF_8, avro_values.take_note())))


def protobuf_reader(content: bytes, message: str | None) -> Read:
    """A reader by a descriptor set: of the named message, else of the one the payload names, else of the first in the
    last file. Raises NotReadable for an invalid set."""
    try:
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        from oncelog.schemas.values.protobuf_values import decoded, pool_of
    except ImportError:
        raise NotReadable(f"decoding needs protobuf: {INSTALL}") from None

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
        pool = pool_of(files)
        last = pool.FindFileByName(files[-1].name)
        fixed = None if message is None else pool.FindMessageTypeByName(message)
    except KeyError as error:
        raise NotReadable(f"not in the descriptor set: {error.args[0]}") from None
    except Exception as error:  # noqa: BLE001 - as above
        raise NotReadable(f"not a descriptor set, or made without --include_imports: {error}") from None
    if not files[-1].message_type:
        raise NotReadable(f"{last.name}, the last file of the descriptor set, has no message")

    def read(payload: bytes, rest: bytes, framed: bool) -> tuple[Any, str]:
        try:
            kind, inner = _chosen(files[-1], last, payload, rest, framed)
            value, note, unknown = values(fixed or kind, inner)
        except NotReadable as error:
            # Older JavaScript serializers write no message path after the id.
            if fixed is None or not framed:
                raise
            try:
                value, note, unknown = values(fixed, payload)
            except NotReadable:
                raise error from None
        return value, note + (f", {unknown} fields are not in its schema" if unknown else "")

    def values(kind: Any, payload: bytes) -> tuple[Any, str, int]:
        try:
            return decoded(files, pool, kind, payload)
        except DecodeError:
            raise NotReadable(f"it does not parse as {kind.full_name}") from None

    return read


def _chosen(file: Any, last: Any, payload: bytes, rest: bytes, framed: bool) -> tuple[Any, bytes]:
    """The message type of a payload, and the payload without the path that names it. Raises NotReadable."""
    if rest:
        path = message_path(rest)
    else:
        path = message_path(payload) if framed else ((0,), 0)
        payload = payload if path is None else payload[path[1] :]
    if path is None:
        raise NotReadable("the bytes after the schema's id do not name a message")
    try:
        descriptor = file.message_type[path[0][0]]
        kind = last.message_types_by_name[descriptor.name]
        for index in path[0][1:]:
            descriptor = descriptor.nested_type[index]
            kind = kind.nested_types_by_name[descriptor.name]
    except IndexError:
        raise NotReadable(f"the file has no message {'.'.join(map(str, path[0]))}") from None
    return kind, payload
