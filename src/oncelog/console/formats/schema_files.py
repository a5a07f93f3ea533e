"""Schemas that a console was started with: ``--schema [key:]TOPIC[@ID]=FILE[:MESSAGE]``, and which of them counts.

FILE is an Avro schema (``.avsc``) or a Protobuf descriptor set (``.desc``, as ``protoc --include_imports
--descriptor_set_out`` writes it). TOPIC ``*`` is every topic; ID is a registry's, of records that name it.

The rule: the most exact one counts: by topic and id, by id, by topic, for every topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from oncelog.base.units import MIB
from oncelog.client.errors import ConfigError
from oncelog.console.formats.wire_format import AVRO as AVRO
from oncelog.console.formats.wire_format import KEY, VALUE

PROTOBUF: Final = "protobuf"
KINDS: Final = {".avsc": AVRO, ".desc": PROTOBUF, ".binpb": PROTOBUF, ".protoset": PROTOBUF}
EVERY_TOPIC: Final = "*"
LARGEST_FILE: Final = 8 * MIB
MOST_SCHEMAS: Final = 200


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema and what it is for. ``schema_id`` None: records of every id, and of none."""

    topic: str
    part: str
    schema_id: str | None
    kind: str
    path: Path
    message: str | None
    content: bytes


def read_schemas(options: Iterable[str]) -> tuple[SchemaFile, ...]:
    """The schemas of ``--schema`` options, their files read. Raises ConfigError."""
    found = tuple(_schema(option) for option in options)
    if len(found) > MOST_SCHEMAS:
        raise ConfigError(f"{len(found)} schemas are given; {MOST_SCHEMAS} are the most")
    known: dict[tuple[str, str, str | None], SchemaFile] = {}
    for one in found:
        other = known.setdefault((one.topic, one.part, one.schema_id), one)
        if other is not one:
            raise ConfigError(f"--schema names two files for the same: {other.path} and {one.path}")
    return found


def _schema(option: str) -> SchemaFile:
    what, equals, file = option.partition("=")
    if not equals or not what or not file:
        raise ConfigError(f"--schema {option!r} is not [key:]TOPIC[@ID]=FILE[:MESSAGE]")
    part = KEY if what.startswith("key:") else VALUE
    topic, at, schema_id = what.removeprefix("key:").removeprefix("value:").partition("@")
    if not topic:
        raise ConfigError(f"--schema {option!r} names no topic; * is every topic")
    path, message = Path(file), None
    if path.suffix not in KINDS and ":" in file:
        name, _, message = file.rpartition(":")
        path = Path(name)
    kind = KINDS.get(path.suffix)
    if kind is None:
        raise ConfigError(
            f"--schema {option!r}: {path} is told by its ending, one of {', '.join(KINDS)}; of a .proto file, "
            "protoc --include_imports --descriptor_set_out FILE.desc makes one"
        )
    if message is not None and kind != PROTOBUF:
        raise ConfigError(f"--schema {option!r}: only Protobuf files have messages to choose from")
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigError(f"--schema {option!r}: the file is larger than {LARGEST_FILE // MIB} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--schema {option!r}: {error.strerror}: {path}") from error
    return SchemaFile(topic, part, _id(schema_id, option) if at else None, kind, path, message, content)


def _id(text: str, option: str) -> str:
    if text.isascii() and text.isdigit() and int(text) < 2**32:
        return str(int(text))
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigError(f"--schema {option!r}: {text!r} is no schema id, a number or a GUID") from None


def schema_for(schemas: tuple[SchemaFile, ...], topic: str, part: str, schema_id: str | None) -> int | None:
    """The index of the schema that counts, None where there is none."""
    by_key = {(one.topic, one.part, one.schema_id): index for index, one in enumerate(schemas)}
    for name, named_id in ((topic, schema_id), (EVERY_TOPIC, schema_id), (topic, None), (EVERY_TOPIC, None)):
        if (found := by_key.get((name, part, named_id))) is not None:
            return found
    return None
