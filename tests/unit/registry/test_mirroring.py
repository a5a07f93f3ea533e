"""Copies of a registry by a mirror: their names, and conflicts, which are reported instead of overwritten."""

from __future__ import annotations

from oncelog.registry.mirroring import Conflict, Naming, copies, missing
from oncelog.schemas.schema import Reference
from tests.unit.registry.machine import Machine
from tests.unit.registry.test_registration import A, B

PREFIX = Naming("a", ("a", "c"))
SAME = Naming()


def copy(source: Machine, target: Machine, naming: Naming = SAME, *, with_configs: bool = True) -> list[Conflict]:
    records = list(copies(source.store, naming, with_configs=with_configs))
    new, conflicts = missing(target.store, records)
    for record in new:
        target.append(record)
    assert missing(target.store, records) == ([], conflicts)
    return conflicts


def test_names_ids_and_deletions_stay() -> None:
    source, target = Machine(), Machine()
    for text in (A, B):
        source.register("s", text)
    source.delete_version("s", 1)
    source.register(":.x:t", B)
    assert copy(source, target) == []
    assert target.store.subjects == source.store.subjects
    assert target.store.contexts == {".x"}
    assert target.store.mode(":.x:") == "IMPORT"
    assert target.store.mode_in_scope("s") == "READWRITE"
    assert target.register("other", '"string"').id == 3


def test_a_deletion_at_the_target_stays() -> None:
    source, target = Machine(), Machine()
    for text in (A, B):
        source.register("s", text)
    copy(source, target)
    target.delete_version("s", 1)
    source.delete_version("s", 2)
    assert copy(source, target) == []
    versions = [target.store.version("s", number, deleted=True) for number in (1, 2)]
    assert [version is not None and version.deleted for version in versions] == [True, True]


def test_with_prefixes_two_sources_keep_the_same_ids() -> None:
    sources, target = {"a": Machine(), "b": Machine()}, Machine()
    for alias, text in (("a", A), ("b", B)):
        sources[alias].register("orders-value", text)
        assert copy(sources[alias], target, Naming(alias, (alias,))) == []
    for alias, text in (("a", A), ("b", B)):
        # As a deserializer of the topic a.orders asks, and one that names the context alone.
        for subject in (f"{alias}.orders-value", f":.{alias}:"):
            version = target.store.find_id(1, subject)
            assert version is not None
            assert version.schema.text == text
        assert target.store.mode_in_scope(f":.{alias}:{alias}.orders-value") == "IMPORT"


def test_references_follow_the_new_names() -> None:
    source, target = Machine(), Machine()
    source.register("item", A)
    source.register(":.x:item", A)
    source.register("order", B, Reference("Item", "item", 1), Reference("Other", ":.x:item", 1))
    before = source.store.version("order", 1)
    copy(source, target, PREFIX)
    version = target.store.version(":.a:a.order", 1)
    assert version is not None
    assert before is not None
    assert version.guid == before.guid
    assert [used.subject for used in version.schema.references] == ["a.item", ":.a.x:a.item"]
    assert [held.subject for held in target.store.referrers(":.a:a.item", 1, deleted=True)] == [":.a:a.order"]
    assert [held.subject for held in target.store.referrers(":.a.x:a.item", 1, deleted=True)] == [":.a:a.order"]


def test_an_id_or_a_version_of_another_schema_is_a_conflict_and_all_else_is_copied() -> None:
    source, target = Machine(), Machine()
    target.register("s", B)
    target.register("t", '"long"')
    source.register("s", A)
    source.register("t", '"int"')
    source.register("order", '"double"', Reference("S", "s", 1))
    source.register("free", '"string"')
    conflicts = {(conflict.subject, conflict.version): conflict.reason for conflict in copy(source, target)}
    assert list(conflicts) == [("s", 1), ("t", 1), ("order", 1)]
    assert "another schema there, of id 1" in conflicts["s", 1]
    assert conflicts["order", 1] == "it refers to version 1 of s, which is not copied"
    held = target.store.version("s", 1)
    assert held is not None
    assert held.schema.text == B
    assert target.store.version("free", 1) == source.store.version("free", 1)
    target.delete("s")
    target.delete("s", permanent=True)
    target.delete("t")
    target.delete("t", permanent=True)
    assert copy(source, target) == []


def test_the_same_id_of_another_schema_is_named() -> None:
    source, target = Machine(), Machine()
    target.register("mine", A)
    source.register("theirs", B)
    (conflict,) = copy(source, target)
    assert conflict.reason == "the id 1 belongs to another schema at the target, version 1 of mine"


def test_the_level_for_all_and_modes_are_the_targets_own() -> None:
    source, target = Machine(), Machine()
    source.register("s", A)
    source.set_config("s", compatibilityLevel="FULL")
    source.set_config(None, compatibilityLevel="NONE")
    source.set_mode(None, "READONLY")
    copy(source, target, with_configs=False)
    assert target.store.configs == {}
    copy(source, target)
    assert target.store.configs == {"s": {"subject": "s", "compatibilityLevel": "FULL"}}
    assert not target.store.modes
    renamed = Machine()
    copy(source, renamed, PREFIX)
    assert renamed.store.config(":.a:a.s") == {"subject": ":.a:a.s", "compatibilityLevel": "FULL"}


def test_two_clusters_that_mirror_each_other_do_not_copy_copies_for_ever() -> None:
    a, c = Machine(), Machine()
    a.register("s", A)
    c.register("s", B)
    for named_targets in (True, False):
        for _ in range(4):
            copy(a, c, Naming("a", ("a", "c" if named_targets else "")))
            copy(c, a, Naming("c", ("c", "a" if named_targets else "")))
        if named_targets:
            assert set(c.store.subjects) == {"s", ":.a:a.s"}
    assert len(a.store.subjects) <= 3
    assert len(c.store.subjects) <= 3


def test_ids_are_not_given_while_an_import_is_incomplete() -> None:
    source, target = Machine(), Machine()
    for number in range(5):
        source.register(f"s{number}", f'{{"type": "fixed", "name": "F", "size": {number}}}')
    records = list(copies(source.store, SAME, with_configs=True))
    new, _ = missing(target.store, records)
    for record in new[:3]:
        target.append(record)
    assert target.register("own", '"string"').id == 6
    assert copy(source, target) == []
