"""One row of the registry of APIs, and its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Operation(Enum):
    """The operation that a request asks for, by Apache Kafka's ``AclOperation`` names and codes."""

    NONE = 0
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15


class ResourceType(Enum):
    """The kind of a protected resource, by Apache Kafka's ``ResourceType`` names and codes."""

    NONE = 0
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the registry.

    ``module`` is imported at the first request: ``oncelog.handlers.<module>`` has ``handle(request, context)`` and
    ``ERRORS`` (error code → when), and ``oncelog.wire.messages.<module>`` the messages.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    module: str
    operation: Operation
    resource: ResourceType
    advertised_min_version: int | None = None
    """The lowest version that ApiVersions names where it is not the lowest implemented (Produce only)."""
