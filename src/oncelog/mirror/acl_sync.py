"""Copies access control lists of the source's topics to their copies, on request (``--acls``).

A principal may read a copy if it may read the topic; no entry allows anyone to write or change a copy. Entries are
never removed: permissions revoked at the source have to be revoked at the target by hand. Patterns are renamed as
topics are. A list for all topics (``*``) becomes one for all copies of the source, or none if topics keep their names:
it would also cover the target's own topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.admin.acls import AclFilter, create_acls, list_acls
from oncelog.base.acls import WILDCARD, AclBinding, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.mirror.settings import SEPARATOR, MirrorSettings, Naming

_READING: Final = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})


def wanted_acls(settings: MirrorSettings, acls: Iterable[AclBinding], topics: Collection[str]) -> set[AclBinding]:
    target_acls = set()
    for (kind, pattern, name), entry in acls:
        operation = entry.operation
        if operation is Operation.NONE or entry.permission is Permission.UNKNOWN:
            continue  # a newer source's entry, which the target's request cannot express
        if entry.permission is Permission.ALLOW:
            operation = Operation.READ if operation is Operation.ALL else operation
            if operation not in _READING:
                continue
        if name == WILDCARD:
            if settings.naming is Naming.identity:
                continue
            name, pattern = settings.source.alias + SEPARATOR, PatternType.PREFIXED
        elif (pattern is PatternType.PREFIXED and any(topic.startswith(name) for topic in topics)) or (
            pattern is PatternType.LITERAL and name in topics
        ):
            name = settings.target_name(name)
        else:
            continue
        target_acls.add(AclBinding(ResourcePattern(kind, pattern, name), entry._replace(operation=operation)))
    return target_acls


async def sync_acls(settings: MirrorSettings, source: AsyncClient, target: AsyncClient, topics: Collection[str]) -> int:
    """Create the missing entries. Returns their number. Raises BrokerRefused, also if there is no authorizer."""
    of_topics = AclFilter(ResourceType.TOPIC)
    with _refusals_named(f"access control lists of {settings.source.alias}"):
        target_acls = wanted_acls(settings, await list_acls(source, of_topics), topics)
    with _refusals_named("access control lists of the target"):
        missing = sorted(target_acls - set(await list_acls(target, of_topics))) if target_acls else []
        if missing:
            await create_acls(target, missing)
    return len(missing)


@contextmanager
def _refusals_named(subject: str) -> Iterator[None]:
    """Names the option and the cluster in a refusal."""
    try:
        yield
    except BrokerRefused as error:
        raise BrokerRefused(error.code, f"--acls: {subject}", error.detail) from None
