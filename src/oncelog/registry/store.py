"""The registry's memory: the result of applying the records of `_schemas` in order.

1. A record of a schema whose id names another text in its context is ignored. Of two such records the first counts, for
   every instance and for Confluent's registry: an id never changes its schema.
2. An id is never given again: ``next_id`` is above every id that was in the topic, also of schemas that were deleted
   and that compaction has removed (``marker``).
3. A soft-deleted version keeps its number and its id. A tombstone removes both, and what refers to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from oncelog.registry.metadata import InvalidMetadata, check_metadata, check_rule_set
from oncelog.registry.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    Subject,
    context_of,
    context_prefix,
    matches,
    parse_subject,
    within,
)
from oncelog.registry.topic_records import Document, Key, KeyType, TopicRecord, Value, Version

T = TypeVar("T")
LEVELS: Final = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
LAST_IDS: Final = Key(KeyType.CONFIG, ":.__oncelog:last-ids")
"""The key of the last ids: the config of a subject that no client has, since Confluent's registry knows its own types
alone."""
_VERSION_BYTES: Final = 1_500
"""An upper estimate of the memory of a version without its text."""
_SETTING_BYTES: Final = 1_500
_DOCUMENT_SHARE: Final = 20
"""An upper estimate of the memory that a document takes for each character of its JSON."""
Place = tuple[str, int]
"""A subject and a version."""


class Store:
    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        """Versions in ascending order, soft-deleted ones included."""
        self.contexts: set[str] = set()
        """Contexts beside the default one."""
        self.configs: dict[str | None, Document] = {}
        self.modes: dict[str | None, str] = {}
        self.held_bytes = 0
        self.generation = 0
        """Counts records that may change what an earlier text or reference means."""
        self._places: dict[str, dict[int, dict[Place, None]]] = {}
        self._ids: dict[str, dict[UUID, dict[int, None]]] = {}
        """Ids by context and GUID: one, but imports may give a schema several."""
        self._referrers: dict[Place, dict[Place, None]] = {}
        self._last_ids: dict[str, int] = {}

    def clear(self) -> None:
        """Forget everything: the topic is read again from its start."""
        generation = self.generation
        self.__init__()  # type: ignore[misc]  # as new
        self.generation = generation + 1

    def apply(self, record: TopicRecord) -> bool:
        """Apply a record. False if it is ignored: its id names another schema."""
        key, value = record
        if key.type is KeyType.SCHEMA:
            return self._apply_schema(key, value)
        if key == LAST_IDS:
            self._last_ids = _later(self._last_ids, {} if value is None else _fields(value).get("lastIds"))
        elif key.type is KeyType.CONFIG:
            self._put(self.configs, key.subject, None if value is None else _valid_config(_fields(value)))
        elif key.type is KeyType.MODE:
            mode = None if value is None else str(_fields(value).get("mode", DEFAULT_MODE))
            self._put(self.modes, key.subject, mode)
        elif key.type is KeyType.CONTEXT and key.subject:
            (self.contexts.discard if value is None else self.contexts.add)(key.subject)
        elif key.type is KeyType.DELETE_SUBJECT and value is not None and key.subject is not None:
            self._delete_subject(key.subject, _number(_fields(value).get("version")))
        elif key.type is KeyType.CLEAR_SUBJECT and value is not None and key.subject is not None:
            self._clear(key.subject)
        return True

    def marker(self, other: Value | None = None) -> TopicRecord:
        """A record that says which ids were given, here and by ``other``, such a record's value: compaction forgets
        deleted schemas, but not their ids."""
        last_ids = self._last_ids if other is None else _later(self._last_ids, _fields(other).get("lastIds"))
        return TopicRecord(LAST_IDS, {"subject": LAST_IDS.subject, "lastIds": dict(last_ids)})

    def _put(self, settings: dict[str | None, T], key: str | None, value: T | None) -> None:
        before = settings.pop(key, None)
        self.held_bytes -= 0 if before is None else _setting_size(before)
        if value is not None:
            settings[key] = value
            self.held_bytes += _setting_size(value)

    def _apply_schema(self, key: Key, value: Value | None) -> bool:
        subject, number = key.subject or "", key.version
        if value is None:
            self._remove(subject, number)
            return True
        if not isinstance(value, Version):
            return False
        context = context_of(subject)
        self._last_ids[context] = max(value.id, self._last_ids.get(context, 0))
        holder = self.by_id(value.id, context)
        if holder is not None and holder.schema.text != value.schema.text:
            return False
        if number in self.subjects.get(subject, {}):
            self._remove(subject, number)
        if context != DEFAULT_CONTEXT:
            self.contexts.add(context)
        versions = self.subjects.setdefault(subject, {})
        versions[number] = value
        if number < max(versions):
            self.subjects[subject] = dict(sorted(versions.items()))
        self._places.setdefault(context, {}).setdefault(value.id, {})[subject, number] = None
        self._ids.setdefault(context, {}).setdefault(value.guid, {})[value.id] = None
        for target in referred_places(value):
            self._referrers.setdefault(target, {})[subject, number] = None
        self.held_bytes += _size(value)
        return True

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        value = versions.pop(number, None)
        if value is None:
            return
        self.generation += 1
        self.held_bytes -= _size(value)
        if not versions:
            del self.subjects[subject]
        context = context_of(subject)
        places = self._places[context][value.id]
        del places[subject, number]
        if not places:
            del self._places[context][value.id]
            ids = self._ids[context].get(value.guid, {})
            ids.pop(value.id, None)
            if not ids:
                self._ids[context].pop(value.guid, None)
        for target in referred_places(value):
            referrers = self._referrers.get(target, {})
            referrers.pop((subject, number), None)
            if not referrers:
                self._referrers.pop(target, None)

    def _delete_subject(self, subject: str, up_to: int) -> None:
        versions = self.subjects.get(subject, {})
        for number, value in versions.items():
            if number <= up_to and not value.deleted:
                versions[number] = replace(value, deleted=True)

    def _clear(self, pattern: str) -> None:
        for subject in [subject for subject in self.subjects if matches(pattern, subject)]:
            for number in [number for number, value in self.subjects[subject].items() if value.deleted]:
                self._remove(subject, number)

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        versions = self.subjects.get(subject, {}).values()
        return [version for version in versions if deleted or not version.deleted]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """A version; −1 is the latest that is not deleted."""
        if number == -1:
            return next(reversed(self.versions(subject)), None)
        version = self.subjects.get(subject, {}).get(number)
        return None if version is None or (version.deleted and not deleted) else version

    def has_subjects(self, pattern: str, *, deleted: bool) -> bool:
        """True if a subject that ``pattern`` names, itself or as its context, has a version."""
        if parse_subject(pattern).name:
            return bool(self.versions(pattern, deleted=deleted))
        return any(matches(pattern, subject) and self.versions(subject, deleted=deleted) for subject in self.subjects)

    def next_id(self, context: str) -> int:
        return self._last_ids.get(context, 0) + 1

    def last_id(self, context: str) -> int:
        return self._last_ids.get(context, 1)

    def by_id(self, schema_id: int, context: str) -> Version | None:
        places = self._places.get(context, {}).get(schema_id)
        return None if not places else self._at(next(iter(places)))

    def places(self, schema_id: int, context: str) -> list[Version]:
        return [self._at(place) for place in self._places.get(context, {}).get(schema_id, ())]

    def id_of(self, guid: UUID, context: str) -> int | None:
        ids = self._ids.get(context, {}).get(guid)
        return next(reversed(ids)) if ids else None

    def find_id(self, schema_id: int, subject: str) -> Version | None:
        """The schema of an id as a client means it who may name a subject: there, else in another context that has the
        subject, else in the default context."""
        scope = parse_subject(subject)
        if not scope.name:
            return self.by_id(schema_id, scope.context)
        if scope.context != DEFAULT_CONTEXT:
            return self._of_subject(schema_id, subject)
        candidates = (Subject(context, scope.name).qualified for context in self.all_contexts())
        held = (self._of_subject(schema_id, candidate) for candidate in candidates)
        return next((version for version in held if version is not None), self.by_id(schema_id, DEFAULT_CONTEXT))

    def _of_subject(self, schema_id: int, subject: str) -> Version | None:
        held = self.places(schema_id, context_of(subject))
        return next((version for version in reversed(held) if version.subject == subject), None)

    def all_contexts(self) -> list[str]:
        return [DEFAULT_CONTEXT, *sorted(self.contexts)]

    def referrers(self, subject: str, number: int, *, deleted: bool) -> Iterator[Version]:
        """Versions that refer to a version; with ``deleted`` soft-deleted ones, too."""
        for place in self._referrers.get((subject, number), ()):
            version = self._at(place)
            if deleted or not version.deleted:
                yield version

    def _at(self, place: Place) -> Version:
        return self.subjects[place[0]][place[1]]

    def config(self, subject: str | None) -> Document | None:
        """The config set for a subject or context; the global one has a default."""
        config = self.configs.get(subject)
        if config is None:
            is_global = subject is None or parse_subject(subject) == (GLOBAL_CONTEXT, "")
            return {"compatibilityLevel": DEFAULT_LEVEL} if is_global else None
        return {"compatibilityLevel": DEFAULT_LEVEL, **config}

    def config_in_scope(self, subject: str | None) -> Document:
        for scope in _scopes(subject):
            if scope in self.configs:
                merged = dict(self.config(scope) or {})
                if scope == subject:
                    for name in ("normalize", "validateFields", "validateRules", "compatibilityGroup"):
                        inherited = self.configs.get(None, {}).get(name)
                        if inherited is not None:
                            merged.setdefault(name, inherited)
                return merged
        return {"compatibilityLevel": DEFAULT_LEVEL}

    def mode(self, subject: str | None) -> str | None:
        is_global = subject is None or parse_subject(subject) == (GLOBAL_CONTEXT, "")
        return self.modes.get(subject, DEFAULT_MODE if is_global else None)

    def mode_in_scope(self, subject: str | None) -> str:
        return next((self.modes[scope] for scope in _scopes(subject) if scope in self.modes), DEFAULT_MODE)


def _scopes(subject: str | None) -> list[str | None]:
    """Places of the config and mode of a subject, in the order of look-up."""
    context = DEFAULT_CONTEXT if subject is None else context_of(subject)
    above = None if context == DEFAULT_CONTEXT else context_prefix(context)
    return [subject, above, context_prefix(GLOBAL_CONTEXT)]


def referred_places(version: Version) -> Iterator[Place]:
    for reference in version.schema.references:
        yield within(version.subject, reference.subject), reference.version


def _later(last_ids: dict[str, int], others: object) -> dict[str, int]:
    later = dict(last_ids)
    for context, last in others.items() if isinstance(others, dict) else ():
        later[context] = max(_number(last), later.get(context, 0))
    return later


def _valid_config(config: Document) -> Document:
    """The config without fields that this version could not use, as a newer registry may write them."""
    valid = dict(config)
    if valid.get("compatibilityLevel", DEFAULT_LEVEL) not in LEVELS:
        del valid["compatibilityLevel"]
    checks = {"Metadata": check_metadata, "RuleSet": check_rule_set}
    for name in [prefix + kind for kind in checks for prefix in ("default", "override") if prefix + kind in config]:
        try:
            if not isinstance(config[name], dict):
                raise InvalidMetadata(f"{name} has to be an object")
            checks[name.removeprefix("default").removeprefix("override")](config[name])
        except InvalidMetadata:
            del valid[name]
    return valid


def _fields(value: Value) -> Document:
    return {} if isinstance(value, Version) else {name: field for name, field in value.items() if field is not None}


def _number(value: Any) -> int:
    return value if type(value) is int else 0


def _size(version: Version) -> int:
    schema = version.schema
    documents = _document_size(schema.metadata) + _document_size(schema.rule_set)
    return _VERSION_BYTES + 2 * len(schema.text) + 400 * len(schema.references) + documents


def _setting_size(value: object) -> int:
    return _SETTING_BYTES + (_document_size(value) if isinstance(value, dict) else 0)


def _document_size(document: Document | None) -> int:
    return 0 if document is None else _DOCUMENT_SHARE * len(json.dumps(document))
