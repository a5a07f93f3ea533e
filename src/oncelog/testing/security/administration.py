"""Creates the access control lists of a test as a super user, with the request of Apache Kafka's tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from oncelog.base.errors import ErrorCode
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest

_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


def acl_creations(
    user: str,
    operations: Sequence[str],
    resources: Mapping[str, str | None],
    *,
    allowed: bool,
    prefixed: bool,
    host: str,
) -> list[AclCreation]:
    """The entries for a user: each operation on each resource (default: all), by type and name. Raises ValueError for
    an unknown operation."""
    named = [(_TYPES[kind], name) for kind, name in resources.items() if name is not None and kind in _TYPES]
    if resources.get("cluster"):
        named.append((ResourceType.CLUSTER, CLUSTER_NAME))
    if not named:
        named = [*((kind, WILDCARD) for kind in _TYPES.values()), (ResourceType.CLUSTER, CLUSTER_NAME)]
    return [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=_pattern(kind, name, prefixed),
            principal=f"User:{user}",
            host=host,
            operation=_operation(operation),
            permission_type=Permission.ALLOW if allowed else Permission.DENY,
        )
        for operation in operations or ("all",)
        for kind, name in named
    ]


def _pattern(kind: ResourceType, name: str, prefixed: bool) -> PatternType:
    literal = not prefixed or name == WILDCARD or kind is ResourceType.CLUSTER
    return PatternType.LITERAL if literal else PatternType.PREFIXED


def _operation(name: str) -> Operation:
    operations = {operation.name.lower(): operation for operation in Operation if operation > Operation.ANY}
    match = operations.get(name.lower())
    if match is None:
        raise ValueError(f"{name!r} is not an operation; use one of {', '.join(operations)}")
    return match


def create_acls(client: Client, creations: Sequence[AclCreation]) -> None:
    response = client.request(CreateAclsRequest(creations=list(creations)), broker="controller")
    _check([(result.error_code, result.error_message) for result in response.results], "access control lists")


def _check(outcomes: Sequence[tuple[int, str | None]], subject: str) -> None:
    for code, message in outcomes:
        if code != ErrorCode.NONE:
            raise BrokerRefused(code, subject, message)
