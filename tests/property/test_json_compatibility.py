"""A pair of JSON schemas that is judged compatible is so: a valid instance of the old one is valid under the new one.

Schemas and instances are drawn from a small universe by a plain seeded generator: Hypothesis draws nested schemas so
slowly that it would see few. ``ONCELOG_TEST_SEEDS=100:5000 pytest …`` tries other seeds.
"""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

import pytest

from oncelog.schemas.compatibility.json_schema import json_differences
from oncelog.schemas.formats.json_schema.schema import JsonSchema
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.schema import Schema, SchemaType

NAMES = ("a", "b", "ab")
PATTERNS = ("^a", "b$", "^b$")
TYPES = ("null", "boolean", "object", "array", "string", "integer", "number")
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
SCALARS = (None, True, False, 0, 1, 2, 3, 4, 0.5, 1.5, "", "a", "b", "ab", "abb")
PAIRS_OF_A_SEED = 25
COUNTS = (
    "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength", "maxItems", "minItems",
    "maxProperties", "minProperties",
)  # fmt: skip
SINGLE = ("additionalProperties", "propertyNames", "additionalItems", "contains", "not", "if", "then", "else")
LISTS = ("allOf", "anyOf", "oneOf")
OTHERS = (
    "type", "type", "enum", "const", "multipleOf", "pattern", "uniqueItems", "required", "properties", "properties",
    "patternProperties", "dependencies", "items", "$ref",
)  # fmt: skip
KEYWORDS = COUNTS + SINGLE + LISTS + OTHERS


def instance(random: Random, depth: int = 2) -> Any:
    kind = random.randrange(5) if depth else 0
    if kind < 3:
        return random.choice(SCALARS)
    if kind == 3:
        return [instance(random, depth - 1) for _ in range(random.randrange(4))]
    return {name: instance(random, depth - 1) for name in random.sample(NAMES, random.randrange(4))}


def schema_of(random: Random, depth: int = 3) -> Any:
    if random.random() < 0.1 or not depth:
        return random.choice([True, {}, False, {"type": random.choice(TYPES)}, {"const": random.choice(SCALARS)}])
    return {
        keyword: keyword_value(random, keyword, depth - 1) for keyword in random.sample(KEYWORDS, random.randrange(5))
    }


def keyword_value(random: Random, keyword: str, depth: int) -> Any:
    if keyword in COUNTS:
        return random.randrange(4)
    if keyword in SINGLE:
        return schema_of(random, depth)
    if keyword in LISTS:
        return [schema_of(random, depth) for _ in range(random.randint(1, 3))]
    values = {
        "type": lambda: random.choice([random.choice(TYPES), random.sample(TYPES, random.randint(1, 3))]),
        "enum": lambda: [instance(random) for _ in range(random.randint(1, 3))],
        "const": lambda: instance(random),
        "multipleOf": lambda: random.choice([0.5, 1, 2, 3]),
        "pattern": lambda: random.choice(PATTERNS),
        "uniqueItems": lambda: random.random() < 0.7,
        "required": lambda: random.sample(NAMES, random.randrange(3)),
        "properties": lambda: {name: schema_of(random, depth) for name in random.sample(NAMES, random.randrange(3))},
        "patternProperties": lambda: {random.choice(PATTERNS): schema_of(random, depth)},
        "dependencies": lambda: {
            random.choice(NAMES): random.choice([schema_of(random, depth), random.sample(NAMES, random.randrange(3))])
        },
        "items": lambda: random.choice([schema_of(random, depth), [schema_of(random, depth) for _ in range(2)]]),
        "$ref": lambda: random.choice(["#", "#/definitions/x", "#/definitions/y"]),
    }
    return values[keyword]()


def document(random: Random) -> dict[str, Any]:
    root = schema_of(random)
    root = dict(root) if isinstance(root, dict) else {"allOf": [root]}
    root["definitions"] = {"x": schema_of(random, 1), "y": schema_of(random, 2)}
    if random.random() < 0.3:
        return {"$schema": DRAFT_2020, **modern(root)}
    return {"$schema": DRAFT_7, **root}


def modern(value: Any) -> Any:
    """The same with keywords of the draft of 2020, and unevaluated ones in place of others."""
    if isinstance(value, list):
        return [modern(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    renamed = {"additionalItems": "unevaluatedItems", "propertyNames": "unevaluatedProperties"}
    value = {renamed.get(key, key): modern(inner) for key, inner in value.items()}
    if isinstance(value.get("items"), list):
        value["prefixItems"] = value.pop("items")
    return value


def changed(random: Random, schema: Any) -> Any:
    """The schema with a keyword more or less, or another value, somewhere."""
    copy = json.loads(json.dumps(schema))
    place = random.choice([inner for inner in objects(copy) if inner is not copy.get("definitions")])
    keywords = [keyword for keyword in place if keyword not in ("definitions", "$schema")]
    if keywords and random.random() < 0.5:
        del place[random.choice(keywords)]
    else:
        keyword = random.choice(KEYWORDS)
        place[keyword] = keyword_value(random, keyword, 1)
    return copy


def objects(value: Any) -> list[dict[str, Any]]:
    """Schemas within a schema (among others of its objects)."""
    if isinstance(value, list):
        return [item for inner in value for item in objects(inner)]
    if not isinstance(value, dict):
        return []
    return [value, *(item for inner in value.values() for item in objects(inner))]


def parsed(schema: Any) -> JsonSchema | None:
    try:
        result = parse(Schema(json.dumps(schema), SchemaType.JSON))
        assert isinstance(result, JsonSchema)
        _ = result.validator
    except ValueError:  # for example a reference that leads to itself
        return None
    return result


def check(old: Any, new: Any, instances: list[Any]) -> tuple[int, int]:
    """The pairs judged compatible, and their instances that were valid."""
    writer, reader = parsed(old), parsed(new)
    if writer is None or reader is None or json_differences(reader.documents, writer.documents):
        return 0, 0
    valid = [value for value in instances if writer.validator.is_valid(value)]
    for value in valid:
        assert reader.validator.is_valid(value), f"{value} under {json.dumps(old)} and {json.dumps(new)}"
    return 1, len(valid)


def seeds() -> range:
    first, _, last = os.environ.get("ONCELOG_TEST_SEEDS", "0:12").partition(":")
    return range(int(first), int(last))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_an_instance_stays_valid(seed: int) -> None:
    random = Random(seed)
    compatible = useful = 0
    for _ in range(PAIRS_OF_A_SEED):
        schema = document(random)
        other = random.choice([document(random), changed(random, schema), changed(random, changed(random, schema))])
        instances = [instance(random) for _ in range(30)]
        for old, new in ((schema, other), (other, schema)):
            pairs, valid = check(old, new, instances)
            compatible, useful = compatible + pairs, useful + valid
    assert compatible > 3
    assert useful > 10


@pytest.mark.parametrize("seed", seeds())
def test_a_schema_is_compatible_with_itself(seed: int) -> None:
    random = Random(seed)
    for _ in range(PAIRS_OF_A_SEED):
        schema = document(random)
        first, second = parsed(schema), parsed(schema)
        if first is not None and second is not None:
            assert json_differences(first.documents, second.documents) == [], json.dumps(schema)
