"""Everything that a schema references, directly and indirectly."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.schemas.formats.limits import MAX_ALL_TEXT_BYTES, MAX_REFERENCES, check_depth, check_text
from oncelog.schemas.schema import Reference, Schema, SchemaError

Resolve = Callable[[Reference], Schema]


def no_references(reference: Reference) -> Schema:
    raise SchemaError(f'the reference "{reference.name}" to {reference.subject} cannot be resolved here')


def dependencies_of(schema: Schema, resolve: Resolve) -> dict[str, Schema]:
    """Referenced schemas by the names that texts use, each after those it needs. Raises SchemaError."""
    resolved: dict[str, Schema] = {}
    visited: dict[str, Reference] = {}
    text_bytes = 0

    def visit(references: tuple[Reference, ...], depth: int) -> None:
        nonlocal text_bytes
        check_depth(depth)
        for reference in references:
            earlier = visited.setdefault(reference.name, reference)
            if earlier is not reference:
                _check_same(earlier, reference)
                continue
            if len(visited) > MAX_REFERENCES:
                raise SchemaError(f"a schema references at most {MAX_REFERENCES} others, directly and indirectly")
            referenced = resolve(reference)
            if referenced.type is not schema.type:
                raise SchemaError(f'"{reference.name}" is {referenced.type}, but {schema.type} references its own kind')
            check_text(referenced.text)
            text_bytes += len(referenced.text)
            if text_bytes > MAX_ALL_TEXT_BYTES:
                raise SchemaError(f"a schema and its references have at most {MAX_ALL_TEXT_BYTES} bytes in all")
            visit(referenced.references, depth + 1)
            resolved[reference.name] = referenced

    visit(schema.references, 0)
    return resolved


def _check_same(earlier: Reference, later: Reference) -> None:
    # Two versions under one name would be read as whichever came first.
    if (earlier.subject, earlier.version) != (later.subject, later.version):
        raise SchemaError(
            f'"{later.name}" refers to {earlier.subject} version {earlier.version} and to '
            f"{later.subject} version {later.version}; use one version"
        )
