"""GUIDs of schemas: the MD5 of text, references, metadata and rules, as Confluent's registry computes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from oncelog.schemas.schema import Reference, Schema

_PRESENT = b"\x01"


def guid_of(schema: Schema) -> UUID:
    digest = hashlib.md5(usedforsecurity=False)
    for part in _parts(schema):
        digest.update(part)
    return UUID(bytes=digest.digest())


def _parts(schema: Schema) -> Iterator[bytes]:
    yield _bytes(schema.text)
    for reference in schema.references:
        yield from _reference(reference)
    if schema.metadata is not None:
        yield _PRESENT
        yield from _metadata(schema.metadata)
    if schema.rule_set is not None:
        yield _PRESENT
        yield from _rule_set(schema.rule_set)


def _reference(reference: Reference) -> Iterator[bytes]:
    yield _bytes(reference.name)
    yield _bytes(reference.subject)
    yield reference.version.to_bytes(4, "big", signed=True)


def _metadata(metadata: Mapping[str, Any]) -> Iterator[bytes]:
    for name, tags in _sorted_items(metadata.get("tags")):
        yield _bytes(name)
        yield from map(_bytes, sorted(map(str, tags or ())))
    for name, value in _sorted_items(metadata.get("properties")):
        yield _bytes(name)
        yield _bytes(value)
    yield from map(_bytes, sorted(map(str, metadata.get("sensitive") or ())))


def _rule_set(rule_set: Mapping[str, Any]) -> Iterator[bytes]:
    for group in ("migrationRules", "domainRules", "encodingRules"):
        for rule in rule_set.get(group) or ():
            yield from _rule(rule)
    if rule_set.get("enableAt"):
        yield _bytes(rule_set["enableAt"])


def _rule(rule: Mapping[str, Any]) -> Iterator[bytes]:
    for name in ("name", "doc", "kind", "mode", "type"):
        if rule.get(name) is not None:
            yield _bytes(rule[name])
    yield from map(_bytes, sorted(map(str, rule.get("tags") or ())))
    for name, value in _sorted_items(rule.get("params")):
        yield _bytes(name)
        yield _bytes(value)
    for name in ("expr", "onSuccess", "onFailure"):
        if rule.get(name) is not None:
            yield _bytes(rule[name])
    if rule.get("disabled"):
        yield _PRESENT


def _sorted_items(mapping: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    return sorted((mapping or {}).items())


def _bytes(text: object) -> bytes:
    # Java replaces what has no UTF-8, too.
    return str(text).encode("utf-8", "replace")
