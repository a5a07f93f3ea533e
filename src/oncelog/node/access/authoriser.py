"""The authorisers that ship: by access control lists where ``authorizer.class.name`` says so, otherwise none.

Those lists, and the log of what they decide, are imported where they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.handlers.api import Operation, ResourceType
    from oncelog.handlers.broker.context import Authoriser
    from oncelog.node.access.access_log import DecisionLog
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox


class AllowAll:
    """See :class:`oncelog.handlers.broker.context.Authoriser`: everybody may do everything, as in Apache Kafka without
    an authorizer."""

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Always."""
        return True

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Always."""
        return True


def has_authorizer(config: BrokerConfig) -> bool:
    """True if access control lists decide."""
    return bool(config.get("authorizer.class.name"))


class AccessControl(NamedTuple):
    """The authoriser, and the log of its decisions where access is controlled."""

    authoriser: Authoriser
    log: DecisionLog | None = None


def access_control(
    cluster: Metadata, authoriser: Authoriser | None, outbox: Outbox, deadlines: Deadlines
) -> AccessControl:
    """Access control by ``authoriser``; None: by what the broker's configuration asks for."""
    if authoriser is not None:
        return AccessControl(authoriser)
    if not has_authorizer(cluster.config):
        return AccessControl(AllowAll())
    from oncelog.node.access.access_log import DecisionLog
    from oncelog.node.access.acl_authoriser import AclAuthoriser

    by_lists = AclAuthoriser(cluster)
    return AccessControl(by_lists, DecisionLog(by_lists.ruling, outbox, deadlines))
