"""JSON Schema's rules of compatibility: difference by a case that breaks it alone, and what follows without any."""

from __future__ import annotations

import json

import pytest

from oncelog.schemas.compatibility import json_schema, json_view
from oncelog.schemas.compatibility.json_rules import JSON_RULES
from oncelog.schemas.compatibility.json_schema import json_differences
from oncelog.schemas.formats.json_schema.schema import JsonSchema
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.schema import Schema, SchemaError, SchemaType

LATEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def differences(reader: object, writer: object) -> list[tuple[str, str]]:
    documents = []
    for schema in (reader, writer):
        parsed = parse(Schema(json.dumps(schema), SchemaType.JSON))
        assert isinstance(parsed, JsonSchema)
        documents.append(parsed.documents)
    return [(broken.rule.name, broken.path) for broken in json_differences(documents[0], documents[1])]


def latest(**keywords: object) -> dict[str, object]:
    return {**LATEST, **keywords}


def closed(**properties: object) -> dict[str, object]:
    return {"properties": properties, "additionalProperties": False}


def kinds(kind: str) -> dict[str, object]:
    return {"type": "object", **closed(kind={"const": kind}), "required": ["kind"]}


# Each with the rule, where it is broken, the reader's schema and the writer's.
BROKEN: list[tuple[str, str, object, object]] = [
    ("TYPE_CHANGED", "#/", {"type": "string"}, {"type": "number"}),
    ("TYPE_CHANGED", "#/", False, {"type": "number"}),
    ("TYPE_CHANGED", "#/properties/a", {"properties": {"a": TEXT}}, {"properties": {"a": NUMBER}}),
    ("TYPE_NARROWED", "#/", {"type": "integer"}, {"type": "number"}),
    ("ENUM_ARRAY_NARROWED", "#/enum", {"enum": ["a"]}, {"enum": ["a", "b"]}),
    ("ENUM_ARRAY_CHANGED", "#/enum", {"enum": ["a"]}, {"enum": ["b"]}),
    ("ENUM_ARRAY_CHANGED", "#/enum", {"const": 1}, {"type": "integer"}),
    ("MULTIPLE_OF_ADDED", "#/multipleOf", {"multipleOf": 2}, NUMBER),
    ("MULTIPLE_OF_EXPANDED", "#/multipleOf", {"multipleOf": 4}, {"multipleOf": 2}),
    ("MULTIPLE_OF_CHANGED", "#/multipleOf", {"multipleOf": 3}, {"multipleOf": 2}),
    ("MAXIMUM_ADDED", "#/maximum", {"maximum": 9}, NUMBER),
    ("MAXIMUM_DECREASED", "#/maximum", {"maximum": 9}, {"maximum": 10}),
    ("EXCLUSIVE_MAXIMUM_ADDED", "#/exclusiveMaximum", {"exclusiveMaximum": 9}, NUMBER),
    ("EXCLUSIVE_MAXIMUM_DECREASED", "#/exclusiveMaximum", {"exclusiveMaximum": 9}, {"maximum": 9}),
    ("MINIMUM_ADDED", "#/minimum", {"minimum": 9}, NUMBER),
    ("MINIMUM_INCREASED", "#/minimum", {"minimum": 9}, {"minimum": 8}),
    ("EXCLUSIVE_MINIMUM_ADDED", "#/exclusiveMinimum", {"exclusiveMinimum": 9}, NUMBER),
    ("EXCLUSIVE_MINIMUM_INCREASED", "#/exclusiveMinimum", {"exclusiveMinimum": 9}, {"minimum": 9}),
    ("MAX_LENGTH_ADDED", "#/maxLength", {"maxLength": 9}, TEXT),
    ("MAX_LENGTH_DECREASED", "#/maxLength", {"maxLength": 9}, {"maxLength": 10}),
    ("MIN_LENGTH_ADDED", "#/minLength", {"minLength": 1}, TEXT),
    ("MIN_LENGTH_INCREASED", "#/minLength", {"minLength": 2}, {"minLength": 1}),
    ("PATTERN_ADDED", "#/pattern", {"pattern": "a"}, TEXT),
    ("PATTERN_CHANGED", "#/pattern", {"pattern": "a"}, {"pattern": "aa"}),
    ("MAX_ITEMS_ADDED", "#/maxItems", {"maxItems": 1}, {"type": "array"}),
    ("MAX_ITEMS_DECREASED", "#/maxItems", {"maxItems": 1}, {"maxItems": 2}),
    ("MIN_ITEMS_ADDED", "#/minItems", {"minItems": 1}, {"type": "array"}),
    ("MIN_ITEMS_INCREASED", "#/minItems", {"minItems": 2}, {"minItems": 1}),
    ("UNIQUE_ITEMS_ADDED", "#/uniqueItems", {"uniqueItems": True}, {"maxItems": 2}),
    ("MIN_CONTAINS_ADDED", "#/contains", {"contains": TEXT}, {"contains": NUMBER}),
    ("MAX_CONTAINS_ADDED", "#/maxContains", latest(contains=TEXT, maxContains=1), latest(contains=TEXT)),
    ("MAX_PROPERTIES_ADDED", "#/maxProperties", {"maxProperties": 1}, {"type": "object"}),
    ("MAX_PROPERTIES_DECREASED", "#/maxProperties", {"maxProperties": 1}, closed(a={}, b={})),
    ("MIN_PROPERTIES_ADDED", "#/minProperties", {"minProperties": 1}, {"type": "object"}),
    ("MIN_PROPERTIES_INCREASED", "#/minProperties", {"minProperties": 2}, {"required": ["a"]}),
    ("REQUIRED_ATTRIBUTE_ADDED", "#/required/a", {"required": ["a"]}, {"type": "object"}),
    ("REQUIRED_ATTRIBUTE_ADDED", "#/required/a",
     {"required": ["a"], "properties": {"a": {"type": "string", "default": 1}}}, closed()),
    ("DEPENDENCY_ARRAY_ADDED", "#/dependencies/a", {"dependencies": {"a": ["b"]}}, {"type": "object"}),
    ("DEPENDENCY_ARRAY_EXTENDED", "#/dependencies/a", latest(dependentRequired={"a": ["b", "c"]}),
     latest(dependentRequired={"a": ["b"]})),
    ("PROPERTY_NAMES_CHANGED", "#/propertyNames", {"propertyNames": {"maxLength": 1}},
     {"propertyNames": {"maxLength": 2}}),
    ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "#/properties/a", {"properties": {"a": TEXT}}, {"type": "object"}),
    ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "#/properties/a", closed(), closed(a={})),
    ("PROPERTY_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "#/properties/a", {"additionalProperties": TEXT},
     closed(a=NUMBER)),
    ("ADDITIONAL_PROPERTIES_REMOVED", "#/additionalProperties", closed(), {"type": "object"}),
    ("ADDITIONAL_PROPERTIES_NARROWED", "#/additionalProperties", {"additionalProperties": TEXT}, {"type": "object"}),
    ("ADDITIONAL_PROPERTIES_NARROWED", "#/additionalProperties", {"additionalProperties": TEXT},
     {"patternProperties": {"^a": NUMBER}, "additionalProperties": TEXT}),
    ("ADDITIONAL_PROPERTIES_REMOVED", "#/unevaluatedProperties", latest(unevaluatedProperties=False),
     latest(type="object")),
    ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "#/items/1", {"items": [TEXT, TEXT]}, {"items": [TEXT]}),
    ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "#/items/1", {"items": [{}], "additionalItems": False},
     {"items": [{}, {}], "additionalItems": False}),
    ("ADDITIONAL_ITEMS_REMOVED", "#/additionalItems", {"items": [{}], "additionalItems": False}, {"items": [{}]}),
    ("ADDITIONAL_ITEMS_NARROWED", "#/items", {"items": TEXT}, {"type": "array"}),
    ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#/anyOf", {"anyOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, NUMBER]}),
    ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#/oneOf", {"oneOf": [NUMBER, {"minimum": 0}]}, NUMBER),
    ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#/oneOf", {"oneOf": [{"const": 0.5}, {}]}, NUMBER),
    ("NOT_TYPE_EXTENDED", "#/not", {"not": {"maximum": 2}}, {"type": "number", "not": {"maximum": 1}}),
    ("CONDITION_CHANGED", "#/if", {"if": TEXT, "then": {"minLength": 1}}, TEXT),
    ("DYNAMIC_REFERENCE_CHANGED", "#/", latest(**{"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}}}), TEXT),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "reader", "writer"), BROKEN)
def test_a_broken_rule_is_reported_at_its_place(rule: str, path: str, reader: object, writer: object) -> None:
    assert differences(reader, writer) == [(rule, path)]


def test_a_schema_that_depends_on_a_property_is_compared() -> None:
    broken = differences({"dependencies": {"a": {"maxProperties": 1}}}, {"dependencies": {"a": {"maxProperties": 2}}})
    assert broken == [("DEPENDENCY_SCHEMA_ADDED", "#/dependencies/a")]


def test_each_rule_has_a_case() -> None:
    cases = {rule for rule, *_ in BROKEN} | {"DEPENDENCY_SCHEMA_ADDED"}
    assert {rule.name for rule in JSON_RULES} == cases
    assert all(rule.citation.startswith("JSON Schema 2020-12") for rule in JSON_RULES)


# Pairs whose second schema follows from the first.
COMPATIBLE: list[tuple[object, object]] = [
    ({}, TEXT),
    (TEXT, False),
    (NUMBER, {"type": "integer"}),
    ({"type": ["string", "null"]}, TEXT),
    ({"anyOf": [TEXT, NUMBER]}, {"type": ["integer", "string"]}),
    ({"type": ["integer", "string"]}, {"anyOf": [TEXT, {"type": "integer"}]}),
    ({"oneOf": [TEXT, NUMBER]}, TEXT),
    ({"oneOf": [TEXT, NUMBER, {"type": "null"}]}, {"oneOf": [NUMBER, TEXT]}),
    ({"oneOf": [NUMBER, {"multipleOf": 3}]}, {"oneOf": [NUMBER, {"multipleOf": 3}]}),
    ({"oneOf": [kinds("a"), kinds("b")]}, kinds("a")),
    ({"oneOf": [{"maximum": 1}, {"exclusiveMinimum": 1}]}, {"type": "number", "maximum": 0}),
    ({"enum": ["a", "b"]}, {"const": "a"}),
    ({"enum": [True, False, None]}, {"type": ["boolean", "null"]}),
    ({"type": "integer", "minimum": 1, "maxLength": 1}, {"enum": [1, 2]}),
    ({"minimum": 1, "exclusiveMaximum": 10}, {"exclusiveMinimum": 1, "maximum": 9.5}),
    ({"multipleOf": 0.1}, {"multipleOf": 0.3}),
    ({"multipleOf": 1}, {"type": "integer"}),
    ({"maximum": 3}, {"allOf": [{"maximum": 2}, {"maximum": 5}]}),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, {"minimum": 1, "maximum": 2}),
    (closed(a=TEXT, b=NUMBER), closed(a=TEXT)),
    ({**closed(a={"type": "string", "default": ""}), "required": ["a"]}, closed()),
    ({"properties": {"a": TEXT}}, closed(a=TEXT, b=NUMBER)),
    ({"properties": {"ab": TEXT}}, {"patternProperties": {"^a": TEXT}}),
    ({"additionalProperties": NUMBER}, {"additionalProperties": {"type": "integer"}, "properties": {"a": NUMBER}}),
    ({"patternProperties": {"^a": NUMBER}}, {"patternProperties": {"^a": {"type": "integer"}}}),
    ({"maxProperties": 2}, closed(a={}, b={})),
    ({"dependencies": {"a": ["b"]}}, {"required": ["b"]}),
    ({"dependencies": {"a": ["b"]}}, closed(b={})),
    ({"propertyNames": {"maxLength": 3}}, closed(abc={})),
    ({"items": NUMBER}, {"items": [{"type": "integer"}], "additionalItems": NUMBER}),
    ({"items": [TEXT, TEXT]}, {"items": [TEXT], "maxItems": 1}),
    ({"uniqueItems": True}, {"maxItems": 1}),
    (latest(contains=NUMBER, maxContains=3), latest(contains=NUMBER, maxContains=2)),
    ({"contains": NUMBER}, {"contains": {"type": "integer"}}),
    ({"not": {"maximum": 1}}, {"type": "number", "not": {"maximum": 2}}),
    ({"not": TEXT}, NUMBER),
    ({"if": TEXT, "then": {"minLength": 1}}, {"if": TEXT, "then": {"minLength": 1}, "title": "T"}),
    ({"if": TEXT, "then": {"minLength": 1}}, {"type": "string", "minLength": 1}),
    (latest(allOf=[{"properties": {"a": {}}}], unevaluatedProperties=False),
     latest(allOf=[{"properties": {"a": {}}}], unevaluatedProperties=False)),
    ({"$ref": "#/definitions/x", "definitions": {"x": TEXT}}, TEXT),
    (latest(**{"$ref": "#/$defs/x", "maxLength": 2, "$defs": {"x": {"minLength": 1}}}),
     {"minLength": 1, "maxLength": 1}),
    (latest(prefixItems=[TEXT], items=NUMBER), {"items": [TEXT], "additionalItems": NUMBER}),
    ({"title": "new", "description": "d", "format": "email"}, {"title": "old"}),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), COMPATIBLE)
def test_what_follows_is_compatible(reader: object, writer: object) -> None:
    assert differences(reader, writer) == []


@pytest.mark.parametrize("schema", [schema for *_, reader, writer in BROKEN for schema in (reader, writer)])
def test_a_schema_is_compatible_with_itself(schema: object) -> None:
    assert differences(schema, schema) == []


def tree(value: object, required: object = ()) -> dict[str, object]:
    children = {"type": "array", "items": {"$ref": "#/definitions/node"}}
    node = {"type": "object", **closed(value=value, children=children), "required": list(required)}
    return {"$ref": "#/definitions/node", "definitions": {"node": node}}


def test_recursive_schemas_are_compared_through_their_circles() -> None:
    assert differences(tree(NUMBER), tree({"type": "integer"})) == []
    assert differences(tree({"type": "integer"}), tree(NUMBER)) == [("TYPE_NARROWED", "#/properties/value")]


def test_a_wrong_assumption_about_a_circle_is_taken_back() -> None:
    # The first alternative fits as long as the whole is assumed to, which it does not in the end.
    def schema(leaf: object) -> dict[str, object]:
        return {
            "type": "object",
            "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "b": {"$ref": "#"}, "c": leaf},
        }

    assert ("TYPE_CHANGED", "#/properties/c") in differences(schema(TEXT), schema(NUMBER))


def test_a_schema_that_is_its_own_alternative_proves_nothing() -> None:
    assert differences({"anyOf": [{"$ref": "#"}, TEXT]}, NUMBER)


def test_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "MAX_WORK", 1000)
    # Each of 2 ** 17 cases has to be tried before the alternatives that matter are.
    idle = [{"anyOf": [{"minimum": -i}, {"multipleOf": i}]} for i in range(1, 18)]
    needed = {"anyOf": [{"maximum": 5}, {"maximum": 6}]}
    with pytest.raises(SchemaError, match="take more than"):
        differences({"maximum": 10}, {"type": "number", "allOf": [*idle, needed, *idle]})


def test_expansions_of_references_are_bounded() -> None:
    definitions = {f"d{i}": {"allOf": [{"$ref": f"#/definitions/d{i + 1}"}, {"title": str(i)}]} for i in range(300)}
    with pytest.raises(SchemaError, match="schemas apply to one value"):
        differences(TEXT, {"$ref": "#/definitions/d0", "definitions": {**definitions, "d300": {"maxLength": 1}}})


def test_differences_do_not_double_with_each_level_of_references() -> None:
    def shared(kind: str) -> dict[str, object]:
        definitions: dict[str, object] = {"d60": {"type": kind}}
        for level in range(60):
            inner = {"$ref": f"#/definitions/d{level + 1}"}
            definitions[f"d{level}"] = {"type": "object", "properties": {"left": inner, "right": inner}}
        return {"$ref": "#/definitions/d0", "definitions": definitions}

    assert 1 <= len(differences(shared("string"), shared("integer"))) <= 2000


def test_paths_are_cut() -> None:
    name = "n" * 5000
    broken = differences({"properties": {name: {"properties": {"a": TEXT}}}}, {"properties": {name: {}}})
    assert [len(path) for _, path in broken] == [1001]


def test_patterns_and_names_are_judged_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_view, "MAX_JUDGED", 20_000)
    reader = {"patternProperties": {f"^a{number}x*b": NUMBER for number in range(300)}, "additionalProperties": TEXT}
    with pytest.raises(SchemaError, match="too long to compare"):
        differences(reader, closed(**{f"p{number}": TEXT for number in range(300)}))


def test_a_large_enum_is_compared() -> None:
    names = [f"symbol-{number}" for number in range(10_000)]
    assert differences({"enum": names}, {"enum": names[-1000:]}) == []


DEFAULTED = {"type": "object", "required": ["a"], "properties": {"a": {"default": 1}}}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ({"not": {"type": "object"}}, {"not": DEFAULTED}),
        (
            latest(type="array", contains={"type": "object"}, maxContains=1, minContains=0),
            latest(type="array", contains=DEFAULTED, maxContains=1, minContains=0),
        ),
    ],
)
def test_a_default_widens_only_what_the_reader_reads(reader: object, writer: object) -> None:
    assert differences(reader, writer)


@pytest.mark.parametrize(
    ("draft", "keywords"),
    [
        ("draft/2019-09", {"prefixItems": [NUMBER]}),
        ("draft-07", {"prefixItems": [NUMBER]}),
        ("draft-07", {"dependentRequired": {"a": ["b"]}}),
        ("draft-07", {"unevaluatedProperties": False}),
        ("draft-07", {"contains": NUMBER, "minContains": 3}),
        ("draft-06", {"if": TEXT, "then": False}),
        ("draft-04", {"const": 1}),
    ],
)
def test_a_keyword_that_the_writers_draft_does_not_know_restricts_nothing(
    draft: str, keywords: dict[str, object]
) -> None:
    assert differences(latest(**keywords), {"$schema": f"https://json-schema.org/{draft}/schema", **keywords})
    assert not differences(latest(**keywords), latest(title="same", **keywords))


def test_dependencies_of_both_spellings_count() -> None:
    writer = {"dependentRequired": {"a": ["c"]}}
    assert differences({"dependencies": {"a": ["b"]}, **writer}, writer)


def test_an_array_of_items_in_a_draft_without_it_is_compared() -> None:
    listed, plain = latest(items=[TEXT]), latest(items=TEXT)
    assert not differences(listed, plain)
    assert differences(plain, listed)
