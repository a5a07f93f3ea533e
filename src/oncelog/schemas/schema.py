"""Schemas as a registry holds them: their text, format and references, and where they are registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID


class SchemaType(StrEnum):
    """The formats of schemas, by a registry's names for them."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


MAX_MESSAGE_LENGTH: Final = 1_000
"""The longest message of an error, which quotes names: a schema may have one of a megabyte."""


class SchemaError(ValueError):
    """A schema that is not valid in its format, or that exceeds a limit. Long messages lose their middle."""

    def __init__(self, message: str) -> None:
        half = MAX_MESSAGE_LENGTH // 2
        super().__init__(message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:half]} … {message[-half:]}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses. ``name`` is how its text names it: an Avro full name, a Protobuf import, a JSON
    ``$ref``."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it was written. ``metadata`` and ``rule_set`` are a registry's JSON, kept as they are."""

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, object] | None = field(default=None, hash=False)
    rule_set: Mapping[str, object] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject. The same schema has one id in all subjects of its context, and one GUID anywhere; older
    registries give no GUID."""

    subject: str
    version: int
    schema_id: int
    guid: UUID | None
    schema: Schema
