"""The files of a schema compiled together: descriptors in the order of their dependencies, and a pool of them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from oncelog.schemas.formats.limits import MAX_REFERENCES, check_depth
from oncelog.schemas.formats.protobuf.descriptors import DescriptorBuilder
from oncelog.schemas.formats.protobuf.from_descriptor import syntax_of
from oncelog.schemas.formats.protobuf.known_files import known_file, known_text
from oncelog.schemas.formats.protobuf.names import Scope
from oncelog.schemas.formats.protobuf.options import interpret
from oncelog.schemas.formats.protobuf.parser import parse_file
from oncelog.schemas.formats.protobuf.syntax import ProtoFile
from oncelog.schemas.schema import SchemaError

_DESCRIPTOR: Final = "google/protobuf/descriptor.proto"


@dataclass
class Compiler:
    """``texts`` are the files that may be imported, by their paths; well-known files need not be among them."""

    texts: Mapping[str, str]
    files: dict[str, FileDescriptorProto] = field(default_factory=dict)
    pool: DescriptorPool = field(default_factory=DescriptorPool)
    _compiling: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._import(_DESCRIPTOR)

    def compile(self, path: str, text: str) -> tuple[ProtoFile, FileDescriptorProto, Scope]:
        """Raises SchemaError."""
        if path in self._compiling:
            raise SchemaError(f"the files {', '.join(self._compiling)} import each other in a circle")
        check_depth(len(self._compiling))
        self._compiling.append(path)
        syntax = self.read(text)
        builder = DescriptorBuilder(syntax, path)
        file = builder.file
        for imported in file.dependency:
            self._import(imported)
        scope = Scope([*self._visible(file.dependency), file])
        builder.link(scope)
        if builder.optioned:
            # Options are interpreted by a pool that has the file, since it may define them itself.
            scratch = self._pool()
            _add(scratch, file)
            interpret(builder.optioned, scratch, scope)
        _add(self.pool, file)
        self.files[path] = file
        self._compiling.pop()
        return syntax, file, scope

    def read(self, text: str) -> ProtoFile:
        """`.proto` text, or a descriptor in Base64, which is what Python's and JavaScript's clients register."""
        try:
            return parse_file(text)
        except SchemaError as error:
            file = _decode(text)
            if file is None:
                raise error from None
        for path in file.dependency:
            self._import(path)
        file_class = GetMessageClass(self.pool.FindMessageTypeByName(FileDescriptorProto.DESCRIPTOR.full_name))
        return syntax_of(file_class.FromString(file.SerializeToString()))

    def _import(self, path: str) -> None:
        if path in self.files:
            return
        if len(self.files) > MAX_REFERENCES:
            raise SchemaError(f"a schema imports at most {MAX_REFERENCES} files, directly and indirectly")
        text = self.texts.get(path) or known_text(path)
        if text is not None:
            self.compile(path, text)
            return
        file = known_file(path)
        if file is None:
            raise SchemaError(f'the import "{path}" is not among the references of the schema; add one of this name')
        for dependency in file.dependency:
            self._import(dependency)
        _add(self.pool, file)
        self.files[path] = file

    def _visible(self, paths: Any) -> list[FileDescriptorProto]:
        """Imported files, and those that they import publicly."""
        visible: dict[str, FileDescriptorProto] = {}
        pending = list(paths)
        while pending:
            path = pending.pop()
            if path not in visible:
                file = visible[path] = self.files[path]
                pending += [file.dependency[position] for position in file.public_dependency]
        return list(visible.values())

    def _pool(self) -> DescriptorPool:
        pool = DescriptorPool()
        for file in self.files.values():
            _add(pool, file)
        return pool


def _add(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        detail = str(error).partition("descriptor pool: ")[2] or str(error)
        raise SchemaError(f"the Protobuf schema is not valid: {detail}") from None


def _decode(text: str) -> FileDescriptorProto | None:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
