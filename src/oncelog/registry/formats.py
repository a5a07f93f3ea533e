"""Ports to schema formats: canonical texts, and the reasons why two schemas do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.schemas.schema import Reference, Schema

Resolve = Callable[[Reference], Schema]


class ParsedSchema(Protocol):
    """``canonical`` is the text that the registry stores and compares, ``normalized`` that of `normalize=true`."""

    @property
    def canonical(self) -> str: ...
    @property
    def normalized(self) -> str: ...


class Formats(Protocol):
    def formatted(self, schema: ParsedSchema, form: str) -> str:
        """The text of `format=`. Raises SchemaError for one that the type does not have, or if it cannot be made."""

    def parse(self, schema: Schema, resolve: Resolve) -> ParsedSchema:
        """Raises SchemaError."""

    def incompatibilities(
        self, schema: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]], level: str
    ) -> list[str]:
        """Reasons against ``schema`` after ``earlier`` versions, the latest first; empty if it is compatible. Raises
        SchemaError for schemas that are too large to compare."""
