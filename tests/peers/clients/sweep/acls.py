"""DescribeAcls, CreateAcls and DeleteAcls of a broker without an authorizer."""

from __future__ import annotations

from typing import Final

from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest
from tests.peers.clients.sweep.wire import Sweep, Wire, versions

_UNKNOWN, _ANY, _TOPIC, _CLUSTER, _USER = 0, 1, 2, 4, 7
_MATCH, _LITERAL = 2, 3
_READ, _ALLOW = 3, 3
_UNHEARD_OF: Final = 99


def _describe_acls(wire: Wire) -> None:
    for version in versions(DescribeAclsRequest):
        for kind, pattern, operation, permission in (
            (_ANY, _ANY, _ANY, _ANY),
            (_TOPIC, _LITERAL, _READ, _ALLOW),
            (_USER, _MATCH, _READ, _ALLOW),
            (_UNHEARD_OF, _ANY, _ANY, _ANY),
            (_UNKNOWN, _ANY, _ANY, _ANY),
            (_ANY, _UNKNOWN, _ANY, _ANY),
            (_ANY, _ANY, _UNKNOWN, _ANY),
            (_ANY, _ANY, _ANY, _UNKNOWN),
        ):
            request = DescribeAclsRequest(
                resource_type_filter=kind,
                resource_name_filter=None if kind == _ANY else "sx-acl",
                pattern_type_filter=pattern,
                principal_filter=None if kind == _ANY else "User:sweep",
                host_filter=None if kind == _ANY else "*",
                operation=operation,
                permission_type=permission,
            )
            wire.call(request, version)


def _creation(kind: int = _TOPIC, name: str = "sx-acl", operation: int = _READ) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=_LITERAL,
        principal="User:sweep",
        host="*",
        operation=operation,
        permission_type=_ALLOW,
    )


def _create_acls(wire: Wire) -> None:
    for version in versions(CreateAclsRequest):
        for creations in (
            [],
            [_creation()],
            [_creation(), _creation(), _creation(_CLUSTER, "not-the-cluster"), _creation(name="")],
            [_creation(_UNHEARD_OF)],
            [_creation(), _creation(operation=_UNKNOWN)],
        ):
            wire.call(CreateAclsRequest(creations=creations), version)


def _delete_acls(wire: Wire) -> None:
    for version in versions(DeleteAclsRequest):
        every = DeleteAclsFilter(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        unknown = DeleteAclsFilter(
            resource_type_filter=_UNKNOWN,
            resource_name_filter="sx-acl",
            pattern_type_filter=_LITERAL,
            principal_filter="User:sweep",
            host_filter="*",
            operation=_READ,
            permission_type=_ALLOW,
        )
        for filters in ([], [every], [every, every], [every, unknown]):
            wire.call(DeleteAclsRequest(filters=filters), version)


SWEEPS: Final[dict[str, Sweep]] = {
    "describe-acls": _describe_acls,
    "create-acls": _create_acls,
    "delete-acls": _delete_acls,
}
