"""`Registry`: the schemas of one registry, by id, GUID, or subject and version; and registering them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import UUID

from oncelog.base.bounded_cache import text_bytes
from oncelog.base.units import INT32_MAX, MIB
from oncelog.schemas.client.caches import Absences, Cache
from oncelog.schemas.client.errors import NotRegistered, RegistryRefused, UnusableAnswer
from oncelog.schemas.client.requests import Requests
from oncelog.schemas.client.settings import RegistrySettings, parse_settings
from oncelog.schemas.schema import Reference, RegisteredSchema, Schema, SchemaType

# A schema's id and a version's number never get another schema, so both are kept without an age. A context has ids of
# its own: `:.CONTEXT:` before a subject names it.

CACHE_BYTES: Final = 64 * MIB
ABSENT_S: Final = 60.0
LATEST: Final = "latest"
_CONTEXT: Final = ":."
_NO_VALID: Final = "the registry's answer has no valid {}; is its URL that of a schema registry?"

T = TypeVar("T")


class SubjectVersion(NamedTuple):
    subject: str
    version: int


class Registry:
    """A client of one registry, for several threads. Its methods raise RegistryError.

    ``url`` may name several servers of it, separated by commas; ``properties`` are settings with the names of
    Confluent's clients (``basic.auth.user.info``, ``ssl.ca.location``, …).
    """

    def __init__(
        self,
        url: str | RegistrySettings,
        properties: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = parse_settings(url, properties) if isinstance(url, str) else url
        self._requests = Requests(self.settings, clock, sleep)
        self._cache: Cache[tuple[object, ...], Any] = Cache(CACHE_BYTES)
        self.clock = clock
        self._absent: Absences[tuple[object, ...]] = Absences(ABSENT_S, clock)

    def schema(self, schema_id: int | UUID | str, context: str = "", *, asked_since_s: float | None = None) -> Schema:
        """A schema by its id or GUID. ``context``, as ``:.NAME:``, says whose id it is. An absence known before
        ``asked_since_s`` is asked for again."""
        if isinstance(schema_id, UUID) or not str(schema_id).isdigit():
            guid = str(schema_id)
            return self._kept(("guid", guid), lambda: self._by_guid(guid), asked_since_s)
        query = {"subject": context} if context else None
        number = int(schema_id)
        if number > INT32_MAX:  # registries answer as if there were no such route
            raise NotRegistered(f"schema {number}: ids of registries end at {INT32_MAX}", 404, 40403)
        path = f"/schemas/ids/{number}"
        return self._kept(("id", context, number), lambda: _schema(self._requests.get(path, query)), asked_since_s)

    def _by_guid(self, guid: str) -> Schema:
        try:
            return _schema(self._requests.get(f"/schemas/guids/{quote(guid, '')}"))
        except RegistryRefused as error:
            if error.status != 404:
                raise
            # Older registries do not have the route: their schemas have no GUID.
            raise NotRegistered(str(error), error.status, error.code) from None

    def version(self, subject: str, version: int | str = LATEST, *, deleted: bool = False) -> RegisteredSchema:
        """A version of a subject. ``deleted`` finds softly deleted ones too: schemas still refer to them."""

        def ask() -> RegisteredSchema:
            path = f"/subjects/{quote(subject, '')}/versions/{version}"
            return _registered(self._requests.get(path, {"deleted": "true"} if deleted else None), subject)

        return ask() if version == LATEST else self._kept(("version", subject, int(version), deleted), ask)

    def resolver(self, context: str = "") -> Callable[[Reference], Schema]:
        """A function that fetches the schema of a reference, which a schema in ``context`` makes. It raises
        RegistryError."""

        def resolve(reference: Reference) -> Schema:
            is_qualified = reference.subject.startswith(_CONTEXT)
            subject = reference.subject if is_qualified else context + reference.subject
            return self.version(subject, reference.version, deleted=True).schema

        return resolve

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of ``schema`` in ``subject``, as a new version unless it is there."""
        query = {"normalize": "true"} if normalize else None
        answer = self._requests.post(f"/subjects/{quote(subject, '')}/versions", _document(schema), query)
        return int(_member(answer, "id", int))

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """The version of ``subject`` that has this schema. Raises NotRegistered."""
        query = {"normalize": "true"} if normalize else None
        answer = self._requests.post(f"/subjects/{quote(subject, '')}", _document(schema), query)
        # Apicurio leaves the format out of this answer.
        return _registered(answer, subject, schema.type)

    def subjects(self, prefix: str = "") -> list[str]:
        return _elements(self._requests.get("/subjects", {"subjectPrefix": prefix} if prefix else None), str)

    def versions(self, subject: str) -> list[int]:
        return _elements(self._requests.get(f"/subjects/{quote(subject, '')}/versions"), int)

    def subject_versions(self, schema_id: int, context: str = "") -> list[SubjectVersion]:
        """The subjects and versions that have a schema."""
        answer = self._requests.get(f"/schemas/ids/{schema_id}/versions", {"subject": context} if context else None)
        places = _elements(answer, dict)
        return [SubjectVersion(_member(place, "subject", str), _member(place, "version", int)) for place in places]

    def close(self) -> None:
        self._requests.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kept(self, key: tuple[object, ...], ask: Callable[[], T], asked_since_s: float | None = None) -> T:
        value: T | None = self._cache.get(key)
        if value is None:
            self._absent.check(key, asked_since_s)
            try:
                value = ask()
            except NotRegistered as error:
                self._absent.put(key, error)
                raise
            schema = value.schema if isinstance(value, RegisteredSchema) else value
            self._cache.put(key, value, _size_bytes(schema) if isinstance(schema, Schema) else 0)
        return value


def context_of(subject: str) -> str:
    """The context of a qualified subject, as ``:.NAME:``; empty for the default one."""
    name, colon, _ = subject[1:].partition(":")
    return f":{name}:" if subject.startswith(_CONTEXT) and colon else ""


def _size_bytes(schema: Schema) -> int:
    return text_bytes(schema.text) + sum(text_bytes(used.name) + text_bytes(used.subject) for used in schema.references)


def _document(schema: Schema) -> dict[str, object]:
    document: dict[str, object] = {"schema": schema.text, "schemaType": schema.type.value}
    if schema.references:
        document["references"] = [
            {"name": used.name, "subject": used.subject, "version": used.version} for used in schema.references
        ]
    if schema.metadata is not None:
        document["metadata"] = schema.metadata
    if schema.rule_set is not None:
        document["ruleSet"] = schema.rule_set
    return document


def _registered(answer: Any, subject: str, default: SchemaType = SchemaType.AVRO) -> RegisteredSchema:
    guid = answer.get("guid") if isinstance(answer, dict) else None
    try:
        parsed_guid = None if guid is None else UUID(guid)
    except (ValueError, AttributeError, TypeError):
        raise UnusableAnswer(_NO_VALID.format("guid")) from None
    version, schema_id = _member(answer, "version", int), _member(answer, "id", int)
    return RegisteredSchema(answer.get("subject") or subject, version, schema_id, parsed_guid, _schema(answer, default))


def _schema(answer: Any, default: SchemaType = SchemaType.AVRO) -> Schema:
    text = _member(answer, "schema", str)
    name = answer.get("schemaType") or default.value
    if name not in SchemaType.__members__:
        raise NotRegistered(f"the registry has it in the format {name!r:.40}, which is not supported", 200, 0)
    references = tuple(
        Reference(_member(used, "name", str), _member(used, "subject", str), _member(used, "version", int))
        for used in _elements(answer.get("references") or [], dict)
    )
    metadata, rules = answer.get("metadata"), answer.get("ruleSet")
    if not isinstance(metadata, dict | None) or not isinstance(rules, dict | None):
        raise UnusableAnswer(_NO_VALID.format("metadata or ruleSet"))
    return Schema(text, SchemaType[name], references, metadata, rules)


def _member(document: Any, name: str, kind: type[T]) -> T:
    value = document.get(name) if isinstance(document, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UnusableAnswer(_NO_VALID.format(name))
    return value


def _elements(answer: Any, kind: type[T]) -> list[T]:
    if not isinstance(answer, list) or not all(isinstance(element, kind) for element in answer):
        raise UnusableAnswer(_NO_VALID.format("list"))
    return answer
