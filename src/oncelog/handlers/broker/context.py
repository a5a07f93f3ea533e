"""The context of a request: who asks, in which version, and the broker that its handler may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oncelog.base.acls import CLUSTER_NAME, OPERATIONS
from oncelog.base.errors import ErrorCode
from oncelog.base.security import PLAINTEXT_LISTENER, SecurityProtocol
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.ports import ClusterView, Groups, Partitions, Transactions

if TYPE_CHECKING:
    from oncelog.core.controller.image.model import BrokerImage, BrokerRecord


class CoordinatorRefusal(Exception):
    """A group or transactional id that this broker cannot decide for now; ``error_code`` is the answer."""

    def __init__(self, error_code: ErrorCode) -> None:
        self.error_code = error_code
        super().__init__(error_code.name)


class Authoriser(Protocol):
    """Says who may do what."""

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True if ``principal``, connected from ``host`` (``/127.0.0.1``), may do ``operation`` on the resource."""

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """True if ``principal`` may do ``operation`` on some resource of the kind, whether it exists or not."""


class AccessLog(Protocol):
    """Writes down what was asked for, and by whom, where access is controlled."""

    def decided(
        self, context: Context, operation: Operation, resource: ResourceType, name: str, count: int, *, allowed: bool
    ) -> None:
        """Take note of an answer of the authoriser; ``count``: of the items of the request that it is about."""

    def changed(self, context: Context, verb: str, what: str) -> None:
        """Take note of a change of the lists that was made: ``Created`` or ``Deleted``, and which entry."""


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
    access_log: AccessLog | None = None
    """None where access is not controlled."""
    listener_name: str = PLAINTEXT_LISTENER
    """The listener by which the client came."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """The security protocol of that listener."""
    request_bytes: int = 0
    """Size of the request."""
    spent_ns: int = 0
    """Time that earlier requests of the connection took and that was not counted yet; only while quotas are set."""

    def address_of(self, broker: BrokerImage) -> tuple[str, int] | None:
        """Host and port at which a client of this listener reaches a broker; None if that one has no such listener."""
        if broker.broker_id == self.cluster.broker_id:
            return self.listener
        return self.last_address_of(broker)

    def last_address_of(self, broker: BrokerImage | BrokerRecord) -> tuple[str, int] | None:
        """The same of a broker that may be down: where it was when it was registered."""
        endpoint = broker.endpoint(self.listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def allows(self, operation: Operation, resource: ResourceType, name: str, count: int = 1) -> bool:
        """True if the requester may do ``operation`` on the named resource, which ``count`` items of the request ask
        for. A denial is logged: ask so only for what the requester has asked for."""
        allowed = self.authoriser.allows(self.principal, self.client_host, operation, resource, name)
        if self.access_log is not None:
            self.access_log.decided(self, operation, resource, name, count, allowed=allowed)
        return allowed

    def allows_cluster(self, operation: Operation) -> bool:
        """True if the requester may do ``operation`` on the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_topic(self, operation: Operation, topic: str) -> bool:
        """True if the requester may do ``operation`` on the topic."""
        return self.allows(operation, ResourceType.TOPIC, topic)

    def allows_group(self, operation: Operation, group_id: str) -> bool:
        """True if the requester may do ``operation`` on the group."""
        return self.allows(operation, ResourceType.GROUP, group_id)

    def allows_transactional_id(self, operation: Operation, transactional_id: str) -> bool:
        """True if the requester may do ``operation`` on the transactional id."""
        return self.allows(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def allows_silently(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Like :meth:`allows`, not logged: for questions whose denial takes nothing away that was asked for (which
        resources of all may be seen, what else may be done, a right for which another one may stand)."""
        return self.authoriser.allows(self.principal, self.client_host, operation, resource, name)

    def allows_cluster_silently(self, operation: Operation) -> bool:
        """Like :meth:`allows_cluster`, not logged."""
        return self.allows_silently(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_topic_silently(self, operation: Operation, topic: str) -> bool:
        """Like :meth:`allows_topic`, not logged."""
        return self.allows_silently(operation, ResourceType.TOPIC, topic)

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        """True if the requester may do ``operation`` on some resource of the kind."""
        return self.authoriser.allows_any(self.principal, self.client_host, operation, resource)

    def allowed_operations(self, resource: ResourceType, name: str) -> int:
        """Bit field of what the requester may do to a resource, by the codes of ``AclOperation`` (KIP-430)."""
        return sum(
            1 << operation for operation in OPERATIONS[resource] if self.allows_silently(operation, resource, name)
        )
