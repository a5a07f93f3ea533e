"""Deletes versions, subjects and contexts, and sets configs and modes: programs over the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from oncelog.registry import errors
from oncelog.registry.metadata import Document
from oncelog.registry.registration import require_writable
from oncelog.registry.steps import Append, Current, Program
from oncelog.registry.store import LEVELS, Store
from oncelog.registry.subjects import GLOBAL_CONTEXT, is_valid, matches, parse_subject
from oncelog.registry.topic_records import Key, KeyType, TopicRecord, Version

MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
CONFIG_FIELDS: Final = (
    "alias",
    "normalize",
    "validateFields",
    "validateRules",
    "compatibilityLevel",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)


def delete_version(store: Store, subject: str, number: int, *, permanent: bool) -> Program[int]:
    """The number of the version deleted. Raises RegistryError."""
    yield Current()
    version = store.version(subject, number, deleted=True)
    if version is None:
        if not store.has_subjects(subject, deleted=True):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)
    if version.deleted and not permanent:
        raise errors.version_soft_deleted(subject, version.version)
    require_writable(store, subject)
    if any(store.referrers(subject, version.version, deleted=permanent)):
        raise errors.reference_exists(subject, version.version)
    if permanent and not version.deleted:
        raise errors.version_not_soft_deleted(subject, version.version)
    if not permanent:
        yield Append((_soft_deleted(version),))
        return version.version
    records = [store.marker(), _tombstone(version)]
    if len(store.versions(subject, deleted=True)) == 1:
        records += _settings_tombstones(store, subject)
    yield Append(tuple(records))
    return version.version


def delete_subject(store: Store, subject: str, *, permanent: bool) -> Program[list[int]]:
    """The numbers of the versions deleted. Raises RegistryError."""
    yield Current()
    if not store.has_subjects(subject, deleted=True):
        raise errors.subject_not_found(subject)
    if not permanent and not store.has_subjects(subject, deleted=False):
        raise errors.subject_soft_deleted(subject)
    require_writable(store, subject)
    versions = store.versions(subject, deleted=permanent)
    for version in versions:
        referrers = store.referrers(subject, version.version, deleted=permanent)
        if any(referrer.subject != subject for referrer in referrers):
            raise errors.reference_exists(subject, version.version)
        if permanent and not version.deleted:
            raise errors.subject_not_soft_deleted(subject)
    numbers = [version.version for version in versions]
    if permanent:
        # Descending: a version may refer to earlier ones.
        tombstones = [_tombstone(version) for version in reversed(versions)]
        yield Append((store.marker(), *tombstones, *_settings_tombstones(store, subject)))
    else:
        last = numbers[-1]
        yield Append((TopicRecord(Key(KeyType.DELETE_SUBJECT, subject), {"subject": subject, "version": last}),))
    return numbers


def delete_context(store: Store, context: str) -> Program[None]:
    yield Current()
    scope = parse_subject(context)
    if store.has_subjects(context, deleted=True):
        raise errors.RegistryError(errors.Code.CONTEXT_NOT_EMPTY, f"The specified context '{context}' is not empty.")
    yield Append((TopicRecord(Key(KeyType.CONTEXT, scope.context), None),))


def set_config(store: Store, subject: str | None, update: Document) -> Program[Document]:
    """The config afterwards. A field that is None is removed, one that is missing stays. Raises RegistryError."""
    _check_subject(subject)
    level = update.get("compatibilityLevel")
    if level is not None and level not in LEVELS:
        raise errors.invalid_compatibility()
    yield Current()
    require_writable(store, subject)
    config = {name: value for name, value in store.configs.get(subject, {}).items() if name in CONFIG_FIELDS}
    config.update({name: update[name] for name in CONFIG_FIELDS if name in update})
    config = {name: value for name, value in config.items() if value is not None}
    value = config if subject is None else {"subject": subject, **config}
    yield Append((TopicRecord(Key(KeyType.CONFIG, subject), value),))
    return config


def delete_config(store: Store, subject: str | None) -> Program[Document]:
    """The config before. Raises RegistryError."""
    yield Current()
    config = store.config(subject)
    if config is None:
        raise errors.subject_not_found(subject or "")
    require_writable(store, subject)
    yield Append((TopicRecord(Key(KeyType.CONFIG, subject), None),))
    return config


def set_mode(store: Store, subject: str | None, mode: str | None, *, force: bool) -> Program[None]:
    """Raises RegistryError. To import needs a subject, or a context, without schemas, unless ``force``: ids of the
    import could be in use."""
    _check_subject(subject)
    if mode is not None and mode not in MODES:
        raise errors.invalid_mode()
    yield Current()
    records: list[TopicRecord] = []
    if mode == "IMPORT" and store.mode_in_scope(subject) != "IMPORT" and not force:
        records += _cleared(store, subject)
    value = None if mode is None else ({"mode": mode} if subject is None else {"subject": subject, "mode": mode})
    records.append(TopicRecord(Key(KeyType.MODE, subject), value))
    yield Append(tuple(records))


def delete_mode(store: Store, subject: str | None, *, recursive: bool) -> Program[str | None]:
    """The mode before. Raises RegistryError."""
    yield Current()
    mode = store.mode(subject)
    if mode is None and not recursive:
        raise errors.subject_not_found(subject or "")
    subjects: list[str | None] = [subject]
    if recursive and (subject is None or not parse_subject(subject).name):
        within = [other for other in store.modes if other is not None and matches(subject or "", other)]
        subjects += [other for other in within if other != subject]
    yield Append(tuple(TopicRecord(Key(KeyType.MODE, name), None) for name in subjects))
    return mode


def _check_subject(subject: str | None) -> None:
    if subject is not None and not is_valid(subject, names_schemas=False):
        raise errors.invalid_subject(subject)


def _cleared(store: Store, subject: str | None) -> Iterator[TopicRecord]:
    """Records that remove soft-deleted versions before an import. Raises RegistryError if other schemas exist."""
    # The global mode is about all subjects, in every context.
    pattern = f":{GLOBAL_CONTEXT}:" if subject is None else subject
    if store.has_subjects(pattern, deleted=False):
        raise errors.not_permitted("Cannot import since found existing subjects")
    deleted = [
        version for name in store.subjects if matches(pattern, name) for version in store.subjects[name].values()
    ]
    for version in deleted:
        if any(store.referrers(version.subject, version.version, deleted=True)):
            raise errors.reference_exists(version.subject, version.version)
    if deleted:
        yield store.marker()
    yield from map(_tombstone, deleted)
    yield TopicRecord(Key(KeyType.CLEAR_SUBJECT, pattern), {"subject": pattern})


def _soft_deleted(version: Version) -> TopicRecord:
    return TopicRecord(_tombstone(version).key, replace(version, deleted=True))


def _tombstone(version: Version) -> TopicRecord:
    return TopicRecord(Key(KeyType.SCHEMA, version.subject, version.version), None)


def _settings_tombstones(store: Store, subject: str) -> list[TopicRecord]:
    kinds = ((KeyType.MODE, store.modes), (KeyType.CONFIG, store.configs))
    return [TopicRecord(Key(kind, subject), None) for kind, settings in kinds if subject in settings]
