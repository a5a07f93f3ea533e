"""A conjunction of JSON schemas, seen as what it says about values of each type."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Final

from oncelog.records.patterns import Pattern, PatternRefused
from oncelog.schemas.formats.json_schema.documents import Documents, Draft, Node
from oncelog.schemas.schema import SchemaError

# An integer is a number, too; here "number" stands for those that are no integers.
ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "string", "integer", "number"})
MAX_CONJUNCTS: Final = 500
MAX_JUDGED: Final = 2_000_000
_COMPILED: Final = 100
_UNICODE_CLASS: Final = 200


class _Judging(threading.local):
    """Counts judged values and names, about a microsecond each; a thread does one comparison at a time."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.left = MAX_JUDGED
        self.texts: dict[int, tuple[list[Any], frozenset[str]]] = {}
        """Lists of allowed values by their ids, with the texts of the values."""

    def spend(self, judged: int) -> None:
        """Raises SchemaError."""
        self.left -= judged
        if self.left < 0:
            raise SchemaError("the schemas take too long to compare; use fewer values, names or patterns")


JUDGING: Final = _Judging()


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of numbers. Bounds of the same side compare by how much they exclude."""

    value: Fraction
    exclusive: bool


class View:
    """``nodes`` are all that a value has to be valid under: schemas with their ``allOf`` and ``$ref`` followed.
    ``excluded`` are schemas that it is not valid under, and ``expanded`` the alternatives with one chosen."""

    def __init__(
        self,
        documents: Documents,
        roots: Iterable[Node],
        excluded: tuple[Node, ...] = (),
        expanded: frozenset[int] = frozenset(),
    ) -> None:
        self.documents = documents
        self.nodes = _flattened(documents, roots)
        self.excluded = excluded
        self.expanded = expanded

    def narrowed(self, node: Node, excluded: Iterable[Node] = (), expanded: int | None = None) -> View:
        """The same values as far as they are valid under ``node``, too."""
        chosen = self.expanded if expanded is None else self.expanded | {expanded}
        return View(self.documents, (*self.nodes, node), (*self.excluded, *excluded), chosen)

    @property
    def key(self) -> tuple[int, ...]:
        own = (id(node.schema) if isinstance(node.schema, dict) else int(node.schema) - 2 for node in self.nodes)
        return (*sorted(own), 0, *sorted(id(node.schema) for node in self.excluded), 0, *sorted(self.expanded))

    @cached_property
    def is_never(self) -> bool:
        return any(node.schema is False for node in self.nodes) or not self.types

    @cached_property
    def schemas(self) -> list[dict[str, Any]]:
        return [node.schema for node in self.nodes if isinstance(node.schema, dict)]

    @cached_property
    def types(self) -> frozenset[str]:
        types = ALL_TYPES
        for schema in self.schemas:
            types &= types_of(schema)
        if self.values is not None:
            types &= {type_of(value) for value in self.values}
        return types

    @cached_property
    def values(self) -> list[Any] | None:
        """Values of the shortest ``enum`` or ``const``; None without one."""
        lists = [values for schema in self.schemas if (values := values_of(schema)) is not None]
        return min(lists, key=len) if lists else None

    def numbers(self, keyword: str) -> Iterator[Any]:
        return (schema[keyword] for schema in self.schemas if keyword in schema)

    def least(self, keyword: str) -> int | None:
        return min((int(number) for number in self.numbers(keyword)), default=None)

    def greatest(self, keyword: str) -> int:
        return max((int(number) for number in self.numbers(keyword)), default=0)

    @cached_property
    def required(self) -> frozenset[str]:
        names: set[str] = set()
        for node in self.nodes:
            if isinstance(node.schema, dict):
                names.update(node.schema.get("required", ()))
        return frozenset(names)

    def bounds(self, side: str) -> list[Bound]:
        return [bound for node in self.nodes for bound in bounds_of(node, side)]

    def of_property(self, name: str) -> list[Node]:
        """Schemas that the property of this name has to be valid under."""
        return [inner for node in self.nodes for inner in property_schemas(node, name)]

    def other_properties(self) -> list[Node]:
        """Schemas of properties that no schema names, nor a pattern."""
        return [node.inner(rest) for node in self.nodes if (rest := additional_properties(node)) is not None]

    def of_item(self, index: int) -> list[Node]:
        nodes = []
        for node in self.nodes:
            prefix, rest = items_of(node)
            if index < len(prefix):
                nodes.append(prefix[index])
            elif rest is not None:
                nodes.append(rest)
        return nodes

    def other_items(self) -> list[Node]:
        return [rest for node in self.nodes if (rest := items_of(node)[1]) is not None]

    def alternatives(self) -> list[View] | None:
        """The cases of the first ``anyOf`` or ``oneOf`` that is not expanded; None without one."""
        for node in self.nodes:
            for keyword in ("anyOf", "oneOf"):
                if isinstance(node.schema, dict) and id(node.schema.get(keyword)) not in {id(None), *self.expanded}:
                    listed = node.schema[keyword]
                    branches = [node.inner(branch) for branch in listed]
                    others = [
                        [*branches[:position], *branches[position + 1 :]] if keyword == "oneOf" else []
                        for position in range(len(branches))
                    ]
                    return [
                        self.narrowed(branch, [other for other in rest if isinstance(other.schema, dict)], id(listed))
                        for branch, rest in zip(branches, others, strict=True)
                    ]
        return None


def _flattened(documents: Documents, roots: Iterable[Node]) -> tuple[Node, ...]:
    nodes: dict[int, Node] = {}
    pending = list(roots)
    while pending:
        node = documents.follow(pending.pop())
        schema = node.schema
        key = id(schema) if isinstance(schema, dict) else int(schema) - 2
        if schema is True or key in nodes:
            continue
        nodes[key] = node
        if len(nodes) > MAX_CONJUNCTS:
            raise SchemaError(f"more than {MAX_CONJUNCTS} schemas apply to one value through allOf and $ref")
        if isinstance(schema, dict) and not ("$ref" in schema and node.draft <= Draft.DRAFT_7):
            pending += [node.inner(inner) for inner in schema.get("allOf", ())]
            if "$ref" in schema:
                pending.append(documents.resolve(node, schema["$ref"]))
    return tuple(nodes.values())


def types_of(schema: dict[str, Any]) -> frozenset[str]:
    names = schema.get("type")
    if names is None:
        return ALL_TYPES
    types = frozenset([names] if isinstance(names, str) else names)
    return types | {"integer"} if "number" in types else types


def values_of(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "integer" if value == int(value) else "number"
    return "array" if isinstance(value, list) else "object"


def bounds_of(node: Node, side: str) -> Iterator[Bound]:
    """``side`` is Maximum or Minimum."""
    schema = node.schema
    if not isinstance(schema, dict):
        return
    inclusive, exclusive = schema.get(side.lower()), schema.get(f"exclusive{side}")
    if inclusive is not None:
        yield Bound(exact(inclusive), exclusive is True)
    if exclusive is not None and not isinstance(exclusive, bool):
        yield Bound(exact(exclusive), True)


def exact(number: float) -> Fraction:
    """The decimal number that was written, not the nearest binary one."""
    return Fraction(repr(number))


@lru_cache(maxsize=256)
def _pattern(text: str) -> Pattern | None:
    JUDGING.spend(_COMPILED + _UNICODE_CLASS * (text.count("\\p") + text.count("\\P")))
    try:
        return Pattern(text)
    except PatternRefused:
        return None


def matches(pattern: str, name: str) -> bool | None:
    """None if it cannot be told: the pattern is too long, or has lookarounds or other things that RE2 lacks."""
    JUDGING.spend(1 + len(name) // 100)
    expression = _pattern(pattern)
    return None if expression is None else expression.occurs_in(name)


def property_schemas(node: Node, name: str) -> Iterator[Node]:
    """Schemas of a property by one schema's own keywords; fewer where a pattern cannot be judged."""
    schema = node.schema
    if not isinstance(schema, dict):
        return
    is_named = name in schema.get("properties", {})
    if is_named:
        yield node.inner(schema["properties"][name])
    judged = [matches(pattern, name) for pattern in schema.get("patternProperties", {})]
    for (_, inner), matched in zip(schema.get("patternProperties", {}).items(), judged, strict=True):
        if matched:
            yield node.inner(inner)
    rest = additional_properties(node)
    if not is_named and rest is not None and all(matched is False for matched in judged):
        yield node.inner(rest)


def additional_properties(node: Node) -> Any:
    """The schema of other properties; None if they are free."""
    schema = node.schema
    if not isinstance(schema, dict):
        return None
    if "additionalProperties" in schema:
        return schema["additionalProperties"]
    unevaluated = schema.get("unevaluatedProperties")
    return None if unevaluated is None or _COMBINING & schema.keys() else unevaluated


_COMBINING: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas", "contains"}
)


def items_of(node: Node) -> tuple[list[Node], Node | None]:
    """Schemas of the first items, and of the others; None if those are free."""
    schema = node.schema
    if not isinstance(schema, dict):
        return [], None
    items = schema.get("items")
    if node.draft >= Draft.DRAFT_2020_12:
        # An array is not valid there, but may be registered.
        prefix, rest = (items, None) if isinstance(items, list) else (schema.get("prefixItems", []), items)
    elif isinstance(items, list):
        prefix, rest = items, schema.get("additionalItems")
    else:
        prefix, rest = [], items
    if rest is None and not _COMBINING & schema.keys():
        rest = schema.get("unevaluatedItems")
    return [node.inner(inner) for inner in prefix], None if rest is None else node.inner(rest)
