"""The authorisers: access control lists where ``authorizer.class.name`` is set, otherwise everything is allowed.

The code for the lists and the access log is imported only if configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.core.configs.own_keys import super_users_of

if TYPE_CHECKING:
    from oncelog.core.acls.authorizer import Ruling
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.handlers.api import Operation, ResourceType
    from oncelog.handlers.broker.context import Authoriser
    from oncelog.node.access.access_log import DecisionLog
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox


class AclAuthoriser:
    """Decides by the lists in the present image; implements ``handlers.broker.context.Authoriser``."""

    def __init__(self, cluster: Metadata) -> None:
        from oncelog.core.acls.authorizer import Authorizer, AuthorizerSettings

        self._cluster = cluster
        config = cluster.config
        self._authorizer = Authorizer(
            AuthorizerSettings(super_users_of(config.get("super.users")), config.get("allow.everyone.if.no.acl.found"))
        )

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return self.ruling(principal, host, operation, resource, name).allowed

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """True if the lists allow the operation on at least one name."""
        return self._authorizer.allows_any(self._cluster.image.acls, principal, host, operation, resource)

    def ruling(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Ruling:
        return self._authorizer.ruling(self._cluster.image.acls, (principal, host, operation, resource, name))


class AllowAll:
    """Allows everything, like Apache Kafka without an authorizer; implements ``handlers.broker.context.Authoriser``."""

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return True


def has_authorizer(config: BrokerConfig) -> bool:
    return bool(config.get("authorizer.class.name"))


class AccessControl(NamedTuple):
    """The authoriser and, where access is controlled, the log of its decisions."""

    authoriser: Authoriser
    log: DecisionLog | None = None


def access_control(
    cluster: Metadata, authoriser: Authoriser | None, outbox: Outbox, deadlines: Deadlines
) -> AccessControl:
    """Access control by ``authoriser``; None: by the broker's configuration."""
    if authoriser is not None:
        return AccessControl(authoriser)
    if not has_authorizer(cluster.config):
        return AccessControl(AllowAll())
    from oncelog.node.access.access_log import DecisionLog

    acl_authoriser = AclAuthoriser(cluster)
    return AccessControl(acl_authoriser, DecisionLog(acl_authoriser.ruling, outbox, deadlines))
