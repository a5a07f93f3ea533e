"""Rules of Protobuf: fields are their numbers, so a change is compatible if the bytes of each number stay readable.

The rules are those of Protobuf's guide, "Updating a Message Type", with Confluent's for names. Where a registry of
Confluent's lets pass what loses values (a packed list read as one number, a field that becomes required), we do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from oncelog.schemas.compatibility.rules import Difference, Rule, deeper, shown
from oncelog.schemas.formats.protobuf.schema import PATH, ProtobufSchema

_GUIDE: Final = "Protocol Buffers, Updating a Message Type"
PACKAGE_CHANGED: Final = Rule(
    "PACKAGE_CHANGED",
    "Confluent: full names of messages stay, as serializers of the JVM find classes by them",
    "The package at '{path}' in the {reader} schema is not the one in the {writer} schema",
)
MESSAGE_REMOVED: Final = Rule(
    "MESSAGE_REMOVED",
    "Confluent: a message that values may be of stays",
    "The {reader} schema lacks the message at path '{path}' that the {writer} schema has",
)
FIELD_KIND_CHANGED: Final = Rule(
    "FIELD_KIND_CHANGED",
    f"{_GUIDE}: a number, a message, a group and a map are not encoded alike",
    "The kind of the field at path '{path}' in the {reader} schema is not the one in the {writer} schema",
)
FIELD_SCALAR_KIND_CHANGED: Final = Rule(
    "FIELD_SCALAR_KIND_CHANGED",
    f"{_GUIDE}: int32, uint32, int64, uint64, bool and enums are compatible; sint32 and sint64, too; string and bytes "
    "of UTF-8; fixed32 and sfixed32; fixed64 and sfixed64",
    "The scalar at path '{path}' in the {reader} schema is not encoded like the one in the {writer} schema",
)
FIELD_NAMED_TYPE_CHANGED: Final = Rule(
    "FIELD_NAMED_TYPE_CHANGED",
    "Confluent: the message of a field keeps its name within its package",
    "The message of the field at path '{path}' in the {reader} schema is not the one in the {writer} schema",
)
FIELD_NUMERIC_LABEL_CHANGED: Final = Rule(
    "FIELD_NUMERIC_LABEL_CHANGED",
    f"{_GUIDE}: repeated numbers are packed, which a reader of one number does not see",
    "The label of the numeric field at path '{path}' in the {reader} schema is not the one in the {writer} schema",
)
REQUIRED_FIELD_ADDED: Final = Rule(
    "REQUIRED_FIELD_ADDED",
    f"{_GUIDE}: values without a required field cannot be read",
    "The field at path '{path}' is required in the {reader} schema and not in the {writer} schema",
)
REQUIRED_FIELD_REMOVED: Final = Rule(
    "REQUIRED_FIELD_REMOVED",
    f"{_GUIDE}: a required field is never removed",
    "The {reader} schema lacks the required field at path '{path}' of the {writer} schema",
)
ONEOF_FIELD_REMOVED: Final = Rule(
    "ONEOF_FIELD_REMOVED",
    f"{_GUIDE}: a value of a removed oneof field looks like an unset oneof",
    "The {reader} schema lacks the field of a oneof at path '{path}' that the {writer} schema has",
)
MULTIPLE_FIELDS_MOVED_TO_ONEOF: Final = Rule(
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
    f"{_GUIDE}: several set fields in one oneof keep only the last",
    "Several fields of the oneof at path '{path}' in the {reader} schema are in none in the {writer} schema",
)
FIELD_MOVED_TO_EXISTING_ONEOF: Final = Rule(
    "FIELD_MOVED_TO_EXISTING_ONEOF",
    f"{_GUIDE}: a field that moves into a oneof with others may clear them",
    "A field of the oneof at path '{path}' in the {reader} schema is not in it in the {writer} schema",
)
PROTOBUF_RULES: Final = (
    PACKAGE_CHANGED,
    MESSAGE_REMOVED,
    FIELD_KIND_CHANGED,
    FIELD_SCALAR_KIND_CHANGED,
    FIELD_NAMED_TYPE_CHANGED,
    FIELD_NUMERIC_LABEL_CHANGED,
    REQUIRED_FIELD_ADDED,
    REQUIRED_FIELD_REMOVED,
    ONEOF_FIELD_REMOVED,
    MULTIPLE_FIELDS_MOVED_TO_ONEOF,
    FIELD_MOVED_TO_EXISTING_ONEOF,
)
_VARINT: Final = "varint"
_ENCODINGS: Final = {
    FieldDescriptor.TYPE_INT32: _VARINT,
    FieldDescriptor.TYPE_INT64: _VARINT,
    FieldDescriptor.TYPE_UINT32: _VARINT,
    FieldDescriptor.TYPE_UINT64: _VARINT,
    FieldDescriptor.TYPE_BOOL: _VARINT,
    FieldDescriptor.TYPE_ENUM: _VARINT,
    FieldDescriptor.TYPE_SINT32: "zigzag",
    FieldDescriptor.TYPE_SINT64: "zigzag",
    FieldDescriptor.TYPE_STRING: "text",
    FieldDescriptor.TYPE_BYTES: "text",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_SFIXED32: "fixed32",
    FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_SFIXED64: "fixed64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def protobuf_differences(reader: ProtobufSchema, writer: ProtobufSchema) -> list[Difference]:
    comparison = _Comparison(
        _syntaxes(reader), _syntaxes(writer), _synthetic_oneofs(reader) | _synthetic_oneofs(writer)
    )
    reader_file, writer_file = reader.pool.FindFileByName(PATH), writer.pool.FindFileByName(PATH)
    if reader_file.package != writer_file.package:
        comparison.differences.append(Difference(PACKAGE_CHANGED, "#/"))
    comparison.messages((), reader_file.message_types_by_name, writer_file.message_types_by_name)
    comparison.run()
    return comparison.differences


def _syntaxes(schema: ProtobufSchema) -> dict[str, str]:
    return {file.name: file.syntax or "proto2" for file in schema.files}


Path = tuple[str, ...]


@dataclass
class _Comparison:
    """Compares each pair of messages once, however often and recursively fields have them."""

    reader_syntax: dict[str, str]
    writer_syntax: dict[str, str]
    synthetic: set[str]
    differences: list[Difference] = field(default_factory=list)
    _pending: list[tuple[Path, Any, Any]] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def messages(self, path: Path, reader: Any, writer: Any) -> None:
        """Messages of a file or of another message, by their names."""
        for name, message in writer.items():
            if _is_map_entry(message):
                continue
            if name not in reader or _is_map_entry(reader[name]):
                self._report(MESSAGE_REMOVED, deeper(path, [shown(name)]))
            else:
                self._add(deeper(path, [shown(name)]), reader[name], message)

    def run(self) -> None:
        while self._pending:
            path, reader, writer = self._pending.pop()
            self._message(path, reader, writer)

    def _add(self, path: Path, reader: Any, writer: Any) -> None:
        pair = (reader.full_name, writer.full_name)
        if pair not in self._seen:
            self._seen.add(pair)
            self._pending.append((path, reader, writer))

    def _report(self, rule: Rule, path: Path) -> None:
        self.differences.append(Difference(rule, shown("#/" + "/".join(path))))

    def _message(self, path: Path, reader: Any, writer: Any) -> None:
        reader_fields = {member.number: member for member in reader.fields}
        writer_fields = {member.number: member for member in writer.fields}
        self._oneofs(path, reader, writer_fields)
        deleted = _deleted_oneofs(reader, reader_fields, writer)
        for number in sorted({*reader_fields, *writer_fields}):
            read, written = reader_fields.get(number), writer_fields.get(number)
            if read is None:
                self._removed(path, written, deleted)
            elif written is None:
                if read.is_required:
                    self._report(REQUIRED_FIELD_ADDED, self._place(path, read))
            else:
                self._field(self._place(path, read), read, written)
        self.messages(path, reader.nested_types_by_name, writer.nested_types_by_name)

    def _oneofs(self, path: Path, reader: Any, writer_fields: dict[int, Any]) -> None:
        """Fields that could be set together stay so."""
        for oneof in reader.oneofs:
            if oneof.full_name in self.synthetic:
                continue
            old = [writer_fields[member.number] for member in oneof.fields if member.number in writer_fields]
            alone = [member for member in old if self._oneof_of(member) is None]
            groups = {self._oneof_of(member).name for member in old if self._oneof_of(member) is not None}
            if len(alone) + len(groups) > 1:
                rule = MULTIPLE_FIELDS_MOVED_TO_ONEOF if len(alone) > 1 else FIELD_MOVED_TO_EXISTING_ONEOF
                self._report(rule, deeper(path, [shown(oneof.name)]))

    def _removed(self, path: Path, written: Any, deleted: set[str]) -> None:
        oneof = self._oneof_of(written)
        if written.is_required:
            self._report(REQUIRED_FIELD_REMOVED, self._place(path, written))
        elif oneof is not None and oneof.name not in deleted:
            self._report(ONEOF_FIELD_REMOVED, self._place(path, written))

    def _field(self, path: Path, read: Any, written: Any) -> None:
        if read.is_required and not written.is_required:
            self._report(REQUIRED_FIELD_ADDED, path)
        kind = _kind(read)
        if kind != _kind(written):
            self._report(FIELD_KIND_CHANGED, path)
        elif kind == "map":
            for part in ("key", "value"):
                self._field(path, _part(read, part), _part(written, part))
        elif kind == "scalar":
            self._scalar(path, read, written)
        elif _local_name(read.message_type) != _local_name(written.message_type):
            self._report(FIELD_NAMED_TYPE_CHANGED, path)
        else:
            self._add(path, read.message_type, written.message_type)

    def _place(self, path: Path, member: Any) -> Path:
        oneof = self._oneof_of(member)
        parts = [str(member.number)] if oneof is None else [shown(oneof.name), str(member.number)]
        return deeper(path, parts)

    def _oneof_of(self, member: Any) -> Any:
        oneof = member.containing_oneof
        return None if oneof is None or oneof.full_name in self.synthetic else oneof

    def _label(self, member: Any, syntaxes: dict[str, str]) -> str | None:
        """The label as it is written; None if it need not be."""
        if member.is_repeated:
            return "repeated"
        if member.is_required:
            return "required"
        syntax = syntaxes.get(member.file.name, "proto2")
        if syntax == "editions" or self._oneof_of(member) is not None:
            return None
        return "optional" if syntax == "proto2" or member.has_presence else None

    def _scalar(self, path: Path, read: Any, written: Any) -> None:
        encoding = _ENCODINGS[read.type]
        if encoding != _ENCODINGS[written.type]:
            self._report(FIELD_SCALAR_KIND_CHANGED, path)
        elif encoding != "text":
            labels = (self._label(read, self.reader_syntax), self._label(written, self.writer_syntax))
            narrowed = written.is_repeated and not read.is_repeated
            if narrowed or (None not in labels and labels[0] != labels[1] and not read.is_required):
                self._report(FIELD_NUMERIC_LABEL_CHANGED, path)


def _deleted_oneofs(reader: Any, reader_fields: dict[int, Any], writer: Any) -> set[str]:
    """Oneofs without any field left: their values are unknown fields, like those of any removed field."""
    deleted = (oneof for oneof in writer.oneofs if not any(member.number in reader_fields for member in oneof.fields))
    return {oneof.name for oneof in deleted} - set(reader.oneofs_by_name)


def _synthetic_oneofs(schema: ProtobufSchema) -> set[str]:
    """Oneofs that an optional field of proto3 is alone in, by their full names."""
    pending = [(message, file.package) for file in schema.files for message in file.message_type]
    names = set()
    while pending:
        message, prefix = pending.pop()
        full = f"{prefix}.{message.name}" if prefix else message.name
        for member in message.field:
            if member.proto3_optional:
                names.add(f"{full}.{message.oneof_decl[member.oneof_index].name}")
        pending += [(nested, full) for nested in message.nested_type]
    return names


def _kind(member: Any) -> str:
    if member.message_type is None:
        return "scalar"
    if _is_map_entry(member.message_type):
        return "map"
    return "group" if member.type == FieldDescriptor.TYPE_GROUP else "message"


def _part(member: Any, name: str) -> Any:
    return member.message_type.fields_by_name[name]


def _is_map_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


def _local_name(message: Any) -> str:
    package = message.file.package
    return str(message.full_name.removeprefix(f"{package}.") if package else message.full_name)
