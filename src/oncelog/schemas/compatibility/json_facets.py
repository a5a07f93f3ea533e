"""Keywords of JSON Schema about sizes, numbers and texts: each follows from the writer's schema, or is a difference."""

from __future__ import annotations

from typing import Any

from oncelog.schemas.compatibility.json_rules import RULES
from oncelog.schemas.compatibility.json_view import View, additional_properties, bounds_of, exact
from oncelog.schemas.compatibility.rules import Difference
from oncelog.schemas.formats.json_schema.documents import Node


def _difference(name: str, path: str, keyword: str) -> Difference:
    return Difference(RULES[name], f"{path}/{keyword}")


def _most(schema: dict[str, Any], keyword: str, most: int | None, rule: str, path: str) -> list[Difference]:
    limit = schema.get(keyword)
    if limit is None or (most is not None and most <= limit):
        return []
    return [_difference(f"{rule}_ADDED" if most is None else f"{rule}_DECREASED", path, keyword)]


def _least(schema: dict[str, Any], keyword: str, least: int, rule: str, path: str) -> list[Difference]:
    if schema.get(keyword, 0) <= least:
        return []
    return [_difference(f"{rule}_ADDED" if not least else f"{rule}_INCREASED", path, keyword)]


def strings(old: View, schema: dict[str, Any], path: str) -> list[Difference]:
    differences = _most(schema, "maxLength", old.least("maxLength"), "MAX_LENGTH", path)
    differences += _least(schema, "minLength", old.greatest("minLength"), "MIN_LENGTH", path)
    patterns = set(old.numbers("pattern"))
    if "pattern" in schema and schema["pattern"] not in patterns:
        differences.append(_difference("PATTERN_CHANGED" if patterns else "PATTERN_ADDED", path, "pattern"))
    return differences


def numbers(old: View, new: Node, path: str) -> list[Difference]:
    differences = []
    for side, change, sign in (("Maximum", "DECREASED", 1), ("Minimum", "INCREASED", -1)):
        old_bounds = old.bounds(side)
        for bound in bounds_of(new, side):
            implied = any(
                sign * other.value < sign * bound.value
                or (other.value == bound.value and (other.exclusive or not bound.exclusive))
                for other in old_bounds
            )
            if not implied:
                keyword = f"exclusive{side}" if bound.exclusive else side.lower()
                rule = f"{'EXCLUSIVE_' * bound.exclusive}{side.upper()}_{change if old_bounds else 'ADDED'}"
                differences.append(_difference(rule, path, keyword))
    if "multipleOf" in new.schema:
        differences += _multiple_of(old, new, path)
    return differences


def _multiple_of(old: View, new: Node, path: str) -> list[Difference]:
    divisor = exact(new.schema["multipleOf"])
    divisors = [exact(number) for number in old.numbers("multipleOf")]
    if "number" not in old.types:
        divisors.append(exact(1))
    if any(other % divisor == 0 for other in divisors):
        return []
    if not any("multipleOf" in schema for schema in old.schemas):
        return [_difference("MULTIPLE_OF_ADDED", path, "multipleOf")]
    expanded = any(divisor % other == 0 for other in divisors)
    return [_difference("MULTIPLE_OF_EXPANDED" if expanded else "MULTIPLE_OF_CHANGED", path, "multipleOf")]


def object_sizes(old: View, schema: dict[str, Any], path: str, added: int) -> list[Difference]:
    """``added``: properties that the reader fills in."""
    most = old.least("maxProperties")
    for node in old.nodes:
        if additional_properties(node) is False and not node.schema.get("patternProperties"):
            closed = len(node.schema.get("properties", ()))
            most = closed if most is None else min(most, closed)
    if most is not None:
        most += added
    least = max(old.greatest("minProperties"), len(old.required))
    differences = _most(schema, "maxProperties", most, "MAX_PROPERTIES", path)
    return differences + _least(schema, "minProperties", least, "MIN_PROPERTIES", path)


def array_sizes(old: View, schema: dict[str, Any], path: str) -> list[Difference]:
    most = old.least("maxItems")
    differences = _most(schema, "maxItems", most, "MAX_ITEMS", path)
    differences += _least(schema, "minItems", old.greatest("minItems"), "MIN_ITEMS", path)
    if schema.get("uniqueItems") and not (any(old.numbers("uniqueItems")) or (most is not None and most <= 1)):
        differences.append(_difference("UNIQUE_ITEMS_ADDED", path, "uniqueItems"))
    return differences
