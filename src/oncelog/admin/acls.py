"""Lists, creates and deletes access control lists of any cluster, and explains the rights they give (KIP-140, KIP-290).

Explanations apply the brokers' rules (``base.acl_rules``) to the lists that a broker returns. Super users are included
where brokers reveal them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from oncelog.base.acl_rules import AuthorizerSettings, Reason, Ruling, decide
from oncelog.base.acls import (
    OPERATIONS,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
)
from oncelog.base.ids import group_by_key
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse

_E = TypeVar("_E", bound=IntEnum)
_SUBJECT: Final = "access control lists"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Conditions on entries; None and ANY match everything. MATCH with a name selects all lists that apply to it."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY


@dataclass(frozen=True, slots=True)
class Decision:
    operation: Operation
    allowed: bool
    reason: Reason
    acl: AclBinding | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The rights of a principal on a resource. ``lists`` has all its entries; ``super_users`` is None if not
    revealed."""

    resource_type: ResourceType
    name: str
    principal: str
    host: str
    decisions: Sequence[Decision]
    lists: Sequence[AclBinding]
    super_users: Sequence[str] | None


@operation
def list_acls(cluster: Cluster, filters: AclFilter | None = None) -> Program[list[AclBinding]]:
    """The entries that match ``filters``, by resource and principal. Raises BrokerRefused."""
    answer = yield from _described(cluster, filters or AclFilter())
    return sorted(_all_bindings(answer))


def _described(cluster: Cluster, filters: AclFilter, *, with_settings: bool = False) -> Program[DescribeAclsResponse]:
    message = DescribeAclsRequest(
        resource_type_filter=filters.resource_type,
        resource_name_filter=filters.name,
        pattern_type_filter=filters.pattern_type,
        principal_filter=filters.principal,
        host_filter=filters.host,
        operation=filters.operation,
        permission_type=filters.permission,
        with_settings=with_settings,
    )

    def attempt() -> Program[DescribeAclsResponse]:
        response = yield from cluster.request(message)
        raise_for_error(response, _SUBJECT)
        return response

    return (yield from cluster.retrying(attempt))


@operation
def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> Program[None]:
    """Create entries; existing ones stay. Raises BrokerRefused for the first that is not created."""
    creations = [
        AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in bindings
    ]

    def attempt() -> Program[None]:
        response = yield from cluster.request(CreateAclsRequest(creations=creations), broker="controller")
        for binding, result in zip(bindings, response.results, strict=True):
            raise_for_error(result, f"ACL for {binding.entry.principal}")

    yield from cluster.retrying(attempt)


@operation
def delete_acls(cluster: Cluster, bindings: Iterable[AclBinding]) -> Program[list[AclBinding]]:
    """Delete entries. Returns those that existed. Raises BrokerRefused."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=pattern.resource_type,
            resource_name_filter=pattern.name,
            pattern_type_filter=pattern.pattern_type,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in bindings
    ]

    def attempt() -> Program[list[AclBinding]]:
        removed: set[AclBinding] = set()
        response = yield from cluster.request(DeleteAclsRequest(filters=filters), broker="controller")
        for result in response.filter_results:
            raise_for_error(result, _SUBJECT)
            for acl in result.matching_acls:
                raise_for_error(acl, _SUBJECT)
                pattern = _pattern(acl.resource_type, acl.pattern_type, acl.resource_name)
                removed.add(AclBinding(pattern, _entry(acl.principal, acl.host, acl.operation, acl.permission_type)))
        return sorted(removed)

    return (yield from cluster.retrying(attempt))


@operation
def explain(
    cluster: Cluster,
    resource_type: ResourceType,
    name: str,
    principal: str,
    host: str,
    operations: Sequence[Operation] = (),
) -> Program[Explanation]:
    """The rights of ``principal``, connected from ``host``, for ``operations``, or all that the resource has. Raises
    BrokerRefused if the lists may not be read."""
    answer = yield from _described(cluster, AclFilter(resource_type, name, PatternType.MATCH), with_settings=True)
    bindings = sorted(_all_bindings(answer))
    settings = _settings(answer)
    # Without settings the defaults apply: no super users, deny by default.
    settings_used = AuthorizerSettings() if settings is None else settings
    lists = _by_pattern(bindings)
    decisions = []
    for kind_of_access in operations or OPERATIONS[resource_type]:
        ruling: Ruling = decide(lists.items(), settings_used, principal, host, kind_of_access)
        decisions.append(Decision(kind_of_access, ruling.allowed, ruling.reason, ruling.acl))
    super_users = None if settings is None else sorted(settings_used.super_users)
    return Explanation(resource_type, name, principal, host, decisions, bindings, super_users)


def _settings(answer: DescribeAclsResponse) -> AuthorizerSettings | None:
    if answer.super_users is None:
        return None
    names = frozenset(part.strip() for part in answer.super_users.split(";") if part.strip())
    return AuthorizerSettings(names, answer.allow_everyone)


def _by_pattern(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, ResourceAcls]:
    entries = group_by_key(bindings)
    return {pattern: ResourceAcls(tuple(group)) for pattern, group in entries.items()}


def _all_bindings(answer: DescribeAclsResponse) -> Iterable[AclBinding]:
    return (binding for resource in answer.resources for binding in _bindings(resource))


def _bindings(resource: DescribeAclsResource) -> Iterable[AclBinding]:
    pattern = _pattern(resource.resource_type, resource.pattern_type, resource.resource_name)
    for acl in resource.acls:
        yield AclBinding(pattern, _entry(acl.principal, acl.host, acl.operation, acl.permission_type))


def _pattern(resource_type: int, pattern_type: int, name: str) -> ResourcePattern:
    return ResourcePattern(_value_of(ResourceType, resource_type), _value_of(PatternType, pattern_type), name)


def _entry(principal: str, host: str, operation: int, permission: int) -> AclEntry:
    return AclEntry(principal, host, _value_of(Operation, operation), _value_of(Permission, permission))


def _value_of(kind: type[_E], code: int) -> _E:
    # A newer broker may have codes that this version lacks: 0 means unknown.
    return kind(code) if code in kind._value2member_map_ else kind(0)
