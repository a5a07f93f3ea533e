"""A descriptor to the syntax of a `.proto` file: names are full, and map entries are messages, as Confluent's are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from oncelog.schemas.formats.limits import Budget, check_depth
from oncelog.schemas.formats.protobuf.syntax import (
    MAX_MESSAGE_DEPTH,
    Declaration,
    EnumType,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    Identifier,
    Interval,
    Kind,
    Message,
    Method,
    OneOf,
    Option,
    ProtoFile,
    Service,
    Value,
)
from oncelog.schemas.schema import SchemaError

_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional",
    FieldDescriptorProto.LABEL_REQUIRED: "required",
    FieldDescriptorProto.LABEL_REPEATED: "repeated",
}


def syntax_of(file: Any) -> ProtoFile:
    """``file`` is a FileDescriptorProto whose class knows the extensions that its options have."""
    return _Reader(file).file()


class _Reader:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._proto3 = file.syntax == "proto3"
        self._budget = Budget()

    def file(self) -> ProtoFile:
        file = self._file
        public = set(file.public_dependency)
        editions = file.syntax == "editions"
        body: list[Declaration] = [self._message(message, 0) for message in file.message_type]
        body += [self._enum(enum) for enum in file.enum_type]
        body += self._extends(file.extension, {}, 0)
        return ProtoFile(
            syntax=None if editions else "proto3" if self._proto3 else "proto2",
            edition=_edition(file) if editions else None,
            package=file.package or None,
            imports=[path for position, path in enumerate(file.dependency) if position not in public],
            public_imports=[path for position, path in enumerate(file.dependency) if position in public],
            options=options_of(file.options),
            body=body,
            services=[
                Service(service.name, [_method(method) for method in service.method], options_of(service.options))
                for service in file.service
            ],
        )

    def _message(self, message: DescriptorProto, depth: int) -> Message:
        check_depth(depth, MAX_MESSAGE_DEPTH)
        self._budget.spend(1 + len(message.field) + len(message.oneof_decl))
        groups = {
            field.type_name.rpartition(".")[2]: field
            for field in (*message.field, *message.extension)
            if field.type == FieldDescriptorProto.TYPE_GROUP
        }
        nested = {kind.name: kind for kind in message.nested_type}
        oneofs = [OneOf(oneof.name, options=options_of(oneof.options)) for oneof in message.oneof_decl]
        body: list[Declaration] = []
        for field in message.field:
            member = self._member(field, nested, depth)
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index >= len(oneofs):
                    raise SchemaError(f"the field {field.name} is in a oneof that {message.name} does not have")
                oneof = oneofs[field.oneof_index]
                if not oneof.fields:
                    body.append(oneof)
                oneof.fields.append(member)
            else:
                body.append(member)
        body += [self._message(kind, depth + 1) for kind in message.nested_type if kind.name not in groups]
        body += [self._enum(enum) for enum in message.enum_type]
        body += self._extends(message.extension, nested, depth)
        reserved: list[list[Interval]] = [[_interval(kept.start, kept.end - 1)] for kept in message.reserved_range]
        reserved += [[self._reserved_name(name)] for name in message.reserved_name]
        extensions = [
            Extensions([_interval(kept.start, kept.end - 1)], options_of(kept.options))
            for kept in message.extension_range
        ]
        return Message(message.name, reserved, options_of(message.options), extensions, body)

    def _member(self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto], depth: int) -> Field | Group:
        in_oneof = field.HasField("oneof_index") and not field.proto3_optional
        label = None if in_oneof else self._label(field)
        group = nested.get(field.type_name.rpartition(".")[2])
        if field.type == FieldDescriptorProto.TYPE_GROUP and group is not None:
            return Group(label, self._message(group, depth + 1), field.number, options_of(field.options))
        default = None
        if field.HasField("default_value") and not self._proto3:
            default = _default(field)
        return Field(
            label,
            field.type_name or FieldDescriptorProto.Type.Name(field.type)[5:].lower(),
            field.name,
            field.number,
            options_of(field.options),
            default,
            field.json_name if field.HasField("json_name") else None,
        )

    def _label(self, field: FieldDescriptorProto) -> str | None:
        if field.label == FieldDescriptorProto.LABEL_OPTIONAL:
            implicit = self._proto3 and not field.proto3_optional
            return None if implicit or self._file.syntax == "editions" else "optional"
        return _LABELS[field.label]

    def _enum(self, enum: EnumDescriptorProto) -> EnumType:
        self._budget.spend(1 + len(enum.value))
        values = [EnumValue(value.name, value.number, options_of(value.options)) for value in enum.value]
        reserved: list[list[Interval]] = [[_interval(kept.start, kept.end)] for kept in enum.reserved_range]
        reserved += [[self._reserved_name(name)] for name in enum.reserved_name]
        return EnumType(enum.name, reserved, options_of(enum.options), values)

    def _reserved_name(self, name: str) -> str:
        return Identifier(name) if self._file.syntax == "editions" else name

    def _extends(
        self, fields: Iterable[FieldDescriptorProto], nested: dict[str, DescriptorProto], depth: int
    ) -> list[Declaration]:
        extends: dict[str, Extend] = {}
        for field in fields:
            extend = extends.setdefault(field.extendee, Extend(field.extendee))
            extend.fields.append(self._member(field, nested, depth))
        return list(extends.values())


def _edition(file: FileDescriptorProto) -> str:
    descriptor = file.DESCRIPTOR.fields_by_name["edition"].enum_type
    value = descriptor.values_by_number.get(file.edition)
    return value.name.removeprefix("EDITION_") if value is not None else str(file.edition)


def _interval(start: int, end: int) -> Interval:
    return start if start == end else (start, end)


def _method(method: Any) -> Method:
    return Method(
        method.name,
        method.input_type,
        method.output_type,
        method.client_streaming,
        method.server_streaming,
        options_of(method.options),
    )


def _default(field: FieldDescriptorProto) -> Value:
    text = field.default_value
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return Value(Kind.STRING, text)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        from google.protobuf.text_encoding import CUnescape

        return Value(Kind.STRING, CUnescape(text).decode("utf-8", "surrogateescape"))
    if field.type == FieldDescriptorProto.TYPE_BOOL:
        return Value(Kind.BOOLEAN, text)
    return Value(Kind.ENUM if field.type == FieldDescriptorProto.TYPE_ENUM else Kind.NUMBER, text)


# Options


def options_of(options: Any) -> list[Option]:
    """Set options as they would be written: those of Protobuf first, then extensions by their full names."""
    written = []
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            continue
        name = field.full_name if field.is_extension else field.name
        values = value if _is_repeated(field) else [value]
        written += [Option(name, _value(field, element), field.is_extension) for element in values]
    return written


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _value(field: FieldDescriptor, value: Any) -> Value:
    if field.type in {FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP}:
        return Value(Kind.MAP, list(_pairs(value)))
    if field.type == FieldDescriptor.TYPE_ENUM:
        enum_value = field.enum_type.values_by_number.get(value)
        return Value(Kind.ENUM, enum_value.name) if enum_value is not None else Value(Kind.NUMBER, str(value))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return Value(Kind.BOOLEAN, "true" if value else "false")
    if field.type == FieldDescriptor.TYPE_STRING:
        return Value(Kind.STRING, value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return Value(Kind.STRING, value.decode("utf-8", "surrogateescape"))
    return Value(Kind.NUMBER, str(value))


def _pairs(message: Any) -> Iterator[tuple[str, Value]]:
    for field, value in message.ListFields():
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if _is_map(field):
            yield name, Value(Kind.LIST, [_entry(field, key, value[key]) for key in sorted(value)])
        elif _is_repeated(field):
            yield name, Value(Kind.LIST, [_value(field, element) for element in value])
        else:
            yield name, _value(field, value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _entry(field: FieldDescriptor, key: Any, value: Any) -> Value:
    parts = field.message_type.fields_by_name
    pairs = [("key", _value(parts["key"], key)), ("value", _value(parts["value"], value))]
    return Value(Kind.MAP, pairs)
