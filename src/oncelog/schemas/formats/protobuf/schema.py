"""A parsed Protobuf schema."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from oncelog.schemas.formats.protobuf.syntax import Message, ProtoFile
from oncelog.schemas.formats.protobuf.text import file_text
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    from oncelog.schemas.formats.protobuf.names import Scope

PATH: Final = "default"


@dataclass(frozen=True)
class ProtobufSchema:
    """``files`` are descriptors, each after those it imports and the schema's own last; ``pool`` has them all."""

    type: ClassVar = SchemaType.PROTOBUF
    syntax: ProtoFile = field(repr=False)
    references: tuple[Reference, ...]
    files: tuple[FileDescriptorProto, ...] = field(repr=False)
    pool: DescriptorPool = field(repr=False)
    scope: Scope = field(repr=False)
    imported: Mapping[str, ProtoFile] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str | None:
        return self.message_name((0,)) if self._outer.messages else None

    @cached_property
    def canonical(self) -> str:
        return file_text(self.syntax)

    @cached_property
    def normalized(self) -> str:
        from oncelog.schemas.formats.protobuf.normalizing import Normalizer

        return file_text(Normalizer(self.scope, self._is_repeated_extension).file(self.syntax))

    @property
    def serialized(self) -> str:
        """The descriptor in Base64, which a registry gives for ``format=serialized``."""
        return base64.b64encode(self.files[-1].SerializeToString(deterministic=True)).decode()

    @cached_property
    def _outer(self) -> ProtoFile:
        """The file whose messages are indexed: a file that only imports another publicly stands for that one."""
        syntax = self.syntax
        if not syntax.body and not syntax.imports and len(syntax.public_imports) == 1:
            return self.imported.get(syntax.public_imports[0], syntax)
        return syntax

    def message_name(self, path: Sequence[int]) -> str:
        """The full name of a message by its indexes within the schema's text. Raises SchemaError."""
        messages = self._outer.messages
        names = [self._outer.package] if self._outer.package else []
        for index in path or (0,):
            if not 0 <= index < len(messages):
                raise SchemaError(f"the schema has no message at the indexes {list(path)}")
            names.append(messages[index].name)
            messages = messages[index].messages
        return ".".join(names)

    def message_path(self, full_name: str) -> tuple[int, ...]:
        """The indexes that precede a value of this message. Raises SchemaError."""
        package = f"{self._outer.package}." if self._outer.package else ""
        messages: list[Message] = self._outer.messages
        path = []
        for name in full_name.removeprefix(package).split("."):
            index = next((position for position, message in enumerate(messages) if message.name == name), None)
            if index is None:
                raise SchemaError(f'the schema has no message "{full_name}"')
            path.append(index)
            messages = messages[index].messages
        return tuple(path)

    def message_class(self, path: Sequence[int]) -> Any:
        """The Protobuf class of a message by its indexes."""
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self.pool.FindMessageTypeByName(self.message_name(path)))

    def _is_repeated_extension(self, full_name: str) -> bool | None:
        try:
            return bool(self.pool.FindExtensionByName(full_name).is_repeated)
        except KeyError:
            return None


def parse_protobuf(schema: Schema, dependencies: Mapping[str, Schema]) -> ProtobufSchema:
    """``dependencies``: what the schema references, by the paths of its imports. Raises SchemaError."""
    from oncelog.schemas.formats.protobuf.compiling import Compiler

    compiler = Compiler({path: dependency.text for path, dependency in dependencies.items()})
    try:
        syntax, _, scope = compiler.compile(PATH, schema.text)
    except (TypeError, UnicodeError):
        # A descriptor gives such a text as bytes, and takes none with escaped bytes that are not UTF-8.
        raise SchemaError("a name or text of the Protobuf schema is not UTF-8") from None
    imported = {path: compiler.read(compiler.texts[path]) for path in syntax.public_imports if path in compiler.texts}
    files = tuple(compiler.files.values())
    return ProtobufSchema(syntax, schema.references, files, compiler.pool, scope, imported)
