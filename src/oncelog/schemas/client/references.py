"""The schemas that a schema uses, directly and through others, bounded in number, depth and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog.base.units import MIB
from oncelog.schemas.schema import Reference, Schema, SchemaError

MAX_SCHEMAS: Final = 500
MAX_DEPTH: Final = 50
MAX_BYTES: Final = 8 * MIB


def referenced_schemas(schema: Schema, fetch: Callable[[Reference], Schema]) -> dict[str, Schema]:
    """Schemas by the names that references give them, each after those that it uses itself.

    The first of equal names wins, as in Confluent's clients. Raises SchemaError for a cycle, and beyond the limits.
    """
    schemas: dict[str, Schema] = {}
    size_bytes = 0

    def visit(user: Schema, path: tuple[tuple[str, int], ...]) -> None:
        nonlocal size_bytes
        for reference in user.references:
            if reference.name in schemas:
                continue
            place = (reference.subject, reference.version)
            if place in path:
                cycle = " → ".join(subject for subject, _ in (*path[path.index(place) :], place))
                raise SchemaError(f"schemas refer to each other in a circle: {cycle}")
            if len(path) >= MAX_DEPTH:
                raise SchemaError(f"references are nested deeper than {MAX_DEPTH} schemas, at {reference.subject}")
            used = fetch(reference)
            size_bytes += len(used.text)
            visit(used, (*path, place))
            schemas.setdefault(reference.name, used)
            if len(schemas) > MAX_SCHEMAS or size_bytes > MAX_BYTES:
                raise SchemaError(
                    f"the schema refers to more than {MAX_SCHEMAS} others or {MAX_BYTES // MIB} MiB of text, "
                    f"counted at {reference.subject}"
                )

    visit(schema, ())
    return schemas
