"""Compatibility of JSON schemas: each value of the writer's schema is proven to be valid under the reader's.

The proof goes through the keywords of the reader's schema: each has to follow from the writer's. A difference is one
that does not, so an unknown relation counts as incompatible. Confluent's registry compares keywords pairwise instead,
and knows no difference for some of them; its names of differences are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from oncelog.schemas.compatibility.json_facets import array_sizes, numbers, object_sizes, strings
from oncelog.schemas.compatibility.json_rules import RULES
from oncelog.schemas.compatibility.json_sameness import Sameness
from oncelog.schemas.compatibility.json_values import is_valid
from oncelog.schemas.compatibility.json_view import (
    JUDGING,
    View,
    additional_properties,
    items_of,
    matches,
    property_schemas,
    types_of,
    values_of,
)
from oncelog.schemas.compatibility.rules import Difference, shown
from oncelog.schemas.formats.json_schema.documents import Documents, Draft, Node
from oncelog.schemas.schema import SchemaError

MAX_WORK: Final = 50_000  # schemas looked at, each time that they are
_MAX_REPEATED: Final = 1000  # differences that are reported at further places, too
_MAX_SPLIT_VALUES: Final = 1000
_ALTERNATIVES: Final = frozenset({"anyOf", "oneOf", "not", "if"})
_TYPED: Final = {name: {"type": name} for name in ("null", "boolean", "object", "array", "string", "integer", "number")}
Key = tuple[Any, ...]
Differences = list[Difference]
Placed = tuple[str, Differences]  # with the path that those of the differences begin with


def json_differences(reader: Documents, writer: Documents) -> Differences:
    """Raises SchemaError if there is too much to compare."""
    if writer.root.draft < reader.root.draft:
        writer = writer.without_later_keywords()
    failed: dict[Key, Placed] = {}
    sameness = Sameness()
    work = 0
    JUDGING.begin()
    while True:
        # A recursive schema is compared on the assumption that it is compatible where it occurs within itself.
        # When that turns out wrong, everything that relied on it is compared again.
        comparison = Comparison(reader, failed, sameness, work)
        try:
            differences = comparison.compare(View(writer, [writer.root]), reader, reader.root, "#")
        except RecursionError:
            raise SchemaError("the schemas are nested too deeply to be compared") from None
        work = comparison.work
        if not comparison.refuted:
            return [replace(item, path="#/") if item.path == "#" else item for item in dict.fromkeys(differences)]
        failed.update(comparison.refuted)


def difference(name: str, path: str, keyword: str = "") -> Difference:
    return Difference(RULES[name], _join(path, keyword) if keyword else path)


def _join(path: str, part: str) -> str:
    return shown(f"{shown(path)}/{part}")


@dataclass
class Comparison:
    """``failed`` are pairs old_names to be incompatible, ``refuted`` those that this run assumed not to be."""

    reader: Documents
    failed: dict[Key, Placed]
    sameness: Sameness
    work: int
    refuted: dict[Key, Placed] = field(default_factory=dict)
    _done: dict[Key, Placed] = field(default_factory=dict)
    _running: dict[Key, int] = field(default_factory=dict)
    _assumed: set[Key] = field(default_factory=set)
    _level: int = 0
    _repeated: int = 0
    _is_exact: bool = False
    """True where values are compared as they are. Elsewhere a default of the reader's may fill in a property."""

    def compare(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        """Differences that keep values of ``old`` from being valid under ``new``, which is one of ``documents``."""
        JUDGING.spend(10)
        new = documents.follow(new)
        if new.schema is True or new.schema == {} or old.is_never:
            return []
        if new.schema is False:
            return [difference("TYPE_CHANGED", path)]
        key = (old.key, id(new.schema), self._is_exact)
        if (earlier := self.failed.get(key) or self._done.get(key)) is not None:
            return self._at(path, earlier)
        if key in self._running:
            if self._running[key] == self._level:  # it would follow from itself
                return [difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path)]
            self._assumed.add(key)
            return []
        self._spend(old)
        self._running[key] = self._level
        differences = self._judge(old, documents, new, path)
        del self._running[key]
        if differences and key in self._assumed:
            self.refuted[key] = (path, differences)
        self._done[key] = (path, differences)
        return differences

    def _at(self, path: str, placed: Placed) -> Differences:
        """Differences of a pair at another place: one if there are many, since each level may double them."""
        before, items = placed
        self._repeated += len(items)
        items = items if self._repeated <= _MAX_REPEATED else items[:1]
        return [Difference(item.rule, shown(path + item.path[len(before) :])) for item in items]

    def _spend(self, old: View) -> None:
        self.work += 1 + len(old.nodes)
        if self.work > MAX_WORK:
            raise SchemaError(f"the schemas take more than {MAX_WORK} steps to compare; use fewer alternatives")

    def _judge(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        if any(self.sameness.same(old.documents, node, documents, new) for node in old.nodes):
            return []
        if old.values is not None:
            verdicts = [is_valid(documents, new, value) for value in old.values[:_MAX_SPLIT_VALUES]]
            if all(verdicts) and len(old.values) <= _MAX_SPLIT_VALUES:
                return []
        differences = self._own(old, documents, new, path)
        if not differences:
            return []
        # Each case of the old schema may be compatible in its own way.
        cases = old.alternatives()
        if cases is None and len(old.types) > 1 and _ALTERNATIVES & new.schema.keys():
            cases = [old.narrowed(Node(_TYPED[name], "", Draft.DRAFT_2020_12)) for name in sorted(old.types)]
            if any(case.types == old.types for case in cases):  # integers are not split from other numbers
                cases = None
        if not cases:
            return differences
        return differences if any(self.compare(case, documents, new, path) for case in cases) else []

    def _inner(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        """``compare`` for parts of values."""
        self._level += 1
        try:
            return self.compare(old, documents, new, path)
        finally:
            self._level -= 1

    def _includes(self, documents: Documents, node: Node, others: Documents, other: Node, path: str) -> bool:
        """True if all values of ``other`` are valid under ``node`` as they are."""
        outer, self._is_exact = self._is_exact, True
        try:
            return not self.compare(View(others, [other]), documents, node, path)
        finally:
            self._is_exact = outer

    def _own(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        schema = new.schema
        excluded = old.types - types_of(schema)
        if excluded:
            narrowed = excluded == {"number"} and "integer" in types_of(schema)
            return [difference("TYPE_NARROWED" if narrowed else "TYPE_CHANGED", path)]
        differences = self._enum(old, documents, new, path)
        if "string" in old.types:
            differences += strings(old, schema, path)
        if {"integer", "number"} & old.types:
            differences += numbers(old, new, path)
        if "object" in old.types:
            differences += self._object(old, documents, new, path)
        if "array" in old.types:
            differences += self._array(old, documents, new, path)
        if "$ref" in schema and new.draft > Draft.DRAFT_7:
            differences += self.compare(old, documents, documents.resolve(new, schema["$ref"]), path)
        return differences + self._combined(old, documents, new, path)

    def _enum(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        allowed = values_of(new.schema)
        if allowed is None:
            return []
        values = old.values
        if values is None and old.types <= {"null", "boolean"}:
            values = [None] * ("null" in old.types) + [True, False] * ("boolean" in old.types)
        if values is None:
            return [difference("ENUM_ARRAY_CHANGED", path, "enum")]
        verdicts = [is_valid(documents, new, value) for value in values[:_MAX_SPLIT_VALUES]]
        if all(verdicts) and len(values) <= _MAX_SPLIT_VALUES:
            return []
        return [difference("ENUM_ARRAY_NARROWED" if any(verdicts) else "ENUM_ARRAY_CHANGED", path, "enum")]

    # Objects

    def _object(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        schema = new.schema
        defaults = {
            name
            for name in schema.get("required", ())
            if name not in old.required and not self._is_exact and _has_valid_default(documents, new, name)
        }
        differences = [
            difference("REQUIRED_ATTRIBUTE_ADDED", path, f"required/{name}")
            for name in schema.get("required", ())
            if name not in old.required and name not in defaults
        ]
        differences += object_sizes(old, schema, path, len(defaults))
        for name, inner in schema.get("properties", {}).items():
            differences += self._property(old, documents, new.inner(inner), _join(path, f"properties/{name}"), name)
        for pattern, inner in schema.get("patternProperties", {}).items():
            differences += self._pattern(old, documents, new.inner(inner), path, pattern)
        differences += self._other_properties(old, documents, new, path)
        differences += self._property_names(old, documents, new, path)
        return differences + self._dependencies(old, documents, new, path, defaults)

    def _property(self, old: View, documents: Documents, new: Node, path: str, name: str) -> Differences:
        applied = old.of_property(name)
        differences = self._inner(View(old.documents, applied), documents, new, path)
        if differences and not applied:
            return [difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path)]
        return differences

    def _pattern(self, old: View, documents: Documents, new: Node, path: str, pattern: str) -> Differences:
        place = _join(path, f"patternProperties/{pattern}")
        same = [
            node.inner(node.schema["patternProperties"][pattern]) for node in _with(old, "patternProperties", pattern)
        ]
        if same and not self._inner(View(old.documents, same), documents, new, place):
            return []
        views = [old.of_property(name) for name in _names(old) if matches(pattern, name) is not False]
        views += [[inner] for inner in _patterns(old).values()]
        return self._each([*views, old.other_properties()], old, documents, new, place)

    def _each(self, views: list[list[Node]], old: View, documents: Documents, new: Node, path: str) -> Differences:
        return [item for applied in views for item in self._inner(View(old.documents, applied), documents, new, path)]

    def _other_properties(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        schema = new.schema
        keyword = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
        if schema.get(keyword, True) is True:
            return []
        rest = new.inner(schema[keyword])
        patterns = schema.get("patternProperties", {})
        differences = []
        for name in _names(old):
            if name in schema.get("properties", {}) or any(matches(pattern, name) for pattern in patterns):
                continue
            if self._inner(View(old.documents, old.of_property(name)), documents, rest, path):
                closed = rest.schema is False
                rule = "FROM_CLOSED" if closed else "NOT_COVERED_BY_PARTIALLY_OPEN"
                name_of_rule = f"PROPERTY_REMOVED_{rule}" if closed else f"PROPERTY_{rule}"
                differences.append(difference(f"{name_of_rule}_CONTENT_MODEL", path, f"properties/{name}"))
        views = [[inner] for pattern, inner in _patterns(old).items() if pattern not in patterns]
        if self._each([*views, old.other_properties()], old, documents, rest, path):
            rule = "ADDITIONAL_PROPERTIES_REMOVED" if rest.schema is False else "ADDITIONAL_PROPERTIES_NARROWED"
            differences.append(difference(rule, path, keyword))
        return differences

    def _property_names(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        if "propertyNames" not in new.schema:
            return []
        names = new.inner(new.schema["propertyNames"])
        applied = [node.inner(node.schema["propertyNames"]) for node in _with(old, "propertyNames")]
        text = Node(_TYPED["string"], "", Draft.DRAFT_2020_12)
        if not self._inner(View(old.documents, [*applied, text]), documents, names, path):
            return []
        if _is_closed(old) and all(is_valid(documents, names, name) for name in _names(old)):
            return []
        return [difference("PROPERTY_NAMES_CHANGED", path, "propertyNames")]

    def _dependencies(self, old: View, documents: Documents, new: Node, path: str, defaults: set[str]) -> Differences:
        differences = []
        required = [_required_by(node) for node in old.nodes]
        for name, needed in _required_by(new).items():
            old_names = {other for names in required for other in names.get(name, ())}
            absent = name not in defaults and View(old.documents, old.of_property(name)).is_never
            if not (absent or needed <= old_names | old.required):
                rule = "DEPENDENCY_ARRAY_EXTENDED" if old_names else "DEPENDENCY_ARRAY_ADDED"
                differences.append(difference(rule, path, f"dependencies/{name}"))
        schemas = [_schemas_by(node) for node in old.nodes]
        for name, inner in _schemas_by(new).items():
            old_schemas = [others[name] for others in schemas if name in others]
            narrowed = View(old.documents, [*old.nodes, *old_schemas], old.excluded, old.expanded)
            if self.compare(narrowed, documents, inner, _join(path, f"dependencies/{name}")):
                differences.append(difference("DEPENDENCY_SCHEMA_ADDED", path, f"dependencies/{name}"))
        return differences

    # Arrays

    def _array(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        differences = array_sizes(old, new.schema, path)
        prefix, rest = items_of(new)
        if rest is None and "unevaluatedItems" in new.schema:
            rest = new.inner(new.schema["unevaluatedItems"])
        most = old.least("maxItems")
        length = max([len(prefix), *(len(items_of(node)[0]) for node in old.nodes)])
        for index in range(length if most is None else min(length, most)):
            applied = old.of_item(index)
            item = prefix[index] if index < len(prefix) else rest
            place = _join(path, f"items/{index}")
            inner = [] if item is None else self._inner(View(old.documents, applied), documents, item, place)
            if inner and item is not None and item.schema is False:
                inner = [difference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", place)]
            elif inner and not applied:
                inner = [difference("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", place)]
            differences += inner
        if rest is not None and (most is None or most > length):
            differences += self._other_items(old, documents, rest, path, bool(length))
        return differences + self._contains(old, documents, new, path)

    def _other_items(self, old: View, documents: Documents, rest: Node, path: str, additional: bool) -> Differences:
        applied = old.other_items()
        differences = self._inner(View(old.documents, applied), documents, rest, _join(path, "items"))
        if differences and (not applied or rest.schema is False or additional):
            rule = "ADDITIONAL_ITEMS_REMOVED" if rest.schema is False else "ADDITIONAL_ITEMS_NARROWED"
            return [difference(rule, path, "additionalItems" if additional else "items")]
        return differences

    def _contains(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        schema = new.schema
        if "contains" not in schema:
            return []
        item, least, most = new.inner(schema["contains"]), schema.get("minContains", 1), schema.get("maxContains")
        if new.draft < Draft.DRAFT_2019_09:
            least, most = 1, None
        holders = _with(old, "contains")
        differences = []
        if least and not any(
            node.schema.get("minContains", 1) >= least
            and not self._inner(View(old.documents, [node.inner(node.schema["contains"])]), documents, item, path)
            for node in holders
        ):
            differences.append(difference("MIN_CONTAINS_ADDED", path, "contains"))
        if most is not None and not any(
            node.schema.get("maxContains", most + 1) <= most
            and self._includes(old.documents, node.inner(node.schema["contains"]), documents, item, path)
            for node in holders
        ):
            fits = old.least("maxItems")
            if fits is None or fits > most:
                differences.append(difference("MAX_CONTAINS_ADDED", path, "maxContains"))
        return differences

    # Combined schemas

    def _combined(self, old: View, documents: Documents, new: Node, path: str) -> Differences:
        schema = new.schema
        differences: Differences = []
        for position, inner in enumerate(schema.get("allOf", ())):
            differences += self.compare(old, documents, new.inner(inner), _join(path, f"allOf/{position}"))
        for keyword, chosen in (("anyOf", self._is_any), ("oneOf", self._is_one)):
            if keyword in schema:
                branches = [new.inner(inner) for inner in schema[keyword]]
                if not chosen(old, documents, branches, _join(path, keyword)):
                    differences.append(difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path, keyword))
        if "not" in schema and not self._is_not(old, documents, new.inner(schema["not"]), path):
            differences.append(difference("NOT_TYPE_EXTENDED", path, "not"))
        if "if" in schema:
            outcomes = [new.inner(schema[keyword]) for keyword in ("then", "else") if keyword in schema]
            if any(self.compare(old, documents, outcome, path) for outcome in outcomes):
                differences.append(difference("CONDITION_CHANGED", path, "if"))
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            differences.append(difference("DYNAMIC_REFERENCE_CHANGED", path))
        return differences

    def _is_any(self, old: View, documents: Documents, branches: list[Node], path: str) -> bool:
        return any(not self.compare(old, documents, branch, path) for branch in branches)

    def _is_one(self, old: View, documents: Documents, branches: list[Node], path: str) -> bool:
        for position, branch in enumerate(branches):
            if not self.compare(old, documents, branch, path):
                others = [*branches[:position], *branches[position + 1 :]]
                return all(self._is_disjoint(old, documents, other) for other in others)
        return False

    def _is_not(self, old: View, documents: Documents, new: Node, path: str) -> bool:
        if self._is_disjoint(old, documents, new):
            return True
        refused = [node.inner(node.schema["not"]) for node in _with(old, "not")]
        return any(self._includes(old.documents, inner, documents, new, path) for inner in refused)

    def _is_disjoint(self, old: View, documents: Documents, new: Node, depth: int = 0) -> bool:
        """True if it is certain that no value of ``old`` is valid under ``new``."""
        self._spend(old)
        other = View(documents, [new])
        shared = old.types & other.types
        if other.is_never or old.is_never or not shared or depth > 5:
            return depth <= 5
        for node in old.excluded:
            if self.sameness.same(old.documents, node, documents, new):
                return True
        if old.values is not None and all(is_valid(documents, new, value) is False for value in old.values):
            return True
        if other.values is not None and all(
            any(is_valid(old.documents, node, value) is False for node in old.nodes) for value in other.values
        ):
            return True
        if shared <= {"integer", "number"}:
            return _bounds_apart(old, other) or _bounds_apart(other, old)
        if shared == {"object"}:
            return any(
                self._is_disjoint(View(old.documents, old.of_property(name)), documents, inner, depth + 1)
                for name in old.required | other.required
                for inner in other.of_property(name)
            )
        return False


def _bounds_apart(low: View, high: View) -> bool:
    """True if all numbers of one are less than those of the other."""
    return any(
        most.value < least.value or (most.value == least.value and (most.exclusive or least.exclusive))
        for most in low.bounds("Maximum")
        for least in high.bounds("Minimum")
    )


def _has_valid_default(documents: Documents, node: Node, name: str) -> bool:
    inner = node.schema.get("properties", {}).get(name)
    if not isinstance(inner, dict) or "default" not in inner:
        return False
    return all(is_valid(documents, applied, inner["default"]) for applied in property_schemas(node, name))


def _with(view: View, keyword: str, name: str | None = None) -> list[Node]:
    """Schemas that have a keyword, and in its object a name."""
    return [
        node
        for node in view.nodes
        if isinstance(node.schema, dict) and keyword in node.schema and (name is None or name in node.schema[keyword])
    ]


def _names(view: View) -> list[str]:
    return list(dict.fromkeys(name for schema in view.schemas for name in schema.get("properties", ())))


def _patterns(view: View) -> dict[str, Node]:
    return {
        pattern: node.inner(inner)
        for node in _with(view, "patternProperties")
        for pattern, inner in node.schema["patternProperties"].items()
    }


def _is_closed(view: View) -> bool:
    return not _patterns(view) and any(additional_properties(node) is False for node in view.nodes)


def _required_by(node: Node) -> dict[str, set[str]]:
    schema = node.schema if isinstance(node.schema, dict) else {}
    required = {name: set(names) for name, names in schema.get("dependencies", {}).items() if isinstance(names, list)}
    for name, names in schema.get("dependentRequired", {}).items():
        required[name] = required.get(name, set()).union(names)
    return required


def _schemas_by(node: Node) -> dict[str, Node]:
    schema = node.schema if isinstance(node.schema, dict) else {}
    schemas = {name: inner for name, inner in schema.get("dependencies", {}).items() if not isinstance(inner, list)}
    schemas.update(schema.get("dependentSchemas", {}))
    return {name: node.inner(inner) for name, inner in schemas.items()}
