"""A broker as the handlers see it, with a real tree in memory and a real image; no logs, no groups."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from oncelog.base.ids import BrokerId, TopicPartition
from oncelog.base.security import ANONYMOUS, SecurityProtocol
from oncelog.base.tree import CommitOutcome, commit_size
from oncelog.coordination.memory import MemoryTree
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.brokers.registration import Registration, register
from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage, changes_of, load_image
from oncelog.core.controller.producer_ids import ProducerIds, next_block
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.limits import ClientLimits, ReplicationLimit
from oncelog.handlers.broker.waits import CommitMetadata, NextSlice, UntilElected, UntilProducerId
from oncelog.handlers.registry import BY_KEY
from oncelog.ports import Conflict, Coordination
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.unit.handlers.no_limits import NO_LIMIT, UNLIMITED

HOST, PORT = "broker.test", 9092


class ClusterBroker:
    """The facts of one broker in a cluster of its own."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, broker_id: int = 1, session: Coordination | None = None
    ) -> None:
        self.broker_id = BrokerId(broker_id)
        self.quotas: ClientLimits = UNLIMITED
        self.failed_brokers: frozenset[BrokerId] = frozenset()
        self.departed_brokers: Brokers = {}
        self.elect: Callable[[], None] = lambda: None
        """Happens while a request waits until leaders are elected."""
        self.waited = 0
        self.leader_throttle: ReplicationLimit = NO_LIMIT
        self.static = BrokerConfig(settings)
        self.session = session or MemoryTree().session()
        self.commit_sizes: list[int] = []
        self.image: ClusterImage = load_image([])
        self.sizes: dict[TopicPartition, int] = {}
        self.producer_ids: ProducerIds | None = ProducerIds()
        self._random = 0
        self.before_commit: Callable[[], None] | None = None
        self.listener_name = "PLAINTEXT"
        self.principal = ANONYMOUS
        self.security_protocol = SecurityProtocol.PLAINTEXT
        """Of the clients that ask."""
        self.commit(register(self.image, Registration(self.broker_id, HOST, PORT, None, "cluster"), 0))

    @property
    def cluster_id(self) -> str:
        assert self.image.cluster_id is not None
        return self.image.cluster_id

    @property
    def config(self) -> BrokerConfig:
        return self.static.with_dynamic(*self.image.dynamic_broker_configs(self.broker_id))

    def random_bytes(self, size: int) -> bytes:
        self._random += 1
        return self._random.to_bytes(size, "big")

    def disk_bytes(self) -> tuple[int, int]:
        return 1000, 400

    def is_directory_offline(self) -> bool:
        return False

    def replica_size_bytes(self, partition: TopicPartition) -> int | None:
        return self.sizes.get(partition)

    def is_creating_logs(self) -> bool:
        return False

    def commit(self, operations: Any) -> CommitOutcome:
        if self.before_commit is not None:
            intervene, self.before_commit = self.before_commit, None
            intervene()
        self.commit_sizes.append(commit_size(operations))
        try:
            self.session.commit(operations)
        except Conflict:
            return CommitOutcome.CONFLICT
        self.image = self.image.apply(changes_of(operations)).image
        return CommitOutcome.COMMITTED

    def context(self, api_key: int, version: int, authoriser: Any = None) -> Context:
        """The context of a client's request, as the node makes it."""
        return Context(
            partitions=self,  # type: ignore[arg-type]  # only what these handlers ask for
            groups=self,  # type: ignore[arg-type]
            transactions=self,  # type: ignore[arg-type]
            cluster=self,
            authoriser=authoriser or AllowAll(),
            api_key=api_key,
            version=version,
            connection_id=1,
            client_id="test",
            client_host="/127.0.0.1",
            principal=self.principal,
            listener=(HOST, PORT),
            now_ms=0,
            listener_name=self.listener_name,
            security_protocol=self.security_protocol,
        )

    def call(self, request: Any, version: int, authoriser: Any = None) -> Any:
        """Decide a request as the node would: the response decoded from its bytes in ``version``."""
        api = BY_KEY[request.API_KEY]
        context = self.context(api.key, version, authoriser)
        decoded = type(request).decode(b"".join(bytes(c) for c in request.encode(version)), version)
        answer = api.load_handler()(decoded, context)
        if isinstance(answer, Generator):
            answer = self._drive(answer)
        response_type: Any = type(answer) if type(answer).__name__[0] != "_" else type(answer).__mro__[1]
        return response_type.decode(b"".join(bytes(c) for c in answer.encode(version)), version)

    def _drive(self, steps: Any) -> Any:
        outcome: Any = None
        while True:
            try:
                wait = steps.send(outcome)
            except StopIteration as done:
                return done.value
            if isinstance(wait, CommitMetadata):
                outcome = self.commit(wait.operations)
            elif isinstance(wait, NextSlice):
                outcome = None
            elif isinstance(wait, UntilProducerId):
                outcome = self._producer_id()
            elif isinstance(wait, UntilElected):
                assert not wait.ready(), "nobody waits for what is there"
                self.waited += 1
                self.elect()
                assert wait.ready()
                outcome = None
            else:
                raise TypeError(wait)

    def _producer_id(self) -> int | None:
        if self.producer_ids is None:
            return None
        if self.producer_ids.wants_block:
            operation, first = next_block(self.image, self.broker_id)
            self.commit([operation])
            self.producer_ids.granted(first)
        return self.producer_ids.take()


class AllowAll:
    """Everybody may do everything."""

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return True


class Denying:
    """Denies what is named: (operation, resource type, name), None for any name."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str | None]) -> None:
        self._denied = denied

    def allows(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource, name) not in self._denied and (operation, resource, None) not in self._denied

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return (operation, resource, None) not in self._denied


NO_CLUSTER = {
    operation: Denying((operation, ResourceType.CLUSTER, None))
    for operation in (Operation.ALTER, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
}
"""Authorisers that deny one operation on the cluster."""


def configured_broker() -> ClusterBroker:
    """A broker with configs of its own, and the topics ``t`` and ``u`` of three partitions."""
    settings = {"log.retention.hours": "1", "message.max.bytes": "2000000", "unknown.key": "secret"}
    broker = ClusterBroker({**settings, "super.users": "User:a", "allow.everyone.if.no.acl.found": "true"})
    topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in ("t", "u")]
    broker.call(CreateTopicsRequest(topics=topics), 7)
    return broker
