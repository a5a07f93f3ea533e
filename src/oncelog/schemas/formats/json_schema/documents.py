"""JSON schemas that refer to each other, by their addresses. An address is a name: nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from oncelog.schemas.formats.json_schema.keywords import subschemas, without_later_keywords
from oncelog.schemas.formats.limits import check_depth
from oncelog.schemas.schema import SchemaError


class Draft(IntEnum):
    """Versions of JSON Schema, in their order."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 8
    DRAFT_2020_12 = 9


_URLS: Final = {
    "json-schema.org/draft-04/schema": Draft.DRAFT_4,
    "json-schema.org/schema": Draft.DRAFT_4,
    "json-schema.org/draft-06/schema": Draft.DRAFT_6,
    "json-schema.org/draft-07/schema": Draft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020_12,
}
_MAX_HOPS: Final = 100


def draft_of(document: Any) -> Draft:
    """The draft that ``$schema`` names; draft 7 without one, as registries have it."""
    url = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(url, str):
        return Draft.DRAFT_7
    return _URLS.get(url.partition("://")[2].removesuffix("#"), Draft.DRAFT_7)


@dataclass(frozen=True, slots=True)
class Node:
    """A schema and the address that its references are relative to."""

    schema: Any
    base: str
    draft: Draft

    def inner(self, schema: Any) -> Node:
        if not isinstance(schema, dict):
            return Node(schema, self.base, self.draft)
        return Node(schema, _base(schema, self.base, self.draft), self.draft)


def _base(schema: dict[str, Any], base: str, draft: Draft) -> str:
    own = schema.get("id" if draft is Draft.DRAFT_4 else "$id")
    # Up to draft 7, keywords beside a $ref have no effect.
    if not isinstance(own, str) or (draft <= Draft.DRAFT_7 and "$ref" in schema):
        return base
    return urldefrag(urljoin(base, own)).url


class Documents:
    """A schema and those that it references, by name."""

    def __init__(self, document: Any, references: Mapping[str, Any]) -> None:
        self._references = references
        self.root = Node(document, "", draft_of(document)).inner(document)
        self._resources: dict[str, Node] = {}
        self._anchors: dict[tuple[str, str], Node] = {}
        self._index(self.root, 0)
        self._resources.setdefault("", self.root)
        for name, referenced in references.items():
            draft = self._draft_of(referenced)
            for address in (urldefrag(urljoin(self.root.base, name)).url, name):
                node = Node(referenced, address, draft)
                self._resources.setdefault(address, node.inner(referenced))
                self._index(node.inner(referenced), 0)

    def _draft_of(self, referenced: Any) -> Draft:
        return draft_of(referenced) if isinstance(referenced, dict) and "$schema" in referenced else self.root.draft

    def without_later_keywords(self) -> Documents:
        """The same schemas without keywords of drafts after their own, which say nothing."""
        document = without_later_keywords(self.root.schema, self.root.draft)
        references = {
            name: without_later_keywords(referenced, self._draft_of(referenced))
            for name, referenced in self._references.items()
        }
        return Documents(document, references)

    def _index(self, node: Node, depth: int) -> None:
        check_depth(depth)
        if not isinstance(node.schema, dict):
            return
        if _base(node.schema, "", node.draft) or not depth:
            self._resources.setdefault(node.base, node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.schema.get(keyword), str):
                self._anchors.setdefault((node.base, anchor), node)
        own = node.schema.get("id" if node.draft is Draft.DRAFT_4 else "$id")
        if isinstance(own, str) and "#" in own and own.partition("#")[2]:
            self._anchors.setdefault((node.base, own.partition("#")[2]), node)
        for _, inner in subschemas(node.schema):
            self._index(node.inner(inner), depth + 1)

    def resolve(self, node: Node, reference: str) -> Node:
        """Raises SchemaError, which names the reference."""
        address, fragment = urldefrag(urljoin(node.base, reference) if reference else node.base)
        if reference.startswith("#"):
            address, fragment = node.base, reference[1:]
        resource = self._resources.get(address)
        if resource is None:
            raise SchemaError(
                f'the reference "{reference}" is neither in the schema nor among its references; '
                "addresses are never fetched, so register its schema and add a reference of this name"
            )
        fragment = unquote(fragment)
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            anchored = self._anchors.get((address, fragment))
            if anchored is None:
                raise SchemaError(f'the reference "{reference}" names an anchor that no schema has')
            return anchored
        return _at_pointer(resource, fragment, reference)

    def follow(self, node: Node) -> Node:
        """The schema that a ``$ref`` alone stands for; the node itself if it is none. Raises SchemaError."""
        for _ in range(_MAX_HOPS):
            schema = node.schema
            if not isinstance(schema, dict) or "$ref" not in schema:
                return node
            if node.draft > Draft.DRAFT_7 and any(keyword not in _IDLE for keyword in schema):
                return node
            node = self.resolve(node, schema["$ref"])
        raise SchemaError(f'the reference "{node.schema["$ref"]}" refers to itself')

    def check_references(self) -> None:
        """Raises SchemaError for the first reference that cannot be resolved."""
        pending = [self.root, *self._resources.values()]
        seen: set[int] = set()
        while pending:
            node = pending.pop()
            if not isinstance(node.schema, dict) or id(node.schema) in seen:
                continue
            seen.add(id(node.schema))
            named = [node.schema.get(keyword) for keyword in ("$ref", "$dynamicRef")]
            pending += [self.resolve(node, reference) for reference in named if isinstance(reference, str)]
            if isinstance(node.schema.get("$ref"), str):
                self.follow(node)
            pending += [node.inner(inner) for _, inner in subschemas(node.schema)]


# Keywords that say nothing about a value.
_IDLE: Final = frozenset(
    {"$ref", "$comment", "$defs", "definitions", "$id", "$schema", "title", "description", "default", "examples"}
    | {"$anchor", "deprecated", "readOnly", "writeOnly", "$vocabulary", "$dynamicAnchor", "$recursiveAnchor"}
)


def _at_pointer(node: Node, pointer: str, reference: str) -> Node:
    value = node.schema
    for part in pointer[1:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            raise SchemaError(f'the reference "{reference}" leads to no part of the schema')
        node = node.inner(value)
    if not isinstance(value, (dict, bool)):
        raise SchemaError(f'the reference "{reference}" leads to a value that is no schema')
    return node
