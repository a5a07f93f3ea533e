"""The records of `_schemas`, byte for byte as Confluent's registry writes them, and what others may have written."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.registry.guids import guid_of
from oncelog.registry.steps import Append
from oncelog.registry.topic_records import (
    Key,
    KeyType,
    UnreadableRecord,
    Version,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from oncelog.registry.transfer import ImportRefused, exported, import_records, read_lines, to_line
from oncelog.schemas.schema import Reference, Schema, SchemaType
from tests.unit.registry.machine import Machine
from tests.unit.registry.test_registration import A, B

KEYS = [
    (Key(KeyType.SCHEMA, "s", 3), b'{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}'),
    (Key(KeyType.CONFIG), b'{"keytype":"CONFIG","magic":0}'),
    (Key(KeyType.CONFIG, "s"), b'{"keytype":"CONFIG","subject":"s","magic":0}'),
    (Key(KeyType.MODE, "s"), b'{"keytype":"MODE","subject":"s","magic":0}'),
    (Key(KeyType.NOOP), b'{"keytype":"NOOP","magic":0}'),
    (Key(KeyType.DELETE_SUBJECT, "s"), b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'),
    (Key(KeyType.CONTEXT, ".x"), b'{"keytype":"CONTEXT","tenant":"default","context":".x","magic":0}'),
]


@pytest.mark.parametrize(("key", "data"), KEYS)
def test_keys_have_confluents_bytes(key: Key, data: bytes) -> None:
    assert encode_key(key) == data
    assert decode_key(data) == key


def test_the_global_config_may_name_its_subject_null() -> None:
    assert decode_key(b'{"keytype":"CONFIG","subject":null,"magic":0}') == Key(KeyType.CONFIG)


def test_a_schema_of_an_old_registry_has_a_key_of_magic_0() -> None:
    expected = Key(KeyType.SCHEMA, "s", 1)
    assert decode_key(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}') == expected
    assert decode_key(b'{"keytype":"SCHEMA","subject":"s","version":1}') == expected


@pytest.mark.parametrize("magic", [b"2", b"-1", b"true", b'"1"', b"null", b"1.0"])
@pytest.mark.parametrize("kind", list(KeyType))
def test_a_key_of_another_magic_is_of_a_later_registry(kind: KeyType, magic: bytes) -> None:
    key = b'{"keytype":"%s","subject":"s","context":"s","version":1,"magic":%s}' % (kind.value.encode(), magic)
    with pytest.raises(UnreadableRecord, match=f"{kind.value} has the magic .*reads 0 and 1"):
        decode_key(key)


def test_a_version_is_read_as_it_was_written() -> None:
    schema = Schema(
        "message A {}",
        SchemaType.PROTOBUF,
        (Reference("b.proto", "b", 2),),
        {"properties": {"k": "v"}},
        {"domainRules": []},
    )
    version = Version("s", 3, 17, schema, guid_of(schema), deleted=True, timestamp_ms=5)
    key = Key(KeyType.SCHEMA, "s", 3)
    assert decode_value(key, encode_value(key, version), 5) == version


def test_a_record_without_hash_and_type_is_that_of_an_old_registry() -> None:
    key = Key(KeyType.SCHEMA, "s", 1)
    version = decode_value(key, b'{"subject":"s","version":1,"id":1,"schema":"\\"string\\""}')
    assert isinstance(version, Version)
    assert version.schema == Schema('"string"')
    assert version.guid == UUID("095d71cf-1255-6b9d-5e33-0ad575b3df5d")


@pytest.mark.parametrize(
    "key", [b"", b"\xff", b"[]", b'{"keytype":"ASSOC"}', b'{"keytype":"SCHEMA"}', b"[" * 5000, b'{"keytype":["a"]}']
)
def test_other_keys_are_unreadable(key: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_key(key)


UNREADABLE = [
    b"x",
    b"{}",
    b'{"id":"1","schema":"a"}',
    b'{"id":4294967296,"schema":"a"}',
    b'{"id":1,"schema":"a","references":[1]}',
    b'{"id":1,"schema":"a","metadata":{"tags":{"a":1}}}',
    b'{"id":1,"schema":"a","metadata":{"properties":[1]}}',
    b'{"id":1,"schema":"a","ruleSet":{"domainRules":1}}',
    b'{"id":1,"schema":"a","ruleSet":{"domainRules":[{"name":"n","type":"t","params":1}]}}',
]


@pytest.mark.parametrize("value", UNREADABLE)
def test_other_values_are_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_value(Key(KeyType.SCHEMA, "s", 1), value)


def test_fields_of_a_config_that_cannot_be_used_are_left_out() -> None:
    machine = Machine()
    key = b'{"keytype":"CONFIG","subject":"s","magic":0}'
    machine.append_line(
        key, b'{"compatibilityLevel":"NEWER","normalize":true,"defaultMetadata":1,"overrideRuleSet":[]}'
    )
    assert machine.store.config_in_scope("s") == {"compatibilityLevel": "BACKWARD", "normalize": True}
    machine.append_line(b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"version":"x"}')
    machine.append_line(b'{"keytype":"MODE","subject":"s","magic":0}', b"{}")
    assert machine.register("s", A).version == 1


def test_an_export_is_imported_with_its_ids_and_a_second_time_it_adds_nothing() -> None:
    machine = Machine()
    machine.register("a", A)
    machine.register(":.x:b", B)
    machine.register("b", B, Reference("a", "a", 1))
    machine.delete_version("b", 1)
    machine.set_config("a", compatibilityLevel="FULL")
    machine.set_mode("a", "READONLY")
    lines = [to_line(record) for record in exported(machine.store)]
    other = Machine()
    assert other.run(import_records(other.store, list(read_lines(lines)))) > 0
    assert other.store.subjects == machine.store.subjects
    assert (other.store.configs, other.store.modes) == (machine.store.configs, machine.store.modes)
    assert other.register("c", '{"c":1}').id == machine.store.next_id(".")
    again = Machine(other.lines)
    assert again.run(import_records(again.store, list(read_lines(lines)))) == 0


def test_an_import_that_contradicts_the_registry_is_refused_as_a_whole() -> None:
    machine = Machine()
    machine.register("a", A)
    lines = [to_line(record) for record in exported(machine.store)]
    for subject, reason in (("a", "another schema"), ("b", "the id 1 of a belongs to another schema")):
        other = Machine()
        other.register(subject, B)
        count = len(other.lines)
        with pytest.raises(ImportRefused, match=reason):
            other.run(import_records(other.store, list(read_lines(lines))))
        assert len(other.lines) == count


@pytest.mark.parametrize("line", ["x", "[]", "{}", '{"key":{"keytype":"?"},"value":{}}'])
def test_other_lines_are_no_export(line: str) -> None:
    with pytest.raises(ImportRefused, match="line 1"):
        list(read_lines([line]))


def test_an_import_that_ended_between_two_batches_is_completed_by_a_repetition() -> None:
    machine = Machine()
    for number in range(4):
        machine.register(f"s{number}", f'{{"type": "fixed", "name": "F", "size": {number}}}')
    records = list(read_lines([to_line(record) for record in exported(machine.store)]))
    other = Machine()
    program = import_records(other.store, records)
    next(program)
    append = program.send(None)
    assert isinstance(append, Append)
    for record in append.records[:2]:
        other.append(record)
    program.close()
    assert other.register("own", '"string"').id == 5
    assert other.run(import_records(other.store, records)) == len(append.records) - 2
    assert other.run(import_records(other.store, records)) == 0
    for number in range(4):
        assert other.store.by_id(number + 1, ".") == machine.store.by_id(number + 1, ".")
