"""Avro schemas: the text that a registry stores, normalisation, references, and what is refused."""

from __future__ import annotations

import json

import pytest

from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.schema import Reference, Schema, SchemaError


def avro(value: object, references: dict[str, object] | None = None) -> AvroSchema:
    texts = {name: Schema(json.dumps(text)) for name, text in (references or {}).items()}
    schema = Schema(json.dumps(value), references=tuple(Reference(name, name, 1) for name in texts))
    parsed = parse(schema, lambda reference: texts[reference.name])
    assert isinstance(parsed, AvroSchema)
    return parsed


def record(*fields: object, name: str = "R", **others: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **others}


def test_the_canonical_text_has_avros_order_of_attributes_and_no_spaces() -> None:
    parsed = avro(
        {
            "fields": [
                {
                    "type": {"type": "string", "java": "String"},
                    "name": "a",
                    "default": "é",
                    "doc": "A\u0001",
                },
                {"name": "b", "type": ["null", "R"], "default": None, "order": "ignore", "aliases": ["z", "y"], "x": 1},
            ],
            "aliases": ["Old", "other.Old"],
            "doc": "",
            "connect.name": "c",
            "namespace": "n",
            "name": "R",
            "type": "record",
        }
    )
    assert parsed.canonical == (
        '{"type":"record","name":"R","namespace":"n","doc":"","fields":['
        '{"name":"a","type":{"type":"string","java":"String"},"doc":"A\\u0001","default":"é"},'
        '{"name":"b","type":["null","R"],"default":null,"order":"ignore","aliases":["z","y"],"x":1}],'
        '"connect.name":"c","aliases":["Old","other.Old"]}'
    )
    assert parsed.name == "n.R"


def test_a_name_is_written_with_its_namespace_where_the_namespace_around_it_differs() -> None:
    inner = {"type": "enum", "name": "a.E", "symbols": ["X"], "default": "X"}
    parsed = avro(record({"name": "e", "type": inner}, {"name": "f", "type": "a.E"}, name="b.R"))
    assert parsed.canonical == (
        '{"type":"record","name":"R","namespace":"b","fields":[{"name":"e","type":{"type":"enum","name":"E",'
        '"namespace":"a","symbols":["X"],"default":"X"}},{"name":"f","type":"a.E"}]}'
    )
    outside = avro(record({"name": "e", "type": {**inner, "name": "E", "namespace": ""}}, name="b.R"))
    assert '"namespace":""' in outside.canonical


def test_normalized_text_is_equal_for_equal_schemas() -> None:
    decimal = {"type": "bytes", "scale": 2, "z": {"b": 1, "a": 2}, "precision": 9, "logicalType": "decimal"}
    first = avro(record({"name": "d", "type": decimal, "default": "", "y": 1, "b": 2}, doc="", aliases=["Z", "A"]))
    other = avro(
        record(
            {"b": 2, "y": 1, "name": "d", "default": "", "type": dict(sorted(decimal.items(), reverse=True))},
            aliases=["A", "Z"],
        )
    )
    assert first.normalized == other.normalized
    assert first.canonical != other.canonical
    assert '"type":"bytes","logicalType":"decimal","precision":9,"scale":2,"z":{"a":2,"b":1}' in first.normalized


def test_normalized_defaults_are_numbers_of_their_type() -> None:
    kind = {"type": "map", "values": "double"}
    parsed = avro(
        record({"name": "d", "type": "double", "default": 1}, {"name": "m", "type": kind, "default": {"b": 1, "a": 2}})
    )
    assert '"default":1.0' in parsed.normalized
    assert '"default":{"a":2.0,"b":1.0}' in parsed.normalized
    assert '"default":1}' in parsed.canonical


@pytest.mark.parametrize(
    ("number", "written"),
    [("1e16", "1.0E16"), ("-1.5E-7", "-1.5E-7"), ("123456.75", "123456.75"), ("1e400", None), ("100000000.0", "1.0E8")],
)
def test_doubles_are_written_as_java_writes_them(number: str, written: str | None) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"d","type":"double","default":NUMBER}]}'
    text = text.replace("NUMBER", number)
    if written is None:
        with pytest.raises(SchemaError, match="does not fit"):
            parse(Schema(text))
    else:
        assert f'"default":{written}}}' in parse(Schema(text)).canonical


def test_a_referenced_type_is_a_name_in_the_text_and_whole_for_decoders() -> None:
    address = record({"name": "street", "type": "string"}, name="a.Address")
    parsed = avro(record({"name": "home", "type": "a.Address"}, name="b.User"), {"a.Address": address})
    assert '"type":"a.Address"' in parsed.canonical
    assert json.loads(parsed.resolved)["fields"][0]["type"]["name"] == "Address"
    assert parsed.fastavro["fields"][0]["type"]["fields"][0]["type"] == "string"


def test_references_of_references_are_resolved_and_may_share_an_equal_type() -> None:
    shared = {"type": "fixed", "name": "Shared", "size": 4}
    texts = {
        "A": Schema(json.dumps(record({"name": "s", "type": shared}, name="A"))),
        "B": Schema(
            json.dumps(record({"name": "a", "type": "A"}, {"name": "s", "type": shared}, name="B")),
            references=(Reference("A", "a", 1),),
        ),
    }
    root = record({"name": "b", "type": "B"}, {"name": "a", "type": "A"}, {"name": "s", "type": "Shared"})
    schema = Schema(json.dumps(root), references=(Reference("B", "b", 3), Reference("A", "a", 1)))
    parsed = parse(schema, lambda reference: texts[reference.name])
    assert isinstance(parsed, AvroSchema)
    assert parsed.fastavro["name"] == "R"


def test_two_versions_of_one_reference_are_refused() -> None:
    schema = Schema('"A"', references=(Reference("A", "a", 1), Reference("A", "a", 2)))
    with pytest.raises(SchemaError, match="use one version"):
        parse(schema, lambda _: Schema('{"type":"fixed","name":"A","size":1}'))


def test_references_in_a_circle_end() -> None:
    schema = Schema('"A"', references=(Reference("A", "a", 1),))
    circular = Schema('{"type":"fixed","name":"A","size":1}', references=(Reference("A", "a", 1),))
    assert parse(schema, lambda _: circular).canonical == '"A"'


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("nothing", "neither a type of Avro"),
        (record({"name": "a", "type": "B"}), 'the type "B" is not defined'),
        (record({"name": "a-b", "type": "int"}), "not a name of Avro"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), 'the field "a" twice'),
        (record({"name": "a", "type": "int", "default": "1"}), "the default .* is not valid"),
        (record({"name": "a", "type": "int", "default": 2**31}), "the default .* is not valid"),
        (record({"name": "a", "type": "boolean", "default": 1}), "the default .* is not valid"),
        (record({"name": "a", "type": "R", "default": {}}), "the default .* is not valid"),
        (record({"name": "a", "type": ["int", "int"]}), 'the type "int" twice'),
        (["int", ["string"]], "another union"),
        ({"type": "fixed", "name": "F", "size": 2**60}, "size from 0 to"),
        ({"type": "fixed", "name": "F", "size": True}, "size from 0 to"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, 'symbol "A" twice'),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "not one of its symbols"),
        ({"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(20_001)]}, "at most 20000 names"),
        ({"type": "record", "name": "int", "fields": []}, "cannot be the name of another"),
        ({"type": "array"}, 'has no "items"'),
        (7, "a name, an object or an array"),
    ],
)
def test_what_is_not_avro_is_refused(schema: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        avro(schema)


def test_a_default_that_contains_the_record_itself_is_checked() -> None:
    parsed = avro(record({"name": "a", "type": ["null", "R"], "default": None}, {"name": "b", "type": "int"}))
    assert parsed.name == "R"


def test_defaults_that_grow_exponentially_are_refused() -> None:
    kind: object = "int"
    for level in range(30):
        field = {"type": kind if level == 0 else f"R{level - 1}", "default": 0 if level == 0 else {}}
        fields = [{"name": "a", **field}, {"name": "b", **field}]
        if level:
            fields[0]["type"] = kind
        kind = record(*fields, name=f"R{level}")
    with pytest.raises(SchemaError, match="more than 50000 values"):
        avro(kind)


def test_nested_types_are_bounded() -> None:
    kind: object = "int"
    for _ in range(101):
        kind = {"type": "array", "items": kind}
    with pytest.raises(SchemaError, match="at most 100 deep"):
        avro(kind)


def test_text_is_bounded() -> None:
    with pytest.raises(SchemaError, match="at most 1048576 bytes"):
        parse(Schema(" " * (1 << 20) + '"int"'))


@pytest.mark.parametrize("document", ['"{name}"', '{{"type": "enum", "name": "E", "symbols": ["{name}", "{name}"]}}'])
def test_an_error_does_not_repeat_a_name_of_a_hundred_kilobytes(document: str) -> None:
    name = "a" * 100_000
    with pytest.raises(SchemaError) as refused:
        parse(Schema(document.format(name=name)), lambda reference: Schema(""))
    assert len(str(refused.value)) < 1_100
    assert str(refused.value).endswith(("referenced schema", "twice"))
