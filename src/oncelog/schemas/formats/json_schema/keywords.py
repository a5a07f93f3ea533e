"""Keywords of JSON Schema: what their values are, and where schemas are within schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oncelog.schemas.formats.limits import Budget, check_depth
from oncelog.schemas.schema import SchemaError

TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
_SCHEMAS: Final = frozenset(
    {
        "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_COUNTS: Final = frozenset(
    {
        "maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength",
        "minProperties",
    }
)  # fmt: skip
_NUMBERS: Final = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"})
_TEXTS: Final = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "pattern"})


_SINCE: Final = {
    6: frozenset({"const", "contains", "propertyNames"}),
    7: frozenset({"if", "then", "else"}),
    8: frozenset(
        {
            "$recursiveRef", "dependentRequired", "dependentSchemas", "maxContains", "minContains", "unevaluatedItems",
            "unevaluatedProperties",
        }
    ),
    9: frozenset({"$dynamicRef", "prefixItems"}),
}  # fmt: skip
"""Keywords by the draft that brought them; validators of earlier ones ignore them."""


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Schemas directly within a schema, with their paths."""
    for keyword, value in schema.items():
        if keyword in _SCHEMAS and isinstance(value, (dict, bool)):
            yield keyword, value
        elif keyword in _LISTS or (keyword == "items" and isinstance(value, list)):
            for position, inner in enumerate(value):
                yield f"{keyword}/{position}", inner
        elif keyword in _MAPS:
            for name, inner in value.items():
                yield f"{keyword}/{name}", inner
        elif keyword == "dependencies":
            for name, inner in value.items():
                if isinstance(inner, (dict, bool)):
                    yield f"{keyword}/{name}", inner


def without_later_keywords(schema: Any, draft: int) -> Any:
    """The schema with the keywords that its draft knows."""
    if not isinstance(schema, dict):
        return schema
    later = frozenset[str]().union(*(keywords for since, keywords in _SINCE.items() if since > draft))
    known: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in later:
            continue
        if keyword in _LISTS or (keyword == "items" and isinstance(value, list)):
            known[keyword] = [without_later_keywords(inner, draft) for inner in value]
        elif keyword in _MAPS or keyword == "dependencies":
            known[keyword] = {name: without_later_keywords(inner, draft) for name, inner in value.items()}
        else:
            known[keyword] = without_later_keywords(value, draft) if keyword in _SCHEMAS else value
    return known


def check_schema(schema: Any, budget: Budget, path: str = "#", depth: int = 0) -> None:
    """Raises SchemaError for a keyword whose value has the wrong type."""
    check_depth(depth)
    budget.spend()
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise SchemaError(f"{path} of the JSON schema is an object or a boolean, not {_shown(schema)}")
    for keyword, value in schema.items():
        expected = _expected(keyword, value)
        if expected is not None:
            raise SchemaError(f"{path}/{keyword} of the JSON schema is {expected}, not {_shown(value)}")
        if keyword in {"enum", "required"}:
            budget.spend(len(value))
    for name, inner in subschemas(schema):
        check_schema(inner, budget, f"{path}/{name}", depth + 1)


def _expected(keyword: str, value: Any) -> str | None:
    """A description of valid values; None if the value is valid."""
    if keyword in _LISTS and not isinstance(value, list):
        return "an array of schemas"
    if keyword in _MAPS and not isinstance(value, dict):
        return "an object of schemas"
    if keyword in _SCHEMAS and not isinstance(value, (dict, bool)) and not (keyword == "items" and _is_list(value)):
        return "a schema"
    if keyword in _COUNTS and not _is_count(value):
        return "an integer of at least 0"
    if keyword in _NUMBERS and not _is_bound(keyword, value):
        return "a number" if keyword != "multipleOf" else "a number greater than 0"
    if keyword in _TEXTS and not isinstance(value, str):
        return "a text"
    return _expected_other(keyword, value)


def _expected_other(keyword: str, value: Any) -> str | None:
    if keyword == "type":
        names = value if isinstance(value, list) else [value]
        valid = bool(names) and all(isinstance(name, str) and name in TYPES for name in names)
        return None if valid else f"one or several of {', '.join(sorted(TYPES))}"
    if keyword == "required" and not _is_texts(value):
        return "an array of names"
    if keyword == "enum" and not isinstance(value, list):
        return "an array"
    if keyword == "uniqueItems" and not isinstance(value, bool):
        return "true or false"
    if keyword in {"dependencies", "dependentRequired"}:
        schemas = keyword == "dependencies"
        values = value.values() if isinstance(value, dict) else [None]
        valid = all(_is_texts(inner) or (schemas and isinstance(inner, (dict, bool))) for inner in values)
        return None if valid else "an object whose values are arrays of names" + (" or schemas" * schemas)
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_count(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and value >= 0 and value == int(value)


def _is_bound(keyword: str, value: Any) -> bool:
    if isinstance(value, bool):
        return keyword.startswith("exclusive")  # in draft 4 it belongs to maximum and minimum
    return isinstance(value, (int, float)) and (keyword != "multipleOf" or value > 0)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
