"""Levels of compatibility: which versions are compared, in which direction, and the messages of a registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.schemas.compatibility.levels import Level, incompatibilities
from oncelog.schemas.formats.parsed import AnySchema, parse
from oncelog.schemas.schema import Schema, SchemaType


def record(*fields: str) -> AnySchema:
    return parse(Schema('{"type":"record","name":"R","fields":[%s]}' % ",".join(fields)))  # noqa: UP031 (braces)


A = '{"name":"a","type":"int"}'
B = '{"name":"b","type":"int"}'
B_WITH_DEFAULT = '{"name":"b","type":"int","default":0}'

# A field without default is added in "added" and removed in "removed", one with default in "optional".
CASES = {
    "added": (record(A, B), record(A), {Level.FORWARD, Level.FORWARD_TRANSITIVE}),
    "removed": (record(A), record(A, B), {Level.BACKWARD, Level.BACKWARD_TRANSITIVE}),
    "optional": (record(A, B_WITH_DEFAULT), record(A), set(Level) - {Level.NONE}),
}


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("case", list(CASES))
def test_a_level_says_who_reads_whom(case: str, level: Level) -> None:
    new, old, compatible = CASES[case]
    assert (not incompatibilities(new, [(1, old)], level)) == (level is Level.NONE or level in compatible)


def test_only_transitive_levels_look_at_earlier_versions() -> None:
    versions = [(2, record(A, B_WITH_DEFAULT)), (1, record(A))]
    new = record(A, B)
    assert incompatibilities(new, versions, Level.BACKWARD) == []
    assert incompatibilities(new, versions, Level.BACKWARD_TRANSITIVE)


def test_versions_are_read_as_far_as_needed() -> None:
    def versions() -> Iterator[tuple[int, AnySchema]]:
        yield 2, record(A)
        raise AssertionError("version 1 is not needed")

    assert incompatibilities(record(A), versions(), Level.FULL) == []
    assert incompatibilities(record(A, B), versions(), Level.FULL_TRANSITIVE)


def test_messages_have_the_registrys_shape() -> None:
    assert incompatibilities(record(A, B), [(7, record(A))], Level.BACKWARD) == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the new "
        "schema has no default and is missing in the old schema', additionalInfo:'b'}",
        "{oldSchemaVersion: 7}",
        f"{{oldSchema: '{record(A).canonical}'}}",
        "{compatibility: 'BACKWARD'}",
    ]


def test_readers_and_writers_are_named_by_direction() -> None:
    messages = incompatibilities(record(A), [(1, record(A, B))], Level.FORWARD)
    assert "in the old schema has no default and is missing in the new schema" in messages[0]
    full = incompatibilities(record(B), [(1, record(A))], Level.FULL)
    assert [("in the old" in message, "in the new" in message) for message in full[:2]] == [(True, True), (True, True)]


def test_a_long_schema_is_cut() -> None:
    old = record(*('{"name":"f%d","type":"int"}' % number for number in range(1000)))  # noqa: UP031 (braces)
    messages = incompatibilities(parse(Schema('"int"')), [(1, old)], Level.BACKWARD)
    assert messages[2].startswith("{oldSchema: <truncated> '{")
    assert len(messages[2]) < 11_000


def test_another_format_is_incompatible() -> None:
    messages = incompatibilities(record(A), [(1, parse(Schema("{}", SchemaType.JSON)))], Level.BACKWARD)
    assert messages[0] == "Incompatible because of different schema type"


def test_a_path_with_braces_or_percents_is_shown_as_it_is() -> None:
    new = parse(Schema('{"properties": {"{0} %s": {"type": "string"}}}', SchemaType.JSON))
    old = parse(Schema('{"properties": {"{0} %s": {"type": "number"}}}', SchemaType.JSON))
    assert "#/properties/{0} %s" in incompatibilities(new, [(1, old)], Level.BACKWARD)[0]
