"""The authoriser by access control lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.core.acls.authorizer import Authorizer, AuthorizerSettings, Ruling
from oncelog.core.configs.own_keys import super_users_of

if TYPE_CHECKING:
    from oncelog.handlers.api import Operation, ResourceType
    from oncelog.node.cluster.metadata import Metadata


class AclAuthoriser:
    """See :class:`oncelog.handlers.broker.context.Authoriser`: by the lists that the cluster's image has at the moment
    of the question."""

    def __init__(self, cluster: Metadata) -> None:
        self._cluster = cluster
        config = cluster.config
        self._authorizer = Authorizer(
            AuthorizerSettings(super_users_of(config.get("super.users")), config.get("allow.everyone.if.no.acl.found"))
        )

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True if the lists allow it."""
        return self.ruling(principal, host, operation, resource, name).allowed

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """True if the lists allow it for some name."""
        return self._authorizer.allows_any(self._cluster.image.acls, principal, host, operation, resource)

    def ruling(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Ruling:
        """The answer of :meth:`allows` with its reason."""
        return self._authorizer.ruling(self._cluster.image.acls, (principal, host, operation, resource, name))
