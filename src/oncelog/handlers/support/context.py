"""The context of a request: who asks, in which version, and the broker that its handler may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from oncelog.base.errors import ErrorCode
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.support.ports import ClusterView, Groups, Partitions, Transactions


class CoordinatorRefusal(Exception):
    """This broker cannot decide for the group or transactional id now; ``error_code`` is the answer."""

    def __init__(self, error_code: ErrorCode) -> None:
        self.error_code = error_code
        super().__init__(error_code.name)


class Authoriser(Protocol):
    """Says who may do what. The one that ships allows all; tests use one that denies."""

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True if ``principal``, connected from ``host`` (``/127.0.0.1``), may do ``operation`` on the resource."""


@dataclass(slots=True)
class Context:
    """One request's circumstances."""

    partitions: Partitions
    groups: Groups
    transactions: Transactions
    cluster: ClusterView
    authoriser: Authoriser
    api_key: int
    version: int
    connection_id: int
    client_id: str | None
    client_host: str
    """``/127.0.0.1``, as Apache Kafka shows it in group descriptions."""
    principal: str
    listener: tuple[str, int]
    """Host and port to advertise to clients that came by this listener."""
    now_ms: int
    """Time at which the request is decided; kept current, so a resumed generator reads it again."""

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True if the requester may do ``operation`` on the named resource."""
        return self.authoriser.allows(self.principal, self.client_host, operation, resource, name)
