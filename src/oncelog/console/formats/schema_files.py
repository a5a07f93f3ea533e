"""Schemas given to a console: ``--schema [key:]TOPIC[@ID]=FILE[:MESSAGE]``, and the choice among them.

FILE is an Avro schema (``.avsc``) or a Protobuf descriptor set (``.desc``); TOPIC ``*`` means every topic; ID is a
registry's schema id. The most specific schema wins: by topic and id, by id, by topic, for every topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from oncelog.base.units import MIB
from oncelog.client.errors import ConfigError
from oncelog.schemas.wire_format import AVRO as AVRO
from oncelog.schemas.wire_format import KEY, VALUE

PROTOBUF: Final = "protobuf"
KINDS: Final = {".avsc": AVRO, ".desc": PROTOBUF, ".binpb": PROTOBUF, ".protoset": PROTOBUF}
EVERY_TOPIC: Final = "*"
MAX_FILE_BYTES: Final = 8 * MIB
MAX_SCHEMAS: Final = 200


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema and what it applies to. ``schema_id`` None: records with any id or none."""

    topic: str
    part: str
    schema_id: str | None
    kind: str
    path: Path
    message: str | None
    content: bytes


def read_schemas(options: Iterable[str]) -> tuple[SchemaFile, ...]:
    """The schemas of ``--schema`` options, with their files read. Raises ConfigError."""
    schemas = tuple(_schema(option) for option in options)
    if len(schemas) > MAX_SCHEMAS:
        raise ConfigError(f"{len(schemas)} schemas were given; the maximum is {MAX_SCHEMAS}")
    by_key: dict[tuple[str, str, str | None], SchemaFile] = {}
    for schema in schemas:
        other = by_key.setdefault((schema.topic, schema.part, schema.schema_id), schema)
        if other is not schema:
            raise ConfigError(f"--schema gives two files for the same records: {other.path} and {schema.path}")
    return schemas


def _schema(option: str) -> SchemaFile:
    subject, equals, file = option.partition("=")
    if not equals or not subject or not file:
        raise ConfigError(f"--schema {option!r} is not [key:]TOPIC[@ID]=FILE[:MESSAGE]")
    part = KEY if subject.startswith("key:") else VALUE
    topic, at_sign, schema_id = subject.removeprefix("key:").removeprefix("value:").partition("@")
    if not topic:
        raise ConfigError(f"--schema {option!r} has no topic; use * for every topic")
    path, message = Path(file), None
    if path.suffix not in KINDS and ":" in file:
        name, _, message = file.rpartition(":")
        path = Path(name)
    kind = KINDS.get(path.suffix)
    if kind is None:
        raise ConfigError(
            f"--schema {option!r}: the name of {path} must end with one of {', '.join(KINDS)}; for a .proto file, "
            "protoc --include_imports --descriptor_set_out FILE.desc writes one"
        )
    if message is not None and kind != PROTOBUF:
        raise ConfigError(f"--schema {option!r}: a message can be chosen only in a Protobuf file")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"--schema {option!r}: the file is larger than {MAX_FILE_BYTES // MIB} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--schema {option!r}: {error.strerror}: {path}") from error
    return SchemaFile(topic, part, _id(schema_id, option) if at_sign else None, kind, path, message, content)


def _id(text: str, option: str) -> str:
    if text.isascii() and text.isdigit() and int(text) < 2**32:
        return str(int(text))
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigError(f"--schema {option!r}: {text!r} is not a schema id (a number or a GUID)") from None


def schema_for(schemas: tuple[SchemaFile, ...], topic: str, part: str, schema_id: str | None) -> int | None:
    by_key = {(schema.topic, schema.part, schema.schema_id): index for index, schema in enumerate(schemas)}
    for name, named_id in ((topic, schema_id), (EVERY_TOPIC, schema_id), (topic, None), (EVERY_TOPIC, None)):
        if (index := by_key.get((name, part, named_id))) is not None:
            return index
    return None
