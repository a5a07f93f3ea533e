"""The nodes of access control lists in the coordination tree, with Apache Kafka's paths and JSON.

``/kafka-acl/Topic/NAME`` has the list of a literal pattern, ``/kafka-acl-extended/prefixed/Topic/NAME`` of a prefixed
one. Characters that a path cannot have (such as ``/``, which group ids may contain) are percent-encoded; this never
changes topic names or ``*``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final
from urllib.parse import unquote

from oncelog.base.acls import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
    kafka_word,
)
from oncelog.base.tree import Create
from oncelog.core.controller.image.layout import DamagedFact, dumps, loads, node_name

LITERAL_ACLS: Final = "/kafka-acl"
"""Parent of the lists. Its version rises when an empty list's node is deleted, like ``layout.DELETED_TOPICS``."""
EXTENDED_ACLS: Final = "/kafka-acl-extended"
PREFIXED_ACLS: Final = f"{EXTENDED_ACLS}/prefixed"

_PARENTS: Final = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
_TYPES: Final = {kafka_word(code): code for code in ResourceType if code > ResourceType.ANY}
_OPERATIONS: Final = {kafka_word(code): code for code in Operation if code > Operation.ANY}
_PERMISSIONS: Final = {kafka_word(code): code for code in (Permission.DENY, Permission.ALLOW)}

_BASE_PATHS: Final = (
    LITERAL_ACLS,
    EXTENDED_ACLS,
    PREFIXED_ACLS,
    *(f"{parent}/{word}" for parent in _PARENTS.values() for word in _TYPES),
)


def missing_parents(existing: Container[str]) -> list[Create]:
    """Operations that create the missing parents of lists; the first entry needs them."""
    return [Create(path, b"") for path in _BASE_PATHS if path not in existing]


def acl_path(pattern: ResourcePattern) -> str:
    parent = _PARENTS[pattern.pattern_type]
    return f"{parent}/{kafka_word(pattern.resource_type)}/{_node_name(pattern.name)}"


def pattern_of(path: str) -> ResourcePattern | None:
    """The pattern of a list's node; None for a parent of such nodes."""
    for pattern_type, parent in _PARENTS.items():
        # Also false for the parents themselves.
        word, _, name = path.removeprefix(f"{parent}/").partition("/")
        if path.startswith(f"{parent}/") and name and word in _TYPES:
            return ResourcePattern(_TYPES[word], pattern_type, unquote(name))
    return None


def acl_value(entries: Iterable[AclEntry]) -> bytes:
    return dumps({"version": 1, "acls": [_entry_json(entry) for entry in entries]})


def read_acls(path: str, value: bytes, version: int) -> ResourceAcls:
    facts = loads(path, value)
    try:
        return ResourceAcls(
            tuple(
                AclEntry(
                    str(fact["principal"]),
                    str(fact["host"]),
                    _OPERATIONS[fact["operation"]],
                    _PERMISSIONS[fact["permissionType"]],
                )
                for fact in facts["acls"]
            ),
            version,
        )
    except (KeyError, TypeError) as error:
        raise DamagedFact(path, value) from error


def entry_bytes(entry: AclEntry) -> int:
    return len(dumps(_entry_json(entry))) + 1


def _entry_json(entry: AclEntry) -> dict[str, str]:
    return {
        "principal": entry.principal,
        "permissionType": kafka_word(entry.permission),
        "operation": kafka_word(entry.operation),
        "host": entry.host,
    }


def _node_name(name: str) -> str:
    return node_name(name, safe="*")
