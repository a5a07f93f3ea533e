"""The syntax of a `.proto` file to its descriptor, as protoc makes it; options are interpreted afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from oncelog.schemas.formats.protobuf.syntax import (
    SCALARS,
    EnumType,
    Extend,
    Field,
    Group,
    Interval,
    Kind,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Value,
)
from oncelog.schemas.schema import SchemaError

if TYPE_CHECKING:
    from oncelog.schemas.formats.protobuf.names import Scope

_LABELS: Final = {
    None: FieldDescriptorProto.LABEL_OPTIONAL,
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_MAP: Final = re.compile(r"map<([^,]+), (.+)>\Z")

# Options with the message they belong to and the scope of their names, in the order of the file.
Optioned = list[tuple[Any, list[Option], str]]


class DescriptorBuilder:
    """Builds a descriptor whose names are as they were written; ``link`` resolves them."""

    def __init__(self, file: ProtoFile, path: str) -> None:
        self.syntax = file
        self.optioned: Optioned = []
        self._proto3 = file.syntax == "proto3"
        self.file = FileDescriptorProto(name=path, package=file.package)
        self._build()

    def _build(self) -> None:
        syntax, file = self.syntax, self.file
        if syntax.edition is not None:
            file.syntax = "editions"
            file.edition = Edition.Value(_edition(syntax.edition))
        elif syntax.syntax not in {None, "proto2", "proto3"}:
            raise SchemaError(f'the syntax of Protobuf is "proto2" or "proto3", not "{syntax.syntax}"')
        elif self._proto3:
            file.syntax = "proto3"
        file.dependency.extend(dict.fromkeys(syntax.imports + syntax.public_imports))
        positions = {path: position for position, path in enumerate(file.dependency)}
        file.public_dependency.extend(positions[path] for path in dict.fromkeys(syntax.public_imports))
        self._note(file, syntax.options, file.package)
        for declaration in syntax.body:
            if isinstance(declaration, Message):
                self._message(declaration, file.message_type.add(), file.package)
            elif isinstance(declaration, EnumType):
                self._enum(declaration, file.enum_type.add(), file.package)
            elif isinstance(declaration, Extend):
                self._extend(declaration, file.extension, file.message_type, file.package)
        for service in syntax.services:
            built = file.service.add(name=service.name)
            self._note(built, service.options, _join(file.package, service.name))
            for method in service.methods:
                target = built.method.add(name=method.name, input_type=method.request, output_type=method.response)
                if method.request_streams:
                    target.client_streaming = True
                if method.response_streams:
                    target.server_streaming = True
                self._note(target, method.options, _join(file.package, service.name))

    def _note(self, message: Any, options: list[Option], scope: str) -> None:
        if options:
            self.optioned.append((message, options, scope))

    def _message(self, message: Message, target: DescriptorProto, scope: str) -> None:
        target.name = message.name
        inner = _join(scope, message.name)
        self._note(target, message.options, inner)
        for declaration in message.body:
            if isinstance(declaration, Message):
                self._message(declaration, target.nested_type.add(), inner)
            elif isinstance(declaration, EnumType):
                self._enum(declaration, target.enum_type.add(), inner)
            elif isinstance(declaration, Extend):
                self._extend(declaration, target.extension, target.nested_type, inner)
            elif isinstance(declaration, OneOf):
                self._oneof(declaration, target, inner)
            else:
                self._member(declaration, target.field, target.nested_type, inner)
        for start, end in _ranges(message.reserved):
            target.reserved_range.add(start=start, end=end + 1)
        target.reserved_name.extend(_interval_names(message.reserved))
        for extensions in message.extensions:
            for start, end in _ranges([extensions.intervals]):
                self._note(target.extension_range.add(start=start, end=end + 1), extensions.options, inner)
        self._synthesize_oneofs(target)

    def _oneof(self, oneof: OneOf, target: DescriptorProto, scope: str) -> None:
        index = len(target.oneof_decl)
        self._note(target.oneof_decl.add(name=oneof.name), oneof.options, scope)
        for member in oneof.fields:
            self._member(member, target.field, target.nested_type, scope).oneof_index = index

    def _synthesize_oneofs(self, target: DescriptorProto) -> None:
        """Each optional field of proto3 is alone in a oneof, after all others."""
        names = {declaration.name for declaration in (*target.field, *target.nested_type, *target.oneof_decl)}
        for field in target.field:
            if field.proto3_optional:
                name = f"_{field.name}"
                while name in names:
                    name = f"X{name}"
                names.add(name)
                field.oneof_index = len(target.oneof_decl)
                target.oneof_decl.add(name=name)

    def _member(self, member: Field | Group, fields: Any, nested: Any, scope: str) -> FieldDescriptorProto:
        target: FieldDescriptorProto = fields.add()
        target.number = member.number
        target.label = _LABELS[member.label]
        if isinstance(member, Group):
            target.name = member.message.name.lower()
            target.type = FieldDescriptorProto.TYPE_GROUP
            target.type_name = member.message.name
            self._message(member.message, nested.add(), scope)
            self._note(target, member.options, scope)
            return target
        target.name = member.name
        if member.json_name is not None:
            target.json_name = member.json_name
        if member.type in SCALARS:
            target.type = FieldDescriptorProto.Type.Value(f"TYPE_{member.type.upper()}")
        elif (pair := _MAP.match(member.type)) is not None:
            if member.label is not None:
                raise SchemaError(f"the map {member.name} has the label {member.label}; a map has none")
            target.label = FieldDescriptorProto.LABEL_REPEATED
            target.type_name = self._map_entry(member.name, pair[1], pair[2], nested)
        else:
            target.type_name = member.type
        if self._proto3 and member.label == "optional":
            target.proto3_optional = True
        if member.default is not None:
            target.default_value = _default(member.type, member.default)
        self._note(target, member.options, scope)
        return target

    def _map_entry(self, field: str, key: str, value: str, nested: Any) -> str:
        name = f"{_camel(field)}Entry"
        entry: DescriptorProto = nested.add(name=name)
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), 1):
            target = entry.field.add(name=part, number=number, label=_LABELS[None])
            if kind in SCALARS:
                target.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
            else:
                target.type_name = kind
        return name

    def _enum(self, enum: EnumType, target: EnumDescriptorProto, scope: str) -> None:
        target.name = enum.name
        self._note(target, enum.options, _join(scope, enum.name))
        for value in enum.values:
            if not -(2**31) <= value.number < 2**31:
                raise SchemaError(f"the number {value.number} of {value.name} does not fit 32 bits")
            self._note(target.value.add(name=value.name, number=value.number), value.options, scope)
        for start, end in _ranges(enum.reserved):
            target.reserved_range.add(start=start, end=end)
        target.reserved_name.extend(_interval_names(enum.reserved))

    def _extend(self, extend: Extend, fields: Any, nested: Any, scope: str) -> None:
        for member in extend.fields:
            target = self._member(member, fields, nested, scope)
            target.extendee = extend.extendee
            target.ClearField("proto3_optional")

    def link(self, scope: Scope) -> None:
        """Resolve each name of a type. Raises SchemaError."""
        for message, prefix in _messages(self.file):
            for field in (*message.field, *message.extension):
                _link_field(field, _join(prefix, message.name), scope)
        for field in self.file.extension:
            _link_field(field, self.file.package, scope)
        for service in self.file.service:
            for method in service.method:
                for attribute in ("input_type", "output_type"):
                    name = scope.resolve(getattr(method, attribute), _join(self.file.package, service.name))
                    setattr(method, attribute, f".{name}")


def _link_field(field: FieldDescriptorProto, prefix: str, scope: Scope) -> None:
    if field.extendee:
        field.extendee = f".{scope.resolve(field.extendee, prefix)}"
    if field.type_name:
        name = scope.resolve(field.type_name, prefix)
        field.type_name = f".{name}"
        if not field.HasField("type"):
            is_enum = scope.symbols[name] == "enum"
            field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE


def _messages(file: FileDescriptorProto) -> Iterator[tuple[DescriptorProto, str]]:
    """Each message with the full name around it."""
    pending = [(message, file.package) for message in file.message_type]
    while pending:
        message, prefix = pending.pop()
        yield message, prefix
        pending += [(nested, _join(prefix, message.name)) for nested in message.nested_type]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _ranges(statements: list[list[Interval]]) -> Iterator[tuple[int, int]]:
    for statement in statements:
        for interval in statement:
            if isinstance(interval, int):
                yield interval, interval
            elif isinstance(interval, tuple):
                if interval[0] > interval[1]:
                    raise SchemaError(f"the range {interval[0]} to {interval[1]} ends before it begins")
                yield interval


def _interval_names(statements: list[list[Interval]]) -> Iterator[str]:
    for statement in statements:
        yield from (interval for interval in statement if isinstance(interval, str))


def _edition(edition: str) -> str:
    name = f"EDITION_{edition}"
    if name not in Edition.keys() or not edition.isdigit():  # noqa: SIM118 (an enum of Protobuf, not a dict)
        raise SchemaError(f'"{edition}" is not an edition of Protobuf known here')
    return name


def _default(kind: str, value: Value) -> str:
    text = str(value.content)
    if kind == "bytes":
        return _escape_bytes(text)
    if kind in {"float", "double"} and value.kind is Kind.NUMBER:
        return _float(text)
    if value.kind is Kind.NUMBER and not text.isdigit():
        try:
            return str(int(text, 0))
        except ValueError:
            return text
    return text


def _float(text: str) -> str:
    try:
        number = float(text.rstrip("fF"))
    except ValueError:
        return text
    return repr(number)[:-2] if number.is_integer() and abs(number) < 1e15 else repr(number)


def _escape_bytes(text: str) -> str:
    from google.protobuf.text_encoding import CEscape

    return str(CEscape(text.encode("utf-8", "surrogateescape"), as_utf8=False))


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
