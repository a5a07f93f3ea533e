"""JSON schemas: their text, references that stay within the registry, and what is refused."""

from __future__ import annotations

import json

import pytest

from oncelog.schemas.formats.json_schema.schema import JsonSchema
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType


def json_schema(text: object, references: dict[str, object] | None = None) -> JsonSchema:
    texts = {name: Schema(json.dumps(value), SchemaType.JSON) for name, value in (references or {}).items()}
    written = text if isinstance(text, str) else json.dumps(text)
    schema = Schema(written, SchemaType.JSON, tuple(Reference(name, name, 1) for name in texts))
    parsed = parse(schema, lambda reference: texts[reference.name])
    assert isinstance(parsed, JsonSchema)
    return parsed


def test_the_canonical_text_keeps_keys_in_order_and_numbers_as_written() -> None:
    parsed = json_schema('{ "type" : "number", "title": "T", "multipleOf": 0.10, "maximum": 1e2 }')
    assert parsed.canonical == '{"type":"number","title":"T","multipleOf":0.10,"maximum":1E+2}'
    assert parsed.normalized == '{"maximum":1E+2,"multipleOf":0.10,"title":"T","type":"number"}'
    assert parsed.name == "T"


@pytest.mark.parametrize("text", ["true", "false", "{}"])
def test_a_boolean_or_an_empty_object_is_a_schema(text: str) -> None:
    assert json_schema(text).canonical == text


@pytest.mark.parametrize("name", ["other.json", "http://example.com/other.json", "urn:other"])
def test_a_reference_is_resolved_by_its_name(name: str) -> None:
    parsed = json_schema(
        {"properties": {"a": {"$ref": f"{name}#/definitions/x"}}}, {name: {"definitions": {"x": False}}}
    )
    assert not parsed.validator.is_valid({"a": 1})
    assert parsed.validator.is_valid({"b": 1})


def test_a_reference_is_relative_to_the_schemas_id() -> None:
    document = {"$id": "http://example.com/schemas/root.json", "$ref": "other.json"}
    assert not json_schema(document, {"other.json": {"type": "string"}}).documents.root.base.endswith("other.json")
    nested = {"$id": "http://example.com/a/root.json", "properties": {"a": {"$ref": "other.json"}}}
    assert not json_schema(nested, {"other.json": {"type": "string"}}).validator.is_valid({"a": 1})


def test_ids_and_anchors_within_a_schema_are_names() -> None:
    parsed = json_schema(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"a": {"$ref": "#here"}, "b": {"$ref": "inner"}},
            "$defs": {"x": {"$anchor": "here", "type": "string"}, "y": {"$id": "inner", "type": "integer"}},
        }
    )
    assert parsed.validator.is_valid({"a": "", "b": 1})
    assert not parsed.validator.is_valid({"a": 1})


def test_draft_7_holds_without_a_dialect() -> None:
    # Beside a $ref nothing else holds there, which changed in 2019.
    parsed = json_schema({"properties": {"a": {"$ref": "#/definitions/x", "maximum": 1}}, "definitions": {"x": {}}})
    assert parsed.validator.is_valid({"a": 2})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "http://127.0.0.1:9/x"}, 'the reference "http://127.0.0.1:9/x" is neither'),
        ({"$ref": "file:///etc/passwd"}, "never fetched"),
        ({"not": {"$ref": "#/definitions/x"}}, "leads to no part"),
        ({"definitions": {"x": {"$ref": "#/definitions/x"}}}, "refers to itself"),
        ({"type": "text"}, "is one or several of"),
        ({"properties": {"a": {"required": True}}}, "#/properties/a/required of the JSON schema is an array of names"),
        ({"minLength": -1}, "an integer of at least 0"),
        ({"multipleOf": 0}, "a number greater than 0"),
        ({"properties": [1]}, "an object of schemas"),
        ({"items": 7}, "a schema"),
        ([], "an object or a boolean"),
        ('{"minimum": NaN}', "not a number of JSON"),
        ('{"a": 1', "not valid JSON"),
        ("[" * 100_000, "nested more than"),
        ('{"not":' * 101 + "{}" + "}" * 101, "at most 100 deep"),
        ({"enum": list(range(20_001))}, "at most 20000 names"),
    ],
)
def test_what_is_no_schema_is_refused(schema: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        json_schema(schema)


def test_a_number_of_any_size_costs_nothing() -> None:
    assert not json_schema('{"type": "string", "minLength": 1%s}' % ("0" * 100)).validator.is_valid("a")


def test_a_pattern_that_backtracks_is_bounded() -> None:
    parsed = json_schema({"type": "string", "pattern": "^(?=a)(a|aa)*(a|aa)*$"})
    assert parsed.validator.is_valid("a" * 20)
    assert not parsed.validator.is_valid("a" * 50_000 + "b")
