"""The authoriser that ships: everybody may do everything, as Apache Kafka without one."""

from __future__ import annotations

from oncelog.handlers.api import Operation, ResourceType


class AllowAll:
    """See :class:`oncelog.handlers.support.context.Authoriser`."""

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Always."""
        return True
