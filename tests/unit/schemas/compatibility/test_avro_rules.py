"""Avro's rules of compatibility: difference by a case that breaks it alone, and what resolves without any."""

from __future__ import annotations

import json

import pytest

from oncelog.schemas.compatibility import avro
from oncelog.schemas.compatibility.avro import AVRO_RULES, avro_differences
from oncelog.schemas.compatibility.rules import Difference
from oncelog.schemas.formats.avro.schema import AvroSchema
from oncelog.schemas.formats.parsed import parse
from oncelog.schemas.schema import Schema, SchemaError


def differences(reader: object, writer: object) -> list[Difference]:
    parsed = [parse(Schema(json.dumps(schema))) for schema in (reader, writer)]
    reader_schema, writer_schema = (schema for schema in parsed if isinstance(schema, AvroSchema))
    return avro_differences(reader_schema.root, writer_schema.root)


def record(*fields: object, name: str = "R", **others: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **others}


def field(name: str, kind: object, **others: object) -> dict[str, object]:
    return {"name": name, "type": kind, **others}


def enum(*symbols: str, **others: object) -> dict[str, object]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **others}


def fixed(size: int, name: str = "F", **others: object) -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size, **others}


def array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


# Each with the rule, where it is broken, the reader's schema and the writer's.
BROKEN: list[tuple[str, str, object, object]] = [
    ("TYPE_MISMATCH", "/", "int", "long"),
    ("TYPE_MISMATCH", "/items", array("float"), array("double")),
    ("TYPE_MISMATCH", "/fields/0/type/values", record(field("m", {"type": "map", "values": "int"})),
     record(field("m", {"type": "map", "values": "string"}))),
    ("TYPE_MISMATCH", "/1", "string", ["string", "null"]),
    ("TYPE_MISMATCH", "/", record(), enum("A")),
    ("NAME_MISMATCH", "/name", fixed(4, "G"), fixed(4)),
    ("NAME_MISMATCH", "/name", record(name="a.S"), record(name="a.R")),
    ("NAME_MISMATCH", "/name", record(name="b.S", aliases=["R"]), record(name="a.R")),
    ("FIXED_SIZE_MISMATCH", "/size", fixed(8), fixed(4)),
    ("MISSING_ENUM_SYMBOLS", "/symbols", enum("A", "C"), enum("A", "B")),
    ("MISSING_UNION_BRANCH", "/1", ["null", "string"], ["null", "int"]),
    ("MISSING_UNION_BRANCH", "/", ["null", "string"], "int"),
    ("MISSING_UNION_BRANCH", "/", ["null", array("int")], array("string")),
    ("MISSING_UNION_BRANCH", "/", ["null", fixed(4, "b.F")], fixed(4, "a.F")),  # Java finds it by its full name
    ("MISSING_UNION_BRANCH", "/0", [record(field("n", "int"), name="a.R"), record(name="b.R")], [record(name="c.R")]),
    ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1", record(field("a", "int"), field("b", "int")),
     record(field("a", "int"))),
    ("READER_FIELD_AMBIGUOUS", "/fields/0", record(field("a", "int", aliases=["b"])),
     record(field("a", "int"), field("b", "int"))),
    ("READER_FIELD_AMBIGUOUS", "/fields/1", record(field("a", "int", default=1), field("b", "int", aliases=["a"])),
     record(field("a", "int"))),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "path", "reader", "writer"), BROKEN)
def test_a_broken_rule_is_reported_at_its_place(rule: str, path: str, reader: object, writer: object) -> None:
    assert [(broken.rule.name, broken.path) for broken in differences(reader, writer)] == [(rule, path)]


def test_each_rule_has_a_case() -> None:
    assert {rule.name for rule in AVRO_RULES} == {rule for rule, *_ in BROKEN}
    assert all("specification" in rule.citation for rule in AVRO_RULES)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("double", "long"),
        ("bytes", "string"),
        ("string", "bytes"),
        (["null", "double"], "int"),
        (["string", "null"], ["null"]),
        ("long", ["int", "long"]),
        (["null", record(name="b.R")], record(name="a.R")),
        ([record(field("n", "int"), name="a.R"), record(name="b.R")], [record(name="b.R")]),
        (record(name="b.R"), record(name="a.R")),
        (record(name="S", aliases=["a.R"]), record(name="a.R")),
        (enum("A", default="A"), enum("A", "B")),
        (enum("A", "B"), enum("B")),
        (record(), record(field("a", "int"))),
        (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
        (record(field("a", "int", aliases=["a"])), record(field("a", "int"))),  # Java throws, and decodes
        (record(field("b", "int", default=0)), record()),
        (record(field("a", "int", default=1), field("b", "int", aliases=["a"], default=1)), record(field("a", "int"))),
        (record(field("next", ["null", "R"])), record(field("next", ["null", "R"]))),
    ],
)
def test_what_resolves_is_compatible(reader: object, writer: object) -> None:
    assert differences(reader, writer) == []


def test_a_field_whose_alias_is_another_field_is_incompatible_with_itself_as_in_java() -> None:
    # Java's SchemaCompatibility throws, and its decoder fails as soon as the schemas differ: "Duplicate field a".
    schema = record(field("a", "int", aliases=["b"]), field("b", "int"))
    assert {broken.rule.name for broken in differences(schema, schema)} == {"READER_FIELD_AMBIGUOUS"}


def test_a_recursive_type_is_incompatible_if_it_is_so_further_in() -> None:
    reader = record(field("next", ["null", "R"]), field("value", "int"))
    writer = record(field("next", ["null", "R"]), field("value", "string"))
    assert [broken.path for broken in differences(reader, writer)] == ["/fields/0/type/1", "/fields/1/type"]


def chain(length: int, leaf: str) -> dict[str, object]:
    """A record that has two fields of a record that has two fields, and so on: 2 ** length paths."""
    kind: object = leaf
    for level in range(length):
        inner = kind if level == 0 else f"R{level - 1}"
        kind = record(field("a", kind), field("b", inner), name=f"R{level}")
    assert isinstance(kind, dict)
    return kind


def test_types_are_compared_once_however_often_they_are_used() -> None:
    assert differences(chain(50, "long"), chain(50, "int")) == []
    assert len(differences(chain(50, "int"), chain(50, "long"))) == 2


def test_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MAX_PAIRS", 1000)
    unions = [[record(name=f"{side}{number}.R") for number in range(40)] for side in ("r", "w")]
    with pytest.raises(SchemaError, match="more than 1000 pairs of types"):
        differences(*unions)


def test_messages_are_bounded_whatever_the_names() -> None:
    symbols = [f"{'S' * 100}{number}" for number in range(100)]
    readers = [field(f"f{number}", enum("x", name="E", namespace=f"n{number}")) for number in range(50)]
    writers = [field("f0", enum(*symbols, name="E"))] + [field(f"f{number}", "E") for number in range(1, 50)]
    broken = differences(record(*readers), record(*writers))
    assert len(broken) == 50
    assert max(len(item.info or "") for item in broken) <= 1001
