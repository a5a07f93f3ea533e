"""Deletion, config and mode."""

from __future__ import annotations

import pytest

from oncelog.registry import changes
from oncelog.schemas.schema import Reference
from tests.unit.registry.machine import Machine
from tests.unit.registry.test_registration import A, B, refused


def test_a_soft_deleted_version_keeps_its_id_and_its_number() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.register("s", B)
    assert machine.delete_version("s", -1) == 2
    assert machine.store.version("s", 2) is None
    assert machine.store.version("s", -1) == machine.store.version("s", 1)
    assert machine.store.by_id(2, ".") is not None
    with refused(40406):
        machine.delete_version("s", 2)
    assert machine.delete_version("s", 2, permanent=True) == 2
    assert machine.store.by_id(2, ".") is None


def test_nothing_is_deleted_for_good_that_was_not_deleted_before() -> None:
    machine = Machine()
    machine.register("s", A)
    with refused(40407):
        machine.delete_version("s", 1, permanent=True)
    with refused(40405):
        machine.delete("s", permanent=True)


def test_a_subject_is_deleted_first_softly_and_then_for_good_with_its_settings() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.register("s", B)
    machine.set_config("s", compatibilityLevel="FULL")
    assert machine.delete("s") == [1, 2]
    with refused(40404):
        machine.delete("s")
    assert machine.delete("s", permanent=True) == [1, 2]
    assert machine.store.configs == {}
    with refused(40401):
        machine.delete("s")


def test_what_others_refer_to_stays() -> None:
    machine = Machine()
    machine.register("a", A)
    machine.register("b", B, Reference("a", "a", 1))
    with refused(42206):
        machine.delete("a")
    with refused(42206, "{magic=1,keytype=SCHEMA,subject=a,version=1}"):
        machine.delete_version("a", 1)
    machine.delete("b")
    machine.delete("a")
    with refused(42206):
        machine.delete("a", permanent=True)
    machine.delete("b", permanent=True)
    machine.delete("a", permanent=True)


@pytest.mark.parametrize(("number", "code"), [(2, 40402), (1, None)])
def test_a_missing_version_is_told_apart_from_a_missing_subject(number: int, code: int | None) -> None:
    machine = Machine()
    machine.register("s", A)
    with refused(40401):
        machine.delete_version("t", 1)
    if code is not None:
        with refused(code):
            machine.delete_version("s", number)


def test_read_only_subjects_are_not_deleted() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.set_mode(None, "READONLY")
    with refused(42205):
        machine.delete("s")
    with refused(42205):
        machine.set_config("s", compatibilityLevel="NONE")


def test_a_config_changes_by_the_fields_that_are_sent() -> None:
    machine = Machine()
    assert machine.set_config(None, compatibilityLevel="FULL", normalize=True)["normalize"] is True
    assert machine.set_config(None, normalize=None) == {"compatibilityLevel": "FULL"}
    with refused(42203):
        machine.set_config(None, compatibilityLevel="SOMEHOW")


def test_the_config_of_a_subject_is_that_of_its_context_and_of_all_contexts() -> None:
    machine = Machine()
    store = machine.store
    levels = lambda: [store.config_in_scope(name)["compatibilityLevel"] for name in ("s", ":.x:s")]  # noqa: E731
    assert levels() == ["BACKWARD", "BACKWARD"]
    machine.set_config(":.__GLOBAL:", compatibilityLevel="NONE")
    assert levels() == ["NONE", "NONE"]
    machine.set_config(None, compatibilityLevel="FULL")
    machine.set_config(":.x:", compatibilityLevel="FORWARD")
    assert levels() == ["FULL", "FORWARD"]
    assert machine.run(changes.delete_config(store, ":.x:"))["compatibilityLevel"] == "FORWARD"
    assert levels() == ["FULL", "NONE"]
    with refused(40401):
        machine.run(changes.delete_config(store, "s"))


def test_an_import_begins_without_schemas_unless_forced() -> None:
    machine = Machine()
    machine.register("s", A)
    with refused(42205, "existing subjects"):
        machine.set_mode(None, "IMPORT")
    machine.set_mode(None, "IMPORT", force=True)
    assert machine.store.mode_in_scope("s") == "IMPORT"
    with refused(42204):
        machine.set_mode("s", "SOMEHOW")
    machine.set_mode("s", None)


def test_an_import_clears_what_was_deleted_softly() -> None:
    machine = Machine()
    machine.register("s", A)
    machine.delete("s")
    machine.set_mode("s", "IMPORT")
    assert machine.store.versions("s", deleted=True) == []
    assert machine.store.next_id(".") == 2


def test_the_modes_of_a_context_go_together() -> None:
    machine = Machine()
    machine.set_mode(":.x:s", "READONLY")
    machine.set_mode("s", "READONLY")
    assert machine.run(changes.delete_mode(machine.store, ":.x:", recursive=True)) is None
    assert machine.store.modes == {"s": "READONLY"}
    with refused(40401):
        machine.run(changes.delete_mode(machine.store, "t", recursive=False))


def test_a_context_is_deleted_when_it_is_empty() -> None:
    machine = Machine()
    machine.register(":.x:s", A)
    with refused(42211):
        machine.run(changes.delete_context(machine.store, ":.x:"))
    machine.delete(":.x:s")
    machine.delete(":.x:s", permanent=True)
    machine.run(changes.delete_context(machine.store, ":.x:"))
    assert machine.store.all_contexts() == ["."]


def test_metadata_rules_and_settings_count_as_held() -> None:
    machine = Machine()
    metadata = {"properties": {f"property-{number}": "x" for number in range(1000)}}
    machine.set_config("s", defaultMetadata=metadata)
    machine.set_mode("t", "READONLY")
    config_bytes = machine.store.held_bytes
    assert config_bytes > 300_000
    machine.register("s", A)
    assert machine.store.held_bytes > 2 * 300_000
    machine.delete("s")
    machine.delete("s", permanent=True)
    machine.set_mode("t", None)
    assert machine.store.held_bytes == 0
