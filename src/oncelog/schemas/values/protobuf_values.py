"""Protobuf messages as plain values, in which one odd field does not hide the others. For the worker process alone."""

from __future__ import annotations

import base64
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

# A message is converted as `json_format` does it. If that fails, it is converted field by field, so that only the odd
# fields are raw: an `Any` of an unknown type, a time beyond the year 9999, text that is not UTF-8.

_CANNOT: Final = (json_format.Error, ValueError, TypeError, KeyError, ArithmeticError)
_STRING: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES: Final = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_LONGS: Final = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})
_MAX_NOTES: Final = 3
_MAX_NOTE_LENGTH: Final = 160


class ProtobufValues:
    """Converts one message at a time; ``note`` names the parts that are shown raw."""

    def __init__(self, pool: Any, texts: frozenset[str] = frozenset()) -> None:
        """``texts`` are the full names of fields that are bytes in the pool and text in the schema."""
        self._pool = pool
        self._texts = texts
        self._notes: list[str] = []

    @property
    def note(self) -> str:
        shown = self._notes[:_MAX_NOTES]
        more = len(self._notes) - len(shown)
        return "".join(f", shown raw: {note}" for note in shown) + (f", and {more} more" if more else "")

    def of(self, message: Any) -> Any:
        if not self._texts:
            try:
                return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
            except _CANNOT as error:
                if not any(field.message_type for field, _ in message.ListFields()):
                    self._notes.append(f"{message.DESCRIPTOR.full_name}: {error}"[:_MAX_NOTE_LENGTH])
        return {_name(field): self._field(field, value) for field, value in message.ListFields()}

    def _field(self, field: Any, value: Any) -> Any:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            return {str(key): self._single(inner, value[key]) for key in value}
        if _is_repeated(field):
            return [self._single(field, element) for element in value]
        return self._single(field, value)

    def _single(self, field: Any, value: Any) -> Any:
        if field.message_type is not None:
            return self.of(value)
        if field.full_name in self._texts:
            return value.decode(errors="backslashreplace")
        if field.enum_type is not None:
            enum_value = field.enum_type.values_by_number.get(value)
            return value if enum_value is None else enum_value.name
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return str(value) if field.cpp_type in _LONGS else value


def pool_of(files: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def decoded(files: Any, pool: Any, kind: Any, payload: bytes) -> tuple[Any, str, int]:
    """A message as a plain value, a note, and the number of unknown fields. Raises DecodeError. ``pool`` has the types
    of ``files``."""
    writer = ProtobufValues(pool)
    try:
        message = message_factory.GetMessageClass(kind)()
        message.ParseFromString(payload)
        value, note = writer.of(message), kind.full_name + writer.note
    except DecodeError:
        changed, texts = _with_texts_as_bytes(files)
        try:
            pool = pool_of(changed)
        except TypeError as error:
            raise DecodeError(str(error)) from None
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(kind.full_name))()
        message.ParseFromString(payload)
        value = ProtobufValues(pool, texts).of(message)
        note = f"{kind.full_name}, text that is not UTF-8 has \\x in it"
    return value, note, len(UnknownFieldSet(message))


def _with_texts_as_bytes(files: Any) -> tuple[Any, frozenset[str]]:
    """A copy of descriptor files with strings declared as bytes (which need not be UTF-8), and those fields' names."""
    copy = descriptor_pb2.FileDescriptorSet(file=files)
    texts: set[str] = set()
    for file in copy.file:
        for message in file.message_type:
            _make_bytes(message, f"{file.package}.{message.name}".lstrip("."), texts)
    return copy.file, frozenset(texts)


def _make_bytes(message: Any, full_name: str, texts: set[str]) -> None:
    for field in message.field:
        is_key = message.options.map_entry and field.name == "key"
        if field.type == _STRING and not is_key:
            field.type = _BYTES
            texts.add(f"{full_name}.{field.name}")
    for nested in message.nested_type:
        _make_bytes(nested, f"{full_name}.{nested.name}", texts)


def _name(field: Any) -> str:
    return f"[{field.full_name}]" if field.is_extension else str(field.name)


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # protobuf 6.31 and later
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)
