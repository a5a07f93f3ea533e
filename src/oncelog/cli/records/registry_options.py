"""Options of commands that read or write values by a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.cli.records.input_records import InputError
from oncelog.cli.support.options import REGISTRY_PREFIX

if TYPE_CHECKING:
    from oncelog.cli.records.registry_values import RegistryValues
    from oncelog.schemas import Encoder, Registry, Schema

PARTS: Final = ("key", "value")
REGISTRY_VARIABLE: Final = "ONCELOG_REGISTRY"
_MAX_FILE_BYTES: Final = 1 << 20
_URL: Final = f"{REGISTRY_PREFIX}url"


@dataclass(frozen=True)
class RegistryOptions:
    registry: Annotated[
        str | None,
        typer.Option("--registry", "-r", envvar=REGISTRY_VARIABLE, metavar="URL,…", help="The schema registry."),
    ] = None

    def open(self, settings: Mapping[str, str]) -> Registry:
        """A client of the registry; ``settings`` are ``schema.registry.*`` of ``-X``. Raises BadParameter,
        RegistryConfigError."""
        from oncelog.schemas import Registry

        url = self.registry or settings.get(_URL, "")
        if not url:
            raise typer.BadParameter("name the schema registry: --registry http://HOST:PORT")
        return Registry(url, settings)


@dataclass(frozen=True)
class DecodingOptions(RegistryOptions):
    decoded: Annotated[
        list[str] | None,
        typer.Option(
            "--deserializer",
            "-s",
            metavar="[key=|value=]registry",
            help="Print it as JSON, by the schema that it names in the registry; may be repeated.",
        ),
    ] = None

    @contextmanager
    def values(self, settings: Mapping[str, str]) -> Iterator[RegistryValues | None]:
        """The decoders that ``-s`` selects; None without it. Raises BadParameter, and ClientError at the end if a value
        could not be decoded."""
        from oncelog.cli.records.registry_values import RegistryValues

        parts: set[str] = set()
        for text in self.decoded or ():
            name, equals, kind = text.rpartition("=")
            # kcat calls a registry's values avro, whatever their format.
            if kind not in ("registry", "avro") or (equals and name not in PARTS):
                raise typer.BadParameter(f"{text!r} is not registry, key=registry or value=registry", param_hint="-s")
            parts |= {name} if equals else set(PARTS)
        if not parts:
            yield None
            return
        with self.open(settings) as registry:
            values = RegistryValues(registry, parts)
            yield values
            values.finish()


@dataclass(frozen=True)
class EncodingOptions(RegistryOptions):
    value_schema: Annotated[
        str | None,
        typer.Option(
            metavar="SUBJECT[@VERSION]|FILE", help="Input values are JSON; encode them by this schema of the registry."
        ),
    ] = None
    key_schema: Annotated[str | None, typer.Option(metavar="SUBJECT[@VERSION]|FILE", help="The same for keys.")] = None
    value_message: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The Protobuf message of values. Default: the schema's first."),
    ] = None
    register: Annotated[
        bool, typer.Option("--register", help="Register the schema of a FILE if its subject does not have it.")
    ] = False
    id_in_header: Annotated[
        bool, typer.Option("--schema-id-in-header", help="Name the schema in a header instead of the first bytes.")
    ] = False

    def encoders(self, topic: str, settings: Mapping[str, str]) -> dict[str, Encoder]:
        """Encoders by part. Raises BadParameter, RegistryError, SchemaError."""
        given = {"key": self.key_schema, "value": self.value_schema}
        if not any(given.values()):
            if self.register or self.id_in_header or self.value_message:
                raise typer.BadParameter("--register and other options of schemas need --value-schema or --key-schema")
            return {}
        with self.open(settings) as registry:
            return {part: self._encoder(registry, topic, part, text) for part, text in given.items() if text}

    def _encoder(self, registry: Registry, topic: str, part: str, text: str) -> Encoder:
        from oncelog.schemas import Encoder, NotRegistered, RegistryError

        schema = _schema_in(Path(text)) if Path(text).suffix in _TYPES else None
        subject = text if schema is None else f"{topic}-{part}"
        message = self.value_message if part == "value" else None
        try:
            return Encoder(
                *(registry, subject, schema),
                register=self.register,
                message=message,
                part=part,
                in_header=self.id_in_header,
            )
        except NotRegistered as error:
            if schema is None or self.register:
                raise
            raise RegistryError(f"{text} is not registered as {subject}; --register registers it: {error}") from None


_TYPES: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


def _schema_in(path: Path) -> Schema:
    """The schema in a file, its format by the file's name. Raises BadParameter, OSError."""
    from oncelog.schemas import Schema, SchemaType

    with path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise typer.BadParameter(f"{path} is larger than {_MAX_FILE_BYTES} bytes; give a file with a schema")
    try:
        return Schema(data.decode(), SchemaType[_TYPES[path.suffix]])
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not UTF-8 text; give a file with a schema") from None


def encode_text(encoder: Encoder, text: bytes | None, part: str) -> tuple[bytes | None, tuple[tuple[str, bytes], ...]]:
    """A key or value given as JSON, as bytes with the headers for it. Raises InputError."""
    from oncelog.schemas import NotWritable

    if text is None:
        return None, ()
    try:
        return encoder.encode(json.loads(text))
    except (ValueError, RecursionError) as error:
        name = "does not fit its schema" if isinstance(error, NotWritable) else "is not JSON"
        raise InputError(f"the {part} {name}: {error}") from None
