"""Types by their names in a `.proto` file, looked up in the scopes of C++ as protoc does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from oncelog.schemas.schema import SchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

Symbol = Literal["package", "message", "enum", "extension", "other"]


class Scope:
    """The names of a file and of symbol it imports."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self.symbols: dict[str, Symbol] = {}
        for file in files:
            parts = file.package.split(".") if file.package else []
            for length in range(1, len(parts) + 1):
                self.symbols.setdefault(".".join(parts[:length]), "package")
            for name, symbol in _symbols(file):
                self.symbols[name] = symbol

    def resolve(self, name: str, scope: str, *, extension: bool = False) -> str:
        """The full name, without a leading dot. Raises SchemaError."""
        expected = ("extension",) if extension else ("message", "enum")
        if name.startswith("."):
            full = name[1:]
            if self.symbols.get(full) in expected:
                return full
        else:
            first, _, rest = name.partition(".")
            while True:
                prefix = f"{scope}." if scope else ""
                symbol = self.symbols.get(prefix + first)
                if not rest and symbol in expected:
                    return prefix + name
                # A name in parts is looked up where its first part is found, and nowhere further out.
                if rest and symbol in {"package", "message", "enum"}:
                    if self.symbols.get(prefix + name) in expected:
                        return prefix + name
                    if symbol != "package":
                        break
                if not scope:
                    break
                scope = scope.rpartition(".")[0]
        raise SchemaError(f'the type "{name}" is not defined, nor in an imported file; add an import or a reference')


def _symbols(file: FileDescriptorProto) -> Iterator[tuple[str, Symbol]]:
    prefix = f"{file.package}." if file.package else ""
    for message in file.message_type:
        yield from _message_symbols(message, prefix)
    for enum in file.enum_type:
        yield from _enum_symbols(enum, prefix)
    for extension in file.extension:
        yield prefix + extension.name, "extension"
    for service in file.service:
        yield prefix + service.name, "other"


def _message_symbols(message: DescriptorProto, prefix: str) -> Iterator[tuple[str, Symbol]]:
    full = prefix + message.name
    yield full, "message"
    inner = f"{full}."
    for field in message.field:
        yield inner + field.name, "other"
    for extension in message.extension:
        yield inner + extension.name, "extension"
    for enum in message.enum_type:
        yield from _enum_symbols(enum, inner)
    for nested in message.nested_type:
        yield from _message_symbols(nested, inner)


def _enum_symbols(enum: EnumDescriptorProto, prefix: str) -> Iterator[tuple[str, Symbol]]:
    yield prefix + enum.name, "enum"
    for value in enum.value:
        yield prefix + value.name, "other"
