"""Single values under JSON schemas, as far as that can be told: constants, members of enums, and defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from oncelog.schemas.compatibility.json_view import JUDGING, bounds_of, exact, items_of, matches, type_of, types_of
from oncelog.schemas.formats import json_text
from oncelog.schemas.formats.json_schema.documents import Documents, Draft, Node

# Keywords that are not evaluated; a schema with one of them neither accepts nor refuses a value.
_UNTOLD: Final = frozenset(
    {
        "if", "dependencies", "dependentRequired", "dependentSchemas", "contains", "unevaluatedProperties",
        "unevaluatedItems", "$dynamicRef", "$recursiveRef", "propertyNames",
    }
)  # fmt: skip


def is_valid(documents: Documents, node: Node, value: Any, depth: int = 0) -> bool | None:
    """None if it cannot be told."""
    node = documents.follow(node)
    schema = node.schema
    if isinstance(schema, bool):
        return schema
    if depth > 20:
        return None
    JUDGING.spend(4)
    verdicts = [_keywords(schema, value), _alternatives(documents, node, value, depth), _bounds(node, value)]
    if isinstance(value, dict):
        verdicts.append(_properties(documents, node, value, depth))
    elif isinstance(value, list):
        verdicts.append(_items(documents, node, value, depth))
    if "$ref" in schema and node.draft > Draft.DRAFT_7:
        verdicts.append(is_valid(documents, documents.resolve(node, schema["$ref"]), value, depth + 1))
    verdict = _all(verdicts)
    return None if verdict and _UNTOLD & schema.keys() else verdict


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True


def equal(left: Any, right: Any) -> bool:
    """Equality of JSON, where 1 is 1.0 and not true."""
    return _text(left) == _text(right)


def _text(value: Any) -> str:
    text = json_text.write(_plain(value), sort=True)
    JUDGING.spend(1 + len(text) // 8)
    return text


def _is_among(value: Any, values: list[Any]) -> bool:
    cached = JUDGING.texts.get(id(values))
    if cached is None:
        # With the list itself: an id is given again once its object has gone.
        cached = JUDGING.texts[id(values)] = (values, frozenset(map(_text, values)))
    return _text(value) in cached[1]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _keywords(schema: dict[str, Any], value: Any) -> bool | None:
    if type_of(value) not in types_of(schema):
        return False
    if "const" in schema and not equal(value, schema["const"]):
        return False
    if isinstance(schema.get("enum"), list) and not _is_among(value, schema["enum"]):
        return False
    for keyword, size in _sizes(value):
        if keyword in schema and (size > schema[keyword] if keyword.startswith("max") else size < schema[keyword]):
            return False
    if isinstance(value, str) and "pattern" in schema:
        return matches(schema["pattern"], value)
    if isinstance(value, list) and schema.get("uniqueItems") and len(value) > 1:
        return len({json_text.write(_plain(inner), sort=True) for inner in value}) == len(value)
    return True


def _sizes(value: Any) -> list[tuple[str, int]]:
    if isinstance(value, str):
        return [("minLength", len(value)), ("maxLength", len(value))]
    if isinstance(value, list):
        return [("minItems", len(value)), ("maxItems", len(value))]
    if isinstance(value, dict):
        return [("minProperties", len(value)), ("maxProperties", len(value))]
    return []


def _bounds(node: Node, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    number = exact(value)
    for bound in bounds_of(node, "Maximum"):
        if number > bound.value or (bound.exclusive and number == bound.value):
            return False
    for bound in bounds_of(node, "Minimum"):
        if number < bound.value or (bound.exclusive and number == bound.value):
            return False
    divisor = node.schema.get("multipleOf")
    return divisor is None or number % exact(divisor) == 0


def _alternatives(documents: Documents, node: Node, value: Any, depth: int) -> bool | None:
    schema = node.schema

    def verdicts(keyword: str) -> list[bool | None]:
        return [is_valid(documents, node.inner(inner), value, depth + 1) for inner in schema[keyword]]

    results: list[bool | None] = []
    if "allOf" in schema:
        results += verdicts("allOf")
    if "anyOf" in schema:
        branches = verdicts("anyOf")
        results.append(True if True in branches else None if None in branches else False)
    if "oneOf" in schema:
        branches = verdicts("oneOf")
        valid = sum(verdict is True for verdict in branches)
        results.append(False if valid > 1 else None if None in branches else valid == 1)
    if "not" in schema:
        inner = is_valid(documents, node.inner(schema["not"]), value, depth + 1)
        results.append(None if inner is None else not inner)
    return _all(results)


def _properties(documents: Documents, node: Node, value: dict[str, Any], depth: int) -> bool | None:
    schema = node.schema
    if not all(name in value for name in schema.get("required", ())):
        return False
    verdicts: list[bool | None] = []
    for name, inner in value.items():
        judged = [(pattern, matches(pattern, name)) for pattern in schema.get("patternProperties", {})]
        applying = [schema["patternProperties"][pattern] for pattern, matched in judged if matched]
        if name in schema.get("properties", {}):
            applying.append(schema["properties"][name])
        if any(matched is None for _, matched in judged):
            verdicts.append(None)
        elif not applying and "additionalProperties" in schema:
            applying = [schema["additionalProperties"]]
        verdicts += [is_valid(documents, node.inner(applied), inner, depth + 1) for applied in applying]
    return _all(verdicts)


def _items(documents: Documents, node: Node, value: list[Any], depth: int) -> bool | None:
    prefix, rest = items_of(node)
    verdicts = []
    for position, inner in enumerate(value):
        applied = prefix[position] if position < len(prefix) else rest
        if applied is not None:
            verdicts.append(is_valid(documents, applied, inner, depth + 1))
    return _all(verdicts)
