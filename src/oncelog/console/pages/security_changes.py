"""The forms that change access, each with a preview, and the actions behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from oncelog.admin.client_quotas import CLIENT_ID, IP, QUOTAS, USER, Entity, entity_text, quotas_of
from oncelog.admin.scram_users import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, Credential
from oncelog.base.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from oncelog.client.blocking.client import Client
from oncelog.console.admission.audit_lines import SECRET_FIELDS
from oncelog.console.admission.gate import Permit
from oncelog.console.changes import security_changes
from oncelog.console.changes.audited_changes import Changes
from oncelog.console.page import PageRequest
from oncelog.console.pages.security import OPERATION_NAMES, PATTERNS, PERMISSIONS, RESOURCES, unless_disabled
from oncelog.console.query import BadQuery, Query

_E = TypeVar("_E", bound=IntEnum)
DEFAULT: Final = "1"
IP_QUOTA: Final = "connection_creation_rate"
MAX_PASSWORD_LENGTH: Final = 1000


def _member(kind: type[_E], query: Query, name: str, choices: tuple[str, ...]) -> _E:
    return kind[query.choice(name, choices)]


def _binding(query: Query) -> AclBinding:
    """The entry in an address or form. Raises BadQuery."""
    kind = _member(ResourceType, query, "type", RESOURCES)
    operation = _member(Operation, query, "operation", OPERATION_NAMES)
    if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
        raise BadQuery(
            f"operation={operation.name} does not apply to {kind.name}; it has ALL, "
            f"{', '.join(allowed.name for allowed in OPERATIONS[kind])}"
        )
    principal = query.needed("principal").strip()
    if ":" not in principal:
        raise BadQuery(f"principal={principal!r} has no type; users are written User:NAME")
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else query.needed("resource")
    pattern = ResourcePattern(kind, _member(PatternType, query, "pattern", PATTERNS), name)
    permission = _member(Permission, query, "permission", PERMISSIONS)
    return AclBinding(pattern, AclEntry(principal, query.text("host").strip() or "*", operation, permission))


def read_acl(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The form of an entry; with a principal the entry, and whether the cluster has it."""
    query = page_request.query
    shown: dict[str, Any] = {
        "acl": None,
        "exists": False,
        "filled": {
            name: query.text(name)
            for name in ("type", "resource", "pattern", "principal", "host", "operation", "permission")
        },
        "choices": {
            "type": RESOURCES,
            "pattern": PATTERNS,
            "operation": OPERATION_NAMES,
            "permission": PERMISSIONS,
        },
    }
    if not query.text("principal"):
        return shown
    binding = _binding(query)
    details = security_changes.acl_details(binding)
    exists, has_authorizer = unless_disabled(lambda: security_changes.has_acl(client, binding), False)
    return shown | {
        "acl": details,
        "exists": exists,
        "fields": _acl_fields(details),
        "has_authorizer": has_authorizer,
    }


def _acl_fields(details: Mapping[str, str]) -> dict[str, str]:
    return {"type" if name == "resource_type" else name: value for name, value in details.items()}


def act_add_acl(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    binding = _binding(page_request.query)
    security_changes.add_acl(client, permit, changes, binding, page_request.query.text("typed"))
    return _acl_done(binding, "Added.")


def act_remove_acl(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    binding = _binding(page_request.query)
    security_changes.remove_acl(client, permit, changes, binding, page_request.query.text("typed"))
    return _acl_done(binding, "Removed.")


def _acl_done(binding: AclBinding, message: str) -> Mapping[str, Any]:
    words = " ".join(security_changes.acl_details(binding).values())
    return _done(binding.entry.principal, f"{message} {words}", "/security", "Access control lists")


def read_user(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The form of a user; with a name the present credential, and the new one."""
    query = page_request.query
    if any(name in query.values for name in SECRET_FIELDS):
        raise BadQuery("a password does not belong into an address; type it into the form")
    user, mechanism = query.text("user"), query.choice("mechanism", tuple(MECHANISMS))
    iterations = query.number("iterations", MIN_ITERATIONS, MIN_ITERATIONS, MAX_ITERATIONS)
    shown: dict[str, Any] = {
        "user": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "mechanisms": tuple(MECHANISMS),
        "least": MIN_ITERATIONS,
        "most": MAX_ITERATIONS,
        "was": None,
    }
    if user:
        shown["was"] = security_changes.credential_text(security_changes.credential_of(client, user, mechanism))
    return shown


def act_set_user(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    password = query.long("password", MAX_PASSWORD_LENGTH)
    if not password:
        raise BadQuery("the password is empty; type the new password")
    if password != query.long("repeated", MAX_PASSWORD_LENGTH):
        raise BadQuery("the two passwords differ; type the new password twice")
    if password == query.text("typed"):
        raise BadQuery("the confirmation is the password; type the user's name there, and another password")
    iterations = query.number("iterations", MIN_ITERATIONS, MIN_ITERATIONS, MAX_ITERATIONS)
    new = Credential(query.needed("user"), query.choice("mechanism", tuple(MECHANISMS)), iterations)
    security_changes.set_user(client, permit, changes, new, password, query.text("was"), query.text("typed"))
    return _done(new.user, f"{new.mechanism} is set, with {iterations} iterations.", "/security/users", "SCRAM users")


def act_remove_user(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    user, mechanism = query.needed("user"), query.choice("mechanism", tuple(MECHANISMS))
    security_changes.remove_user(client, permit, changes, user, mechanism, query.text("typed"))
    message = f"{mechanism} is removed. Open connections stay until they authenticate again."
    return _done(user, message, "/security/users", "SCRAM users")


def _entity(query: Query) -> Entity:
    """The entity in an address or form. Raises BadQuery."""
    parts: list[tuple[str, str | None]] = []
    for kind, name in ((USER, "user"), (CLIENT_ID, "client_id"), (IP, "ip")):
        if query.flag(f"default_{name}"):
            parts.append((kind, None))
        elif query.text(name):
            parts.append((kind, query.text(name)))
    if len(parts) > 1 and any(kind == IP for kind, _ in parts):
        raise BadQuery(f"ip={query.text('ip')!r} cannot be combined with a user or client id; leave one of them empty")
    return tuple(sorted(parts, key=lambda part: part[0]))


def _value(query: Query) -> float | None:
    text = query.text("value").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise BadQuery(f"value={text!r} is not a number above 0; leave it empty to remove the quota")
    return value


def read_quota(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The form of a quota; with an entity and a key its value, and the new one, validated by the broker."""
    query = page_request.query
    entity, key = _entity(query), query.text("key")
    names = ("user", "client_id", "ip", "default_user", "default_client_id", "default_ip", "key", "value")
    shown: dict[str, Any] = {
        "filled": {name: query.text(name) for name in names},
        "keys": QUOTAS,
        "diff": None,
    }
    if not entity or not key:
        return shown
    value = _value(query)
    was = security_changes.quota_text(quotas_of(client, entity), key)
    would_be = "none" if value is None else f"{value:.15g}"
    if was != would_be:
        security_changes.check_quota(client, entity, key, value)
    return shown | {
        "diff": {
            "entity": entity_text(entity),
            "key": key,
            "was": was,
            "would_be": would_be,
            "unit": QUOTAS.get(key, ""),
            "typed": security_changes.typed_name(entity),
        }
    }


def act_set_quota(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    entity, key = _entity(query), query.needed("key")
    if not entity:
        raise BadQuery("the form names no user, client id or address; give at least one of them")
    value, was = _value(query), query.text("was")
    security_changes.set_quota(client, permit, changes, entity, key, value, was, query.text("typed"))
    message = f"{key}: {was} → {'none' if value is None else f'{value:.15g}'}."
    return _done(entity_text(entity), message, "/security/quotas", "Quotas")


def _done(name: str, message: str, path: str, words: str) -> Mapping[str, Any]:
    return {"what": name, "error": None, "warning": None, "said": [message], "links": [(path, None, words)]}
