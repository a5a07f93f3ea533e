"""Registers schemas, looks them up, and tests their compatibility: programs over the store.

A schema is the same as another one of its subject if the GUIDs of their canonical forms are equal, or if they differ in
nothing but the version that metadata carries and in references to the latest version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from oncelog.registry import errors
from oncelog.registry.formats import ParsedSchema
from oncelog.registry.guids import guid_of
from oncelog.registry.metadata import (
    Document,
    merge_metadata,
    merge_rule_sets,
    version_in,
    with_version,
    without_version,
)
from oncelog.registry.steps import Append, Compare, Current, Parse, Program
from oncelog.registry.store import Store
from oncelog.registry.subjects import DEFAULT_CONTEXT, Subject, context_of, is_valid, parse_subject, within
from oncelog.registry.topic_records import Key, KeyType, TopicRecord, Version
from oncelog.schemas.schema import Schema

IMPORT_MODES: Final = ("IMPORT", "FORWARD")
READ_ONLY_MODES: Final = ("READONLY", "READONLY_OVERRIDE")
MAX_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Request:
    """A schema that a client sends. ``version`` 0: not given; −1: the latest. ``id`` −1: not given."""

    subject: str
    schema: Schema
    version: int = 0
    id: int = -1
    normalize: bool = False


def register(store: Store, request: Request, *, force: bool = False) -> Program[Version]:
    """The version of a schema under its subject, new or the one that has it. Raises RegistryError."""
    subject = request.subject
    if not is_valid(subject, names_schemas=True):
        raise errors.invalid_subject(subject)
    existing = yield from _known_already(store, request)
    if existing is not None:
        return existing
    yield Current()
    _check_mode(store, request)
    importing = store.mode_in_scope(subject) in IMPORT_MODES
    present = store.versions(subject)
    number = max(store.subjects.get(subject, {}), default=0) + 1
    schema = request.schema if importing else _populated(store, request, present, number)
    parsed, schema = yield from _canonical(store, replace(request, schema=schema), importing=importing)
    wanted_id = request.id
    shared_id = store.id_of(guid_of(schema), context_of(subject))
    if shared_id is not None and wanted_id in (-1, shared_id):
        same = [version for version in present if version.id == shared_id]
        if request.version == 0 and same:
            return same[-1]
        wanted_id = shared_id
    if request.version == 0:
        for version in reversed(present):
            if wanted_id in (-1, version.id) and is_same(store, subject, schema, version):
                return version
    if not importing and not force:
        yield from _require_compatible(store, subject, schema, parsed, present)
    if request.version > 0:
        if number != request.version and not importing:
            raise errors.invalid_schema("Version is not one more than previous version")
        number = request.version
    version = _new_version(store, subject, number, wanted_id, schema)
    yield Append(tuple(_records(store, version)))
    appended = store.version(subject, number)
    if appended is None or appended.guid != version.guid:
        raise errors.RegistryError(
            errors.Code.STORE_FAILED,
            f"version {number} of {subject} was replaced while it was registered: another registry writes to the topic",
        )
    return appended


def look_up(
    store: Store, request: Request, may_read: Callable[[str], bool] = lambda _: True, *, deleted: bool = False
) -> Program[Version | None]:
    """The version of a schema under its subject, or under the subject of this name in another context."""
    match = yield from _look_up_here(store, request, deleted)
    scope = parse_subject(request.subject)
    if match is not None or scope.context != DEFAULT_CONTEXT:
        return match
    for context in sorted(store.contexts):
        subject = Subject(context, scope.name).qualified
        if may_read(subject) and store.versions(subject, deleted=deleted):
            try:
                match = yield from _look_up_here(store, replace(request, subject=subject), deleted)
            except errors.RegistryError:
                continue
            if match is not None:
                return match
    return None


def test_compatibility(store: Store, request: Request, earlier: Sequence[Version]) -> Program[list[str]]:
    """Reasons against registering the schema after ``earlier`` versions. Raises RegistryError."""
    if not request.schema.text.strip():
        raise errors.empty_schema()
    parsed, schema = yield from _canonical(store, request)
    return (yield from _incompatibilities(store, request.subject, schema, parsed, earlier))


def is_same(store: Store, subject: str, schema: Schema, version: Version) -> bool:
    """True if ``schema`` and a registered version mean the same."""
    other = version.schema
    return (
        schema.type is other.type
        and schema.text == other.text
        and without_version(schema.metadata) == without_version(other.metadata)
        and (version_in(schema.metadata) or version_in(other.metadata)) == (version_in(other.metadata))
        and schema.rule_set == other.rule_set
        and _resolved(store, subject, schema) == _resolved(store, version.subject, other)
    )


def _known_already(store: Store, request: Request) -> Program[Version | None]:
    """The version that has the schema, without a look at the topic: most registrations repeat an earlier one."""
    config = store.config_in_scope(request.subject)
    if request.version > 0 or not request.schema.text.strip() or _has_defaults(config):
        return None
    match = yield from _match(store, request, deleted=False, latest_only=request.version == -1)
    return match if match is not None and request.id in (-1, match.id) else None


def _look_up_here(store: Store, request: Request, deleted: bool) -> Program[Version | None]:
    if not request.schema.text.strip():
        return None
    match = yield from _match(store, request, deleted=deleted)
    latest = store.version(request.subject, -1)
    if match is not None or latest is None:
        return match
    # A client that sends no metadata means the schema with what registration would add.
    schema = _with_metadata(store.config_in_scope(request.subject), request, latest, None)
    if schema == request.schema:
        return None
    return (yield from _match(store, replace(request, schema=schema), deleted=deleted))


def _match(store: Store, request: Request, *, deleted: bool, latest_only: bool = False) -> Program[Version | None]:
    subject = request.subject
    present = store.versions(subject, deleted=deleted)
    if not request.normalize and not latest_only:
        # A text that is canonical already needs no parsing.
        exact = _with_guid(present, guid_of(request.schema))
        if exact is not None:
            return exact
    _, schema = yield from _canonical(store, request)
    if latest_only:
        present = present[-1:]
    exact = _with_guid(present, guid_of(schema))
    if exact is not None:
        return exact
    return next((version for version in reversed(present) if is_same(store, subject, schema, version)), None)


def _with_guid(versions: Sequence[Version], guid: UUID) -> Version | None:
    return next((version for version in reversed(versions) if version.guid == guid), None)


def _canonical(store: Store, request: Request, *, importing: bool = False) -> Program[tuple[ParsedSchema, Schema]]:
    """The schema parsed, and with its canonical text. Raises RegistryError."""
    parsed: ParsedSchema = yield Parse(request.subject, request.schema)
    normalize = request.normalize or bool(store.config_in_scope(request.subject).get("normalize"))
    text = parsed.normalized if normalize and not importing else parsed.canonical
    return parsed, replace(request.schema, text=text)


def _check_mode(store: Store, request: Request) -> None:
    subject, mode = request.subject, store.mode_in_scope(request.subject)
    place = f"Subject {subject} in context {_context_text(subject)}"
    if mode in READ_ONLY_MODES:
        raise errors.not_permitted(f"{place} is in read-only mode")
    if request.id >= 0 and mode not in IMPORT_MODES:
        raise errors.not_permitted(f"{place} is not in import mode")
    if request.id < 0 and mode != "READWRITE":
        raise errors.not_permitted(f"{place} is not in read-write mode")


def require_writable(store: Store, subject: str | None) -> None:
    """Raises RegistryError in a read-only mode."""
    if store.mode_in_scope(subject) in READ_ONLY_MODES:
        raise errors.not_permitted(f"Subject {subject} in context {_context_text(subject or '')} is in read-only mode")


def _context_text(subject: str) -> str:
    context = context_of(subject)
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def _populated(store: Store, request: Request, present: Sequence[Version], number: int) -> Schema:
    """The schema with what it leaves out: its text from the latest version, metadata and rules from there and from the
    config."""
    schema, latest = request.schema, present[-1] if present else None
    if not schema.text.strip():
        if latest is None:
            raise errors.empty_schema()
        previous = latest.schema
        schema = replace(schema, text=previous.text, type=previous.type, references=previous.references)
    config = store.config_in_scope(request.subject)
    return _with_metadata(config, replace(request, schema=schema), latest, number)


def _with_metadata(config: Document, request: Request, latest: Version | None, number: int | None) -> Schema:
    schema = request.schema
    metadata, rule_set = schema.metadata, schema.rule_set
    if latest is not None:
        metadata = latest.schema.metadata if metadata is None else metadata
        rule_set = latest.schema.rule_set if rule_set is None else rule_set
    metadata = merge_metadata(merge_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rule_set = merge_rule_sets(merge_rule_sets(config.get("defaultRuleSet"), rule_set), config.get("overrideRuleSet"))
    if number is not None and (request.version != 0 or version_in(metadata) is not None):
        metadata = with_version(metadata, number)
    return replace(schema, metadata=metadata, rule_set=rule_set)


def _require_compatible(
    store: Store, subject: str, schema: Schema, parsed: ParsedSchema, earlier: Sequence[Version]
) -> Program[None]:
    reasons = yield from _incompatibilities(store, subject, schema, parsed, earlier)
    if reasons:
        raise errors.incompatible(subject, reasons)


def _incompatibilities(
    store: Store, subject: str, schema: Schema, parsed: ParsedSchema, earlier: Sequence[Version]
) -> Program[list[str]]:
    config = store.config_in_scope(subject)
    level, group = config["compatibilityLevel"], config.get("compatibilityGroup")
    if group is not None:
        earlier = [version for version in earlier if _property(version.schema, group) == _property(schema, group)]
    if not earlier or level == "NONE":
        return []
    if not level.endswith("_TRANSITIVE"):
        earlier = earlier[-1:]
    reasons: list[str] = yield Compare(parsed, tuple(reversed(earlier)), level)
    return reasons


def _property(schema: Schema, name: str) -> str | None:
    properties: dict[str, str] = (schema.metadata or {}).get("properties") or {}  # type: ignore[assignment]  # checked
    return properties.get(name)


def _new_version(store: Store, subject: str, number: int, schema_id: int, schema: Schema) -> Version:
    context = context_of(subject)
    if schema_id < 0:
        schema_id = store.next_id(context)
    holder = store.by_id(schema_id, context)
    if holder is not None and guid_of(schema) != holder.guid:
        raise errors.not_permitted(
            f"Overwrite new schema with id {schema_id} in context {_context_text(subject)} is not permitted."
        )
    if not 0 < schema_id <= MAX_ID:
        raise errors.not_permitted(f"the id {schema_id} is not between 1 and {MAX_ID}")
    return Version(subject, number, schema_id, schema, guid_of(schema))


def _records(store: Store, version: Version) -> Iterable[TopicRecord]:
    context = context_of(version.subject)
    if context != DEFAULT_CONTEXT and context not in store.contexts:
        yield TopicRecord(Key(KeyType.CONTEXT, context), {"tenant": "default", "context": context})
    replaced = store.version(version.subject, version.version, deleted=True)
    if replaced is not None and replaced.id != version.id:
        yield store.marker()
    for earlier in store.versions(version.subject, deleted=True):
        # The schema was deleted and comes back under a new version: the old one goes, unless others refer to it.
        is_replaced = earlier.deleted and earlier.id == version.id and earlier.version < version.version
        if is_replaced and not any(store.referrers(version.subject, earlier.version, deleted=True)):
            yield TopicRecord(Key(KeyType.SCHEMA, version.subject, earlier.version), None)
    yield TopicRecord(Key(KeyType.SCHEMA, version.subject, version.version), version)


def _resolved(store: Store, subject: str, schema: Schema) -> list[tuple[str, str, int]]:
    """References with the latest version in place of −1."""
    resolved = []
    for reference in schema.references:
        target, number = within(subject, reference.subject), reference.version
        latest = store.version(target, -1) if number == -1 else None
        resolved.append((reference.name, target, number if latest is None else latest.version))
    return resolved


def _has_defaults(config: Document) -> bool:
    names = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
    return any(config.get(name) is not None for name in names)
