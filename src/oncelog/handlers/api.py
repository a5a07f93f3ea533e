"""One row of the registry of APIs, and its vocabulary."""

from __future__ import annotations

import re
from typing import NamedTuple

from oncelog.base.acls import CLUSTER_NAME as CLUSTER_NAME
from oncelog.base.acls import Operation as Operation
from oncelog.base.acls import ResourceType as ResourceType


class Api(NamedTuple):
    """One row of the registry.

    ``handler`` is imported at the first request: ``oncelog.handlers.<handler>`` has ``handle(request, context)`` and
    ``ERRORS`` (error code → when).
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handler: str
    operation: Operation
    resource: ResourceType
    advertised_min_version: int | None = None
    """The lowest version that ApiVersions names where it is not the lowest implemented (Produce only)."""

    @property
    def module(self) -> str:
        """The module of its messages in ``oncelog.wire.messages``."""
        return re.sub("(?<=.)(?=[A-Z])", "_", self.name).lower()
