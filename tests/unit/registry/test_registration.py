"""Registration: which id, which version, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.registry.errors import RegistryError
from oncelog.registry.store import Store
from oncelog.registry.topic_records import Key, KeyType, TopicRecord, Version
from oncelog.registry.transfer import exported, import_records
from oncelog.schemas.schema import Reference, Schema
from tests.unit.registry.machine import Machine

A, B, C = '{"a":1}', '{"b":1}', '{"c":1}'


def refused(code: int, message: str = "") -> pytest.RaisesExc[RegistryError]:
    return pytest.RaisesExc(RegistryError, check=lambda error: error.code == code and message in error.message)


def test_ids_rise_and_the_same_schema_has_the_same_id_in_every_subject() -> None:
    machine = Machine()
    assert [(machine.register("s", text).id, machine.register("s", text).version) for text in (A, B)] == [
        (1, 1),
        (2, 2),
    ]
    other = machine.register("t", B)
    assert (other.id, other.version) == (2, 1)
    assert machine.register("s", C).id == 3


def test_a_schema_is_registered_once_whatever_its_blanks() -> None:
    machine = Machine()
    assert machine.register("s", '{ "a" : 1 }').schema.text == A
    lines = len(machine.lines)
    assert machine.register("s", '{"a":  1}').version == 1
    assert len(machine.lines) == lines


def test_a_text_that_is_stored_already_is_not_parsed_again() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.formats.parsed.clear()
    machine.register("s", A)
    assert machine.look_up("s", A) is not None
    assert machine.formats.parsed == []


def test_normalize_compares_what_means_the_same() -> None:
    machine = Machine()
    machine.register("s", '{"a":1,"b":2}')
    assert machine.register("s", '{"b":2,"a":1}').version == 2
    assert machine.register("s", '{"b":2,"a":1}', normalize=True).version == 1
    machine.set_config("t", normalize=True)
    assert machine.register("t", '{"b":2,"a":1}').schema.text == '{"a":1,"b":2}'


def test_contexts_have_their_own_ids_and_are_known_afterwards() -> None:
    machine = Machine()
    assert machine.register("s", A).id == machine.register(":.x:s", B).id == 1
    assert machine.store.all_contexts() == [".", ".x"]
    match = machine.look_up("s", B)
    assert match is not None
    assert match.subject == ":.x:s"


def test_a_deleted_schema_comes_back_with_its_id_under_a_new_version() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.delete("s")
    again = machine.register("s", A)
    assert (again.id, again.version) == (1, 2)
    assert [version.version for version in machine.store.versions("s", deleted=True)] == [2]


def test_the_id_of_a_schema_deleted_for_good_is_never_given_again_not_even_after_compaction() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.register("s", B)
    machine.delete("s")
    machine.delete("s", permanent=True)
    assert machine.register("s", C).id == 3
    machine.delete("s")
    machine.delete("s", permanent=True)
    later = machine.compacted()
    assert not later.store.subjects
    assert later.register("t", A).id == 4


def test_clients_imports_and_overwritten_versions_do_not_free_an_id() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.register("s", B)
    machine.delete("s")
    machine.delete("s", permanent=True)
    with refused(42208):
        machine.set_config(":.__oncelog:last-ids", compatibilityLevel="FULL")
    machine.run(import_records(machine.store, list(exported(Machine().store))))
    assert machine.compacted().register("t", C).id == 3

    machine.set_mode(None, "IMPORT", force=True)
    machine.register("u", A, id=9, version=1)
    machine.register("u", B, id=8, version=1)
    machine.set_mode(None, "READWRITE")
    assert machine.compacted().register("v", '{"v":1}').id == 10


def test_a_schema_that_an_import_gave_two_ids_is_found_by_its_guid_until_both_are_gone() -> None:
    machine = Machine()
    machine.set_mode(None, "IMPORT")
    kept = machine.register("s", A, id=5, version=1)
    machine.append(TopicRecord(Key(KeyType.SCHEMA, "t", 1), replace(kept, subject="t", id=7)))
    machine.delete("t")
    machine.delete("t", permanent=True)
    assert machine.store.id_of(kept.guid, ".") == 5
    machine.set_mode(None, "READWRITE")
    assert machine.register("u", A).id == 5


def test_of_two_records_with_one_id_the_first_counts_for_everybody() -> None:
    machine = Machine()
    first = machine.register("s", A)
    second = Version("t", 1, first.id, Schema(B), first.guid)
    assert not machine.append(TopicRecord(Key(KeyType.SCHEMA, "t", 1), second))
    assert machine.store.by_id(1, ".") == first
    assert machine.register("t", B).id == 2


def test_an_incompatible_schema_is_refused_unless_the_level_is_none() -> None:
    machine = Machine()
    assert machine.register("s", '{"incompatible":0}').version == 1
    with refused(40901, "details: [it says so]"):
        machine.register("s", '{"incompatible":1}')
    machine.set_config("s", compatibilityLevel="NONE")
    assert machine.register("s", '{"incompatible":1}').version == 2


def test_a_compatibility_group_is_compared_within_itself() -> None:
    machine = Machine()
    machine.set_config("s", compatibilityGroup="major")
    for major in ("1", "2"):
        schema = Schema(f'{{"incompatible":{major}}}', metadata={"properties": {"major": major}})
        assert machine.register("s", "", schema=schema).version == int(major)
    with refused(40901):
        machine.register("s", "", schema=Schema('{"incompatible":3}', metadata={"properties": {"major": "1"}}))


def test_the_config_adds_metadata_and_rules() -> None:
    machine = Machine()
    machine.set_config(
        "s",
        defaultMetadata={"properties": {"owner": "nobody", "team": "a"}},
        overrideMetadata={"properties": {"zone": "eu"}},
        defaultRuleSet={"domainRules": [{"name": "r", "type": "CEL"}]},
    )
    version = machine.register("s", "", schema=Schema(A, metadata={"properties": {"owner": "me"}}))
    assert version.schema.metadata == {"properties": {"owner": "me", "team": "a", "zone": "eu"}}
    assert version.schema.rule_set == {"domainRules": [{"name": "r", "type": "CEL"}]}
    # A client that knows nothing of it finds the schema all the same.
    assert machine.look_up("s", A) == machine.store.version("s", 1)


def test_a_request_for_a_version_sets_it_in_the_metadata() -> None:
    machine = Machine()
    version = machine.register("s", A, version=1)
    assert version.schema.metadata == {"properties": {"confluent:version": "1"}}
    assert machine.look_up("s", A) == machine.store.version("s", 1)
    with refused(42201, "Version is not one more than previous version"):
        machine.register("s", B, version=5)


@pytest.mark.parametrize(("mode", "fields"), [("READONLY", {}), ("READWRITE", {"id": 7}), ("IMPORT", {})])
def test_modes_refuse_what_they_do_not_allow(mode: str, fields: dict[str, object]) -> None:
    machine = Machine()
    machine.set_mode("s", mode)
    with refused(42205):
        machine.register("s", A, **fields)


def test_an_import_keeps_ids_and_versions_and_never_overwrites_an_id() -> None:
    machine = Machine()
    machine.set_mode("s", "IMPORT")
    version = machine.register("s", A, id=100, version=5)
    assert (version.id, version.version) == (100, 5)
    with refused(42205, "Overwrite new schema with id 100"):
        machine.register("s", B, id=100, version=6)
    machine.set_mode("s", "READWRITE", force=True)
    assert machine.register("s", B).id == 101


def test_references_name_versions_of_the_same_context() -> None:
    machine = Machine()
    machine.register(":.x:a", A)
    version = machine.register(":.x:b", B, Reference("a", "a", 1))
    assert [referrer.subject for referrer in machine.store.referrers(":.x:a", 1, deleted=False)] == [version.subject]
    with refused(42201, "No schema reference"):
        machine.register("b", B, Reference("a", "a", 1))


def test_references_to_the_latest_version_are_those_to_its_number() -> None:
    machine = Machine()
    machine.register("a", A)
    version = machine.register("b", B, Reference("a", "a", 1))
    assert machine.register("b", B, Reference("a", "a", -1)) == version


@pytest.mark.parametrize("subject", ["", ":.x:", "__GLOBAL", "a\nb", ":*:a", ":.__GLOBAL:a", "x" * 2000])
def test_subjects_that_name_no_schema_are_refused(subject: str) -> None:
    with refused(42208):
        Machine().register(subject, A)


def test_what_is_no_schema_is_refused() -> None:
    machine = Machine()
    with refused(42201):
        machine.register("s", "{")
    with refused(42201, "Empty schema"):
        machine.register("s", " ")


def test_an_empty_text_means_the_latest_schema_with_other_metadata() -> None:
    machine = Machine()
    machine.register("s", A)
    version = machine.register("s", "", schema=Schema("", metadata={"properties": {"k": "v"}}))
    assert (version.version, version.schema.text) == (2, A)
    assert version.id == 2


def test_another_instance_that_reads_the_topic_has_the_same_registry() -> None:
    machine = Machine()
    for subject, text in (("s", A), ("s", B), (":.x:s", C)):
        machine.register(subject, text)
    machine.delete_version("s", 1)
    machine.set_config("s", compatibilityLevel="FULL")
    for other in (Machine(machine.lines), machine.compacted()):
        assert snapshot(other.store) == snapshot(machine.store)


def snapshot(store: Store) -> object:
    return store.subjects, store.contexts, store.configs, store.modes, store.next_id("."), store.next_id(".x")
