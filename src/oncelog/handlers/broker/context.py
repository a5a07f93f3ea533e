"""The context of a request: the sender, the version, and the ports of the broker that its handler may use."""

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
    """This broker cannot decide for a group or a transactional id now; ``error_code`` is the answer."""

    def __init__(self, error_code: ErrorCode) -> None:
        self.error_code = error_code
        super().__init__(error_code.name)


class Authoriser(Protocol):
    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """True if ``principal``, connected from ``host`` (``/127.0.0.1``), may do ``operation`` on the resource."""

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """True if ``principal`` may do ``operation`` on some resource of the kind, existing or not."""


class AccessLog(Protocol):
    """The log of authorisation decisions, while access is controlled."""

    def decided(
        self, context: Context, operation: Operation, resource: ResourceType, name: str, count: int, *, allowed: bool
    ) -> None:
        """Log a decision of the authoriser about ``count`` items of the request."""

    def changed(self, context: Context, verb: str, entry: str) -> None:
        """Log a change of the ACLs: ``Created`` or ``Deleted``, and the entry."""


@dataclass(slots=True)
class Context:
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
    """``/127.0.0.1``, the form of Apache Kafka's group descriptions."""
    principal: str
    listener: tuple[str, int]
    """Host and port to advertise to clients of the request's listener."""
    now_ms: int
    """Time at which the request is decided; kept current, so a resumed generator reads it again."""
    access_log: AccessLog | None = None
    """None if access is not controlled."""
    listener_name: str = PLAINTEXT_LISTENER
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    request_bytes: int = 0
    spent_ns: int = 0
    """Uncounted time of earlier requests of the connection; only while quotas are set."""

    def address_of(self, broker: BrokerImage) -> tuple[str, int] | None:
        """Host and port of a broker on the client's listener; None if the broker has no such listener."""
        if broker.broker_id == self.cluster.broker_id:
            return self.listener
        return self.last_address_of(broker)

    def last_address_of(self, broker: BrokerImage | BrokerRecord) -> tuple[str, int] | None:
        """Like :meth:`address_of`, for a broker that may be down: its address when it registered."""
        endpoint = broker.endpoint(self.listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def allows(self, operation: Operation, resource: ResourceType, name: str, count: int = 1) -> bool:
        """True if the requester may do ``operation`` on the resource, which ``count`` items of the request name.
        Denials are logged: check only what was asked for.
        """
        allowed = self.authoriser.allows(self.principal, self.client_host, operation, resource, name)
        if self.access_log is not None:
            self.access_log.decided(self, operation, resource, name, count, allowed=allowed)
        return allowed

    def allows_cluster(self, operation: Operation) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_topic(self, operation: Operation, topic: str) -> bool:
        return self.allows(operation, ResourceType.TOPIC, topic)

    def allows_group(self, operation: Operation, group_id: str) -> bool:
        return self.allows(operation, ResourceType.GROUP, group_id)

    def allows_transactional_id(self, operation: Operation, transactional_id: str) -> bool:
        return self.allows(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def allows_silently(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Like :meth:`allows`, without an access log entry: for checks whose denial withholds nothing asked for (which
        resources to list, what else is allowed, a right that another one may replace).
        """
        return self.authoriser.allows(self.principal, self.client_host, operation, resource, name)

    def allows_cluster_silently(self, operation: Operation) -> bool:
        return self.allows_silently(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_topic_silently(self, operation: Operation, topic: str) -> bool:
        return self.allows_silently(operation, ResourceType.TOPIC, topic)

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        return self.authoriser.allows_any(self.principal, self.client_host, operation, resource)

    def allowed_operations(self, resource: ResourceType, name: str) -> int:
        """Bit field of the allowed operations on a resource, by the codes of ``AclOperation`` (KIP-430)."""
        return sum(
            1 << operation for operation in OPERATIONS[resource] if self.allows_silently(operation, resource, name)
        )
