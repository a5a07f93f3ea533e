"""Access control lists of any cluster: list, make and remove entries, explain what they allow (KIP-140, KIP-290).

The rule: an explanation is worked out here, by the rules that brokers decide by (``base.acl_rules``), from the lists
that a broker tells. Brokers do not have to tell who their super users are; where they do, it is taken into account.
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
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse

_E = TypeVar("_E", bound=IntEnum)
_WHAT: Final = "access control lists"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """The entries that are meant; None and ANY: whatever it is. MATCH with a name means all lists for that name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY


@dataclass(frozen=True, slots=True)
class Decision:
    """May somebody do an operation, and which entry says so."""

    operation: Operation
    allowed: bool
    reason: Reason
    acl: AclBinding | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The rights of somebody on a resource. ``lists`` are all entries for it; ``super_users`` None: the broker does not
    tell."""

    resource_type: ResourceType
    name: str
    principal: str
    host: str
    decisions: Sequence[Decision]
    lists: Sequence[AclBinding]
    super_users: Sequence[str] | None


@operation
def list_acls(cluster: Cluster, wanted: AclFilter | None = None) -> Program[list[AclBinding]]:
    """The entries that are wanted, by resource and principal. Raises BrokerRefused."""
    answer = yield from _described(cluster, wanted or AclFilter())
    return sorted(_all_bindings(answer))


def _described(cluster: Cluster, wanted: AclFilter, *, with_settings: bool = False) -> Program[DescribeAclsResponse]:
    message = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
        with_settings=with_settings,
    )

    def attempt() -> Program[DescribeAclsResponse]:
        response = yield from cluster.request(message)
        raise_for_error(response, _WHAT)
        return response

    return (yield from cluster.retrying(attempt))


@operation
def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> Program[None]:
    """Make entries; those that are there stay. Raises BrokerRefused for the first that is not made."""
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
    """Remove entries; those that were there. Raises BrokerRefused."""
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
            raise_for_error(result, _WHAT)
            for acl in result.matching_acls:
                raise_for_error(acl, _WHAT)
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
    """The rights of ``principal``, connected from ``host``, on a resource: the operations given, or all that it has.
    Raises BrokerRefused if the lists may not be seen."""
    answer = yield from _described(cluster, AclFilter(resource_type, name, PatternType.MATCH), with_settings=True)
    found = sorted(_all_bindings(answer))
    settings = _settings(answer)
    known = AuthorizerSettings() if settings is None else settings
    lists = _by_pattern(found)
    decisions = []
    for each in operations or OPERATIONS[resource_type]:
        ruling: Ruling = decide(lists.items(), known, principal, host, each)
        decisions.append(Decision(each, ruling.allowed, ruling.reason, ruling.acl))
    super_users = None if settings is None else sorted(known.super_users)
    return Explanation(resource_type, name, principal, host, decisions, found, super_users)


def _settings(answer: DescribeAclsResponse) -> AuthorizerSettings | None:
    """A broker's settings of its authorizer beside the lists; None: it does not tell them."""
    if answer.super_users is None:
        return None
    names = frozenset(part.strip() for part in answer.super_users.split(";") if part.strip())
    return AuthorizerSettings(names, answer.allow_everyone)


def _by_pattern(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, ResourceAcls]:
    entries: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in bindings:
        entries.setdefault(pattern, []).append(entry)
    return {pattern: ResourceAcls(tuple(found)) for pattern, found in entries.items()}


def _all_bindings(answer: DescribeAclsResponse) -> Iterable[AclBinding]:
    return (binding for resource in answer.resources for binding in _bindings(resource))


def _bindings(resource: DescribeAclsResource) -> Iterable[AclBinding]:
    pattern = _pattern(resource.resource_type, resource.pattern_type, resource.resource_name)
    for acl in resource.acls:
        yield AclBinding(pattern, _entry(acl.principal, acl.host, acl.operation, acl.permission_type))


def _pattern(resource_type: int, pattern_type: int, name: str) -> ResourcePattern:
    return ResourcePattern(_known(ResourceType, resource_type), _known(PatternType, pattern_type), name)


def _entry(principal: str, host: str, operation: int, permission: int) -> AclEntry:
    return AclEntry(principal, host, _known(Operation, operation), _known(Permission, permission))


def _known(kind: type[_E], code: int) -> _E:
    """The value of a code; the one for unknown codes (0) where a newer broker has more of them."""
    return kind(code) if code in kind._value2member_map_ else kind(0)
