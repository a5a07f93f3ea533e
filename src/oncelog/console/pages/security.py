"""Security pages: access control lists, SCRAM users and quotas of the cluster, filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from oncelog.admin.acls import list_acls
from oncelog.admin.client_quotas import ENTITY_KINDS, QUOTAS, list_quotas
from oncelog.admin.scram_users import MECHANISMS, list_credentials
from oncelog.base.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from oncelog.base.errors import ErrorCode
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.console.changes.security_changes import acl_details
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page

T = TypeVar("T")
ACL_SORTS: Final = ("resource", "principal", "operation", "permission")
RESOURCES: Final = tuple(kind.name for kind in ResourceType if kind > ResourceType.ANY)
OPERATION_NAMES: Final = tuple(kind.name for kind in Operation if kind > Operation.ANY)
PERMISSIONS: Final = (Permission.ALLOW.name, Permission.DENY.name)
PATTERNS: Final = (PatternType.LITERAL.name, PatternType.PREFIXED.name)


def read_acls(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The entries whose principal or resource contains a text, of one kind, operation and permission."""
    query = page_request.query
    kind = query.choice("type", ("", *RESOURCES))
    operation = query.choice("operation", ("", *OPERATION_NAMES))
    permission = query.choice("permission", ("", *PERMISSIONS))
    name_filter, sort = query.text("filter"), query.choice("sort", ACL_SORTS)
    nothing: list[AclBinding] = []
    bindings, has_authorizer = unless_disabled(lambda: list_acls(client), nothing)
    rows = [
        acl_details(binding)
        for binding in _sorted(bindings, sort)
        if kind in ("", binding.pattern.resource_type.name)
        and operation in ("", binding.entry.operation.name)
        and permission in ("", binding.entry.permission.name)
        and (
            name_filter.lower() in binding.pattern.name.lower()
            or name_filter.lower() in binding.entry.principal.lower()
        )
    ]
    return {
        "acls": one_page(rows, query.number("page", 1, 1)),
        "all": len(bindings),
        "has_authorizer": has_authorizer,
        "filter": {
            "filter": name_filter,
            "type": kind,
            "operation": operation,
            "permission": permission,
            "sort": sort,
        },
        "choices": {
            "type": RESOURCES,
            "operation": OPERATION_NAMES,
            "permission": PERMISSIONS,
            "sort": ACL_SORTS,
        },
    }


def unless_disabled(read: Callable[[], T], nothing: T) -> tuple[T, bool]:
    """The result of ``read``, and True; ``nothing`` and False for a cluster without an authorizer."""
    try:
        return read(), True
    except BrokerRefused as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        return nothing, False


def _sorted(bindings: list[AclBinding], sort: str) -> list[AclBinding]:
    if sort == "principal":
        return sorted(bindings, key=lambda binding: (binding.entry.principal, binding))
    if sort == "operation":
        return sorted(bindings, key=lambda binding: (binding.entry.operation.name, binding))
    if sort == "permission":
        return sorted(bindings, key=lambda binding: (binding.entry.permission, binding))
    return bindings


def read_users(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The SCRAM credentials of users whose name contains a text. Brokers reveal no passwords or keys."""
    query = page_request.query
    name_filter = query.text("filter")
    credentials = list_credentials(client)
    rows = [row for row in credentials if name_filter.lower() in row.user.lower()]
    return {
        "users": one_page([row._asdict() for row in rows], query.number("page", 1, 1)),
        "all": len(credentials),
        "filter": {"filter": name_filter},
        "mechanisms": tuple(MECHANISMS),
    }


def read_quotas(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """A row for each quota of an entity whose names contain a text, of one kind."""
    query = page_request.query
    name_filter, kind = query.text("filter"), query.choice("kind", ("", *ENTITY_KINDS))
    quotas = list_quotas(client)
    rows = [
        {"entity": dict(quota.entity), "key": key, "value": value, "unit": QUOTAS.get(key)}
        for quota in quotas
        if (not kind or kind in dict(quota.entity))
        and (not name_filter or any(name_filter.lower() in (name or "default").lower() for _, name in quota.entity))
        for key, value in quota.values.items()
    ]
    return {
        "quotas": one_page(rows, query.number("page", 1, 1)),
        "all": len(quotas),
        "filter": {"filter": name_filter, "kind": kind},
        "kinds": ENTITY_KINDS,
    }
