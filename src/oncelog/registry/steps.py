"""Steps that the program of a request yields: parsing, comparing, and access to the topic.

A program that changes something yields ``Current`` first, decides, and yields ``Append`` last. If another instance took
the pen in between, nothing is appended, and the program runs again from its beginning.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from oncelog.registry.formats import ParsedSchema
from oncelog.registry.topic_records import TopicRecord, Version
from oncelog.schemas.schema import Schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Current:
    """Wait until the store has everything that was in the topic at this moment."""


@dataclass(frozen=True, slots=True)
class Parse:
    """Parse a schema that a client sent for ``subject``. Returns it; raises RegistryError if it is not valid."""

    subject: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare a parsed schema with ``versions``, the latest first, under a compatibility level. Returns the reasons
    against it."""

    schema: ParsedSchema
    versions: tuple[Version, ...]
    level: str


@dataclass(frozen=True, slots=True)
class Append:
    """Append records, all or none, and apply them to the store."""

    records: tuple[TopicRecord, ...]


Step = Current | Parse | Compare | Append
Program = Generator[Step, Any, T]
