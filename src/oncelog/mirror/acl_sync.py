"""Access control lists of the source's topics, made for their copies too, if asked (``--acls``).

Rules: who may read a topic may read its copy, and who may not may not; nobody gets to write or change a copy by this,
for that is the mirror's. Entries are only made, never removed: what is taken back at the source is to be taken back at
the target by hand. Patterns change their names as topics do. A list for all topics (``*``) becomes one for all copies
of the source, or none where topics keep their names: there it would be for the target's own topics as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from oncelog.base.acls import WILDCARD, Operation, PatternType, Permission, ResourceType
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.mirror.settings import SEPARATOR, MirrorSettings, Naming
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.describe_acls import DescribeAclsRequest

_READING: Final = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})


class TopicAcl(NamedTuple):
    """An entry for a topic or a pattern of topics."""

    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


def wanted_acls(settings: MirrorSettings, acls: Iterable[TopicAcl], topics: Collection[str]) -> set[TopicAcl]:
    """The entries for copies that follow from those at the source; ``topics`` are the topics that are copied."""
    wanted = set()
    for acl in acls:
        operation = acl.operation
        if acl.permission == Permission.ALLOW:
            operation = Operation.READ if operation == Operation.ALL else operation
            if operation not in _READING:
                continue
        name, pattern = acl.name, acl.pattern
        if name == WILDCARD:
            if settings.naming is Naming.identity:
                continue
            name, pattern = settings.source.alias + SEPARATOR, PatternType.PREFIXED
        elif (pattern == PatternType.PREFIXED and any(topic.startswith(name) for topic in topics)) or (
            pattern == PatternType.LITERAL and name in topics
        ):
            name = settings.target_name(name)
        else:
            continue
        wanted.add(acl._replace(name=name, pattern=int(pattern), operation=int(operation)))
    return wanted


async def sync_acls(settings: MirrorSettings, source: AsyncClient, target: AsyncClient, topics: Collection[str]) -> int:
    """Make the entries that the target lacks; how many. Raises BrokerRefused, also where there is no authorizer."""
    wanted = wanted_acls(settings, await _topic_acls(source, settings.source.alias), topics)
    missing = sorted(wanted - set(await _topic_acls(target, "the target"))) if wanted else []
    if missing:
        await target.retrying(lambda: _create(target, missing))
    return len(missing)


async def _topic_acls(client: AsyncClient, where: str) -> list[TopicAcl]:
    message = DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )

    async def attempt() -> list[TopicAcl]:
        response = await client.request(message)
        if response.error_code:
            raise BrokerRefused(response.error_code, f"--acls: access control lists of {where}", response.error_message)
        return [
            TopicAcl(
                found.resource_name, found.pattern_type, one.principal, one.host, one.operation, one.permission_type
            )
            for found in response.resources
            for one in found.acls
        ]

    return await client.retrying(attempt)


async def _create(client: AsyncClient, acls: list[TopicAcl]) -> None:
    creations = [
        AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    link = await client.link()
    if client.view.controller_id in client.view.brokers:
        link = await client.link(client.view.controller_id)
    for result in (await link.call(CreateAclsRequest(creations=creations))).results:
        if result.error_code:
            raise BrokerRefused(result.error_code, "--acls: access control lists of the target", result.error_message)
