"""Bounds of schemas, which come from anybody who may write to a subject: each is checked before work is done."""

from __future__ import annotations

from typing import Final

from oncelog.schemas.schema import SchemaError

MAX_TEXT_BYTES: Final = 1 << 20
MAX_ALL_TEXT_BYTES: Final = 8 << 20  # of a schema and everything that it references
MAX_REFERENCES: Final = 500  # of a schema, directly and indirectly
MAX_DEPTH: Final = 100  # of types within types
MAX_JSON_DEPTH: Final = 400  # of objects and arrays within each other
MAX_DEFAULT_VALUES: Final = 50_000
MAX_NAMES: Final = 20_000  # types, fields, symbols and values of a schema


def check_text(text: str) -> None:
    """Raises SchemaError."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise SchemaError(f"a schema has at most {MAX_TEXT_BYTES} bytes, this one has {len(text)} characters")


class Budget:
    """Counts the names of a schema."""

    def __init__(self) -> None:
        self.names = 0

    def spend(self, names: int = 1) -> None:
        self.names += names
        if self.names > MAX_NAMES:
            raise SchemaError(f"a schema has at most {MAX_NAMES} names of types, fields and symbols; split it")


def check_depth(depth: int, most: int = MAX_DEPTH) -> None:
    if depth > most:
        raise SchemaError(f"types are nested at most {most} deep; give an inner type a name and refer to it")
