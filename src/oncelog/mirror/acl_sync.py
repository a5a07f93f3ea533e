"""Access control lists of the source's topics, made for their copies too, if asked (``--acls``).

Rules: who may read a topic may read its copy, and who may not may not; nobody gets to write or change a copy by this,
for that is the mirror's. Entries are only made, never removed: what is taken back at the source is to be taken back at
the target by hand. Patterns change their names as topics do. A list for all topics (``*``) becomes one for all copies
of the source, or none where topics keep their names: there it would be for the target's own topics as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from oncelog.admin.acls import AclFilter, create_acls, list_acls
from oncelog.base.acls import (
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.mirror.settings import SEPARATOR, MirrorSettings, Naming

_READING: Final = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS})


def wanted_acls(settings: MirrorSettings, acls: Iterable[AclBinding], topics: Collection[str]) -> set[AclBinding]:
    """The entries for copies that follow from those at the source; ``topics`` are the topics that are copied."""
    wanted = set()
    for (kind, pattern, name), entry in acls:
        operation = entry.operation
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
        wanted.add(AclBinding(ResourcePattern(kind, pattern, name), entry._replace(operation=operation)))
    return wanted


async def sync_acls(settings: MirrorSettings, source: AsyncClient, target: AsyncClient, topics: Collection[str]) -> int:
    """Make the entries that the target lacks; how many. Raises BrokerRefused, also where there is no authorizer."""
    of_topics = AclFilter(ResourceType.TOPIC)
    with _asked_for(f"access control lists of {settings.source.alias}"):
        wanted = wanted_acls(settings, await list_acls(source, of_topics), topics)
    with _asked_for("access control lists of the target"):
        missing = sorted(wanted - set(await list_acls(target, of_topics))) if wanted else []
        if missing:
            await create_acls(target, missing)
    return len(missing)


@contextmanager
def _asked_for(what: str) -> Iterator[None]:
    """Names the option, and whose lists they are, in a refusal."""
    try:
        yield
    except BrokerRefused as error:
        raise BrokerRefused(error.code, f"--acls: {what}", error.detail) from None
