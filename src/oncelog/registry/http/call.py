"""One request as routes see it: its subject, parameters and body, checked as they are read, and its user's rights."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

from oncelog.registry import errors
from oncelog.registry.http.permissions import Operation, Permissions
from oncelog.registry.metadata import InvalidMetadata, check_rule_set
from oncelog.registry.registration import Request
from oncelog.registry.service import Registry
from oncelog.registry.store import Store
from oncelog.registry.subjects import DEFAULT_CONTEXT, Subject, parse_subject, qualified, within
from oncelog.registry.topic_records import UnreadableRecord, Version, read_schema

T = TypeVar("T")
_MAX_INT: Final = 2**31 - 1
NOT_FOUND: Final = "HTTP 404 Not Found"


@dataclass(slots=True)
class Call:
    registry: Registry
    user: str
    permissions: Permissions
    path: Mapping[str, str]
    """Parts of the path by the names that the route gives them."""
    query: Sequence[tuple[str, str]]
    body: bytes = b""
    context: str = DEFAULT_CONTEXT
    """The context of an address that begins with `/contexts/NAME/`."""
    _document: dict[str, Any] | None = field(default=None, init=False)

    @property
    def store(self) -> Store:
        return self.registry.store

    def subject(self, operation: Operation, *, aliased: bool = True) -> str:
        """The subject of the path. Raises RegistryError unless the user may do ``operation``."""
        subject = self.in_context(self.path["subject"])
        if aliased:
            alias = self.store.configs.get(subject, {}).get("alias")
            if isinstance(alias, str) and alias:
                subject = within(subject, alias)
        self.require(operation, subject)
        return subject

    def scope(self, operation: Operation) -> str | None:
        """The subject or context whose config or mode is meant; None for the global one."""
        subject = self.in_context(self.path.get("subject", ""))
        scope = None if parse_subject(subject).is_default_context else subject
        is_shared = scope is None or not parse_subject(scope).name
        if operation is not Operation.READ or not is_shared:
            self.require(operation, None if is_shared else scope)
        return scope

    def in_context(self, subject: str) -> str:
        if self.context == DEFAULT_CONTEXT or subject.startswith(":"):
            return qualified(subject)
        return Subject(self.context, subject).qualified

    def require(self, operation: Operation, subject: str | None) -> None:
        self.permissions.require(self.user, operation, subject)

    def may_read(self, subject: str) -> bool:
        return self.permissions.allows(self.user, Operation.READ, subject)

    def text(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.query if key == name), default)

    def texts(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def page(self, items: Iterator[T], largest: int = _MAX_INT) -> Iterator[T]:
        """The items that ``offset`` and ``limit`` choose; a limit that is not allowed means the largest."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        limit = limit if 0 < limit <= largest else largest
        return islice(items, max(0, offset), max(0, offset) + limit)

    def _number(self, name: str, default: int) -> int:
        return default if not self.text(name) else number_of(self.text(name))

    def version(self) -> int:
        """The version of the path; −1 for the latest. Raises RegistryError."""
        text = self.path["version"].strip()
        if text.lower() == "latest":
            return -1
        try:
            number = int(text) if text.isascii() and len(text) < 12 else 0
        except ValueError:
            number = 0
        if number == -1 or 0 < number <= _MAX_INT:
            return number
        raise errors.invalid_version(self.path["version"])

    def schema_id(self) -> int:
        return number_of(self.path["id"])

    def document(self) -> dict[str, Any]:
        """Raises RegistryError for a body that is not a JSON object."""
        if self._document is None:
            try:
                document = json.loads(self.body, parse_constant=_number_of_json, parse_float=_number_of_json)
            except (ValueError, RecursionError):
                raise errors.RegistryError(400, "the body is not JSON") from None
            if not isinstance(document, dict):
                raise errors.RegistryError(400, "the body is not a JSON object")
            self._document = document
        return self._document

    def schema_request(self, subject: str) -> Request:
        """The schema of the body. Raises RegistryError."""
        document = self.document()
        self.check_rules(document.get("ruleSet"))
        try:
            schema = read_schema(document)
        except UnreadableRecord as error:
            raise errors.invalid_schema(str(error)) from None
        version, schema_id = document.get("version") or 0, document.get("id")
        schema_id = -1 if schema_id is None else schema_id
        if type(version) is not int or type(schema_id) is not int or max(version, schema_id) > _MAX_INT:
            raise errors.RegistryError(422, "version and id have to be whole numbers below 2^31")
        for reference in schema.references:
            self.require(Operation.READ, within(subject, reference.subject))
        return Request(subject, schema, max(version, -1), max(schema_id, -1), self.flag("normalize"))

    def check_rules(self, rule_set: object) -> None:
        if not isinstance(rule_set, Mapping | None):
            raise errors.RegistryError(errors.Code.INVALID_RULE_SET, "a rule set has to be an object")
        try:
            check_rule_set(rule_set)
        except InvalidMetadata as error:
            raise errors.RegistryError(errors.Code.INVALID_RULE_SET, str(error)) from None

    async def formatted(self, version: Version) -> Version:
        """The version in the form of the parameter `format`. Raises RegistryError."""
        form = self.text("format").strip()
        return await self.registry.formatted(version, form) if form else version

    def version_of(self, subject: str, *, deleted: bool) -> Version:
        """The version of the path: of the subject, or of this name in another context. Raises RegistryError."""
        number, scope = self.version(), parse_subject(subject)
        version = self.store.version(subject, number, deleted=deleted)
        if version is None and scope.context == DEFAULT_CONTEXT:
            others = (Subject(context, scope.name).qualified for context in sorted(self.store.contexts))
            versions = (self.store.version(other, number, deleted=deleted) for other in others if self.may_read(other))
            version = next((other for other in versions if other is not None), None)
        if version is None and not self.store.has_subjects(subject, deleted=deleted):
            raise errors.subject_not_found(subject)
        if version is None:
            raise errors.version_not_found(number)
        return version


def _number_of_json(text: str) -> float:
    """Raises ValueError for numbers that JSON cannot have, in the topic and in answers."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def number_of(text: str) -> int:
    """Raises RegistryError for a text that is not a 32-bit number."""
    try:
        number = int(text) if len(text) < 12 else _MAX_INT + 1
    except ValueError:
        number = _MAX_INT + 1
    if not -_MAX_INT <= number <= _MAX_INT:
        raise errors.RegistryError(404, NOT_FOUND)
    return number
