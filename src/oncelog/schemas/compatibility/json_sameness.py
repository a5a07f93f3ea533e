"""JSON schemas that mean the same because they are written alike, whatever they are annotated with."""

from __future__ import annotations

from typing import Any, Final

from oncelog.schemas.compatibility.json_values import equal
from oncelog.schemas.formats.json_schema.documents import Documents, Draft, Node
from oncelog.schemas.formats.json_schema.keywords import subschemas

_IGNORED: Final = frozenset(
    {
        "$id", "id", "$schema", "$comment", "$anchor", "$defs", "definitions", "title", "description", "default",
        "examples", "deprecated", "readOnly", "writeOnly", "format", "$ref",
    }
)  # fmt: skip
_REFERENCES: Final = ("$ref", "$dynamicRef")
_MAX_PAIRS: Final = 100_000


class Sameness:
    def __init__(self) -> None:
        self._different: set[tuple[int, int]] = set()
        self._pairs = 0

    def same(self, documents: Documents, node: Node, others: Documents, other: Node) -> bool:
        """True only if that is certain. Recursive schemas are the same if no difference is found."""
        seen: set[tuple[int, int]] = set()
        pending = [(node, other)]
        while pending:
            left, right = pending.pop()
            left, right = documents.follow(left), others.follow(right)
            if isinstance(left.schema, bool) or isinstance(right.schema, bool):
                if left.schema is not right.schema:
                    return False
                continue
            key = (id(left.schema), id(right.schema))
            if key in seen:
                continue
            seen.add(key)
            self._pairs += 1
            inner = (
                None if self._pairs > _MAX_PAIRS or key in self._different else _pairs(documents, left, others, right)
            )
            if inner is None:
                self._different.add(key)
                return False
            pending += inner
        return True


def _pairs(documents: Documents, left: Node, others: Documents, right: Node) -> list[tuple[Node, Node]] | None:
    """Schemas within the two that have to be the same; None if they differ themselves."""
    mine, theirs = _own(left.schema), _own(right.schema)
    if (left.draft > Draft.DRAFT_7) != (right.draft > Draft.DRAFT_7) and ("items" in mine or "$ref" in left.schema):
        return None
    if mine.keys() != theirs.keys():
        return None
    inner = dict(subschemas(mine))
    other_inner = dict(subschemas(theirs))
    if inner.keys() != other_inner.keys() or not equal(_outline(mine), _outline(theirs)):
        return None
    pairs = [(left.inner(schema), right.inner(other_inner[path])) for path, schema in inner.items()]
    for keyword in _REFERENCES:
        references = [schema.get(keyword) for schema in (left.schema, right.schema)]
        if (references[0] is None) != (references[1] is None):
            return None
        if isinstance(references[0], str) and isinstance(references[1], str):
            pairs.append((documents.resolve(left, references[0]), others.resolve(right, references[1])))
    return pairs


def _own(schema: dict[str, Any]) -> dict[str, Any]:
    return {keyword: value for keyword, value in schema.items() if keyword not in _IGNORED}


def _outline(schema: dict[str, Any]) -> dict[str, Any]:
    """The keywords without the schemas in them."""
    outline: dict[str, Any] = {}
    for keyword, value in schema.items():
        if not any(path.partition("/")[0] == keyword for path, _ in subschemas({keyword: value})):
            outline[keyword] = value
        elif keyword == "dependencies":
            outline[keyword] = {name: inner for name, inner in value.items() if isinstance(inner, list)}
    return outline
