"""Routes that read: subjects, versions, schemas by id and GUID, config, mode, contexts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from oncelog import __version__
from oncelog.registry import errors
from oncelog.registry.http.call import Call
from oncelog.registry.http.documents import Document, schema_document, version_document
from oncelog.registry.http.permissions import DENIED, Operation
from oncelog.registry.store import Store
from oncelog.registry.subjects import ALL_CONTEXTS, DEFAULT_CONTEXT, context_of, context_prefix, has_prefix, within
from oncelog.registry.topic_records import Version
from oncelog.schemas.schema import SchemaType

MAX_SCHEMAS: Final = 1000
"""The most schemas in one answer of a search."""


async def root(call: Call) -> Document:
    return {}


async def list_subjects(call: Call) -> list[str]:
    prefix = call.text("subjectPrefix", ALL_CONTEXTS)
    if call.context != DEFAULT_CONTEXT:
        prefix = context_prefix(call.context) + call.text("subjectPrefix")
    deleted_only, deleted = call.flag("deletedOnly"), call.flag("deleted")
    store = call.store
    names = sorted(name for name in store.subjects if has_prefix(name, prefix) and call.may_read(name))
    shown = (name for name in names if _is_listed(store, name, deleted_only=deleted_only, deleted=deleted))
    return list(call.page(shown))


def _is_listed(store: Store, subject: str, *, deleted_only: bool, deleted: bool) -> bool:
    alive = store.has_subjects(subject, deleted=False)
    return not alive if deleted_only else alive or deleted


async def list_versions(call: Call) -> list[int]:
    subject = call.subject(Operation.READ)
    deleted_only, deleted = call.flag("deletedOnly"), call.flag("deleted")
    negative = call.flag("deletedAsNegative")
    if not call.store.has_subjects(subject, deleted=deleted or deleted_only):
        raise errors.subject_not_found(subject)
    versions = call.store.versions(subject, deleted=deleted or deleted_only or negative)
    if negative:
        return list(call.page(-item.version if item.deleted else item.version for item in versions))
    return list(call.page(item.version for item in versions if item.deleted or not deleted_only))


async def get_version(call: Call) -> Document:
    version = call.version_of(call.subject(Operation.READ), deleted=call.flag("deleted"))
    document = version_document(await call.formatted(version))
    return _with_qualified_references(call, version, document)


async def get_version_text(call: Call) -> str:
    version = call.version_of(call.subject(Operation.READ), deleted=call.flag("deleted"))
    return (await call.formatted(version)).schema.text


async def get_referrers(call: Call) -> list[int]:
    version = call.version_of(call.subject(Operation.READ), deleted=call.flag("deleted"))
    referrers = call.store.referrers(version.subject, version.version, deleted=call.flag("deleted"))
    ids = sorted({referrer.id for referrer in referrers})
    return list(call.page(iter(ids), MAX_SCHEMAS))


async def get_by_metadata(call: Call) -> Document:
    """The latest version whose metadata has all properties of the query."""
    subject = call.subject(Operation.READ)
    properties = dict(zip(call.texts("key"), call.texts("value"), strict=False)).items()
    deleted = call.flag("deleted")
    for version in reversed(call.store.versions(subject, deleted=deleted)):
        metadata: Any = version.schema.metadata or {}
        if version.schema.metadata is not None and properties <= (metadata.get("properties") or {}).items():
            return version_document(await call.formatted(version))
    if not call.store.has_subjects(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.schema_not_found()


async def list_schemas(call: Call) -> Iterator[Document]:
    prefix, store = call.text("subjectPrefix"), call.store
    if call.context != DEFAULT_CONTEXT:
        prefix = context_prefix(call.context) + prefix
    names = sorted(name for name in store.subjects if has_prefix(name, prefix) and call.may_read(name))
    versions = _versions_of(store, names, latest_only=call.flag("latestOnly"), deleted=call.flag("deleted"))
    kind = call.text("ruleType")
    chosen = call.page((version for version in versions if not kind or _has_rule(version, kind)), MAX_SCHEMAS)
    # Chosen now: subjects may go while the answer is sent.
    return map(version_document, list(chosen))


def _versions_of(store: Store, names: list[str], *, latest_only: bool, deleted: bool) -> Iterator[Version]:
    for name in names:
        versions = store.versions(name, deleted=deleted)
        yield from versions[-1:] if latest_only else versions


def _has_rule(version: Version, kind: str) -> bool:
    rule_set: Any = version.schema.rule_set or {}
    groups = (rule_set.get(name) or () for name in ("migrationRules", "domainRules", "encodingRules"))
    return any(rule.get("type") == kind for rules in groups for rule in rules)


async def get_by_id(call: Call) -> Document:
    version = _by_id(call)
    document = schema_document(await call.formatted(version))
    if call.text("subject"):
        document = {"subject": version.subject, "version": version.version} | document
    if call.flag("fetchMaxId"):
        document["maxId"] = call.store.last_id(_context(version))
    return _with_qualified_references(call, version, document)


async def get_text_by_id(call: Call) -> str:
    return (await call.formatted(_by_id(call))).schema.text


async def get_subjects_of_id(call: Call) -> list[str]:
    places = _places_of_id(call)
    return list(call.page(iter(dict.fromkeys(version.subject for version in places))))


async def get_versions_of_id(call: Call) -> list[Document]:
    places = [{"subject": version.subject, "version": version.version} for version in _places_of_id(call)]
    return list(call.page(iter(places)))


async def get_by_guid(call: Call) -> Document:
    ids = _ids_of_guid(call)
    if not ids:
        raise errors.schema_not_found(call.path["guid"])
    return schema_document(await call.formatted(ids[0]))


async def get_ids_of_guid(call: Call) -> list[Document]:
    return [{"context": _context(version), "id": version.id} for version in _ids_of_guid(call)]


async def get_types(call: Call) -> list[str]:
    return [kind.value for kind in (SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO)]


async def get_config(call: Call) -> Document:
    scope = call.scope(Operation.READ)
    config = call.store.config_in_scope(scope) if call.flag("defaultToGlobal") else call.store.config(scope)
    if config is None:
        raise errors.config_not_found(scope or "")
    return config_document(config)


async def get_mode(call: Call) -> Document:
    scope = call.scope(Operation.READ)
    mode = call.store.mode_in_scope(scope) if call.flag("defaultToGlobal") else call.store.mode(scope)
    if mode is None:
        raise errors.mode_not_found(scope or "")
    return {"mode": mode}


async def list_contexts(call: Call) -> list[str]:
    prefix, store = call.text("contextPrefix"), call.store
    names = (name for name in store.all_contexts() if name.startswith(prefix))
    if call.permissions.grants is not None:
        readable = {context_of(subject) for subject in store.subjects if call.may_read(subject)}
        names = (name for name in names if name == DEFAULT_CONTEXT or name in readable)
    return list(call.page(names))


async def get_cluster_id(call: Call) -> Document:
    clusters = {"kafka-cluster": call.registry.cluster_id, "schema-registry-cluster": "schema-registry"}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


async def get_server_version(call: Call) -> Document:
    return {"version": f"oncelog {__version__}", "commitId": ""}


def config_document(config: Any) -> Document:
    return {name: value for name, value in config.items() if name != "subject" and value is not None}


def _by_id(call: Call) -> Version:
    """The schema of the path's id, in the context or subject that the query names. Raises RegistryError."""
    schema_id = call.schema_id()
    version = call.store.find_id(schema_id, call.in_context(call.text("subject")))
    if version is None:
        raise errors.schema_not_found(schema_id)
    if call.may_read(version.subject):
        return version
    places = call.store.places(schema_id, _context(version))
    readable = next((place for place in places if call.may_read(place.subject)), None)
    if readable is None:
        # Without the subject: ids can be counted through, names cannot.
        raise errors.RegistryError(DENIED, f"User is denied operation {Operation.READ} on schema {schema_id}")
    return readable


def _places_of_id(call: Call) -> list[Version]:
    try:
        version = _by_id(call)
    except errors.RegistryError as error:
        raise (errors.schema_not_found() if error.code == errors.Code.SCHEMA_NOT_FOUND else error) from None
    places = call.store.places(version.id, _context(version))
    deleted = call.flag("deleted")
    return [place for place in places if (deleted or not place.deleted) and call.may_read(place.subject)]


def _ids_of_guid(call: Call) -> list[Version]:
    """A version for each context that has the GUID."""
    try:
        guid = UUID(call.path["guid"])
    except ValueError:
        return []
    versions = []
    for context in call.store.all_contexts():
        schema_id = call.store.id_of(guid, context)
        places = [] if schema_id is None else call.store.places(schema_id, context)
        versions += [place for place in places if call.may_read(place.subject)][:1]
    return versions


def _context(version: Version) -> str:
    return context_of(version.subject)


def _with_qualified_references(call: Call, version: Version, document: Document) -> Document:
    if call.text("referenceFormat") == "qualified" and _context(version) != DEFAULT_CONTEXT:
        for reference in document.get("references", ()):
            reference["subject"] = within(version.subject, reference["subject"])
    return document
