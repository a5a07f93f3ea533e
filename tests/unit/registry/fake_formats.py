"""Formats of a registry that know JSON only: canonical is compact, normalised has sorted keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.registry.formats import ParsedSchema, Resolve
from oncelog.schemas.schema import Schema, SchemaError


@dataclass(frozen=True)
class FakeSchema:
    canonical: str
    normalized: str


class FakeFormats:
    """A schema is incompatible with earlier ones if its text says so."""

    def __init__(self) -> None:
        self.parsed: list[str] = []

    def parse(self, schema: Schema, resolve: Resolve) -> FakeSchema:
        self.parsed.append(schema.text)
        for reference in schema.references:
            resolve(reference)
        try:
            document = json.loads(schema.text)
        except ValueError as error:
            raise SchemaError(str(error)) from None
        return FakeSchema(
            json.dumps(document, separators=(",", ":")), json.dumps(document, separators=(",", ":"), sort_keys=True)
        )

    def formatted(self, schema: ParsedSchema, form: str) -> str:
        return f"{form}:{schema.canonical}"

    def incompatibilities(
        self, schema: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]], level: str
    ) -> list[str]:
        return ["it says so"] if "incompatible" in schema.canonical else []
