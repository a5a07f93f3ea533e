"""A client of one cluster over blocking sockets, for one thread: runs its programs one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Concatenate, Final, NamedTuple, ParamSpec, Self, TypeVar, cast

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.driver import Driver
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.blocking.link import Link
from oncelog.client.blocking.system import THIS_MACHINE, System
from oncelog.client.config import ClientConfig, parse_addresses
from oncelog.client.errors import ClientError
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.requests import produce_request, produce_version_limit
from oncelog.client.programs.cluster import GROUP_KEY, Broker, Cluster
from oncelog.client.programs.log_offsets import ListedOffset, list_offsets
from oncelog.client.programs.operation import show_signature
from oncelog.client.programs.steps import Program, raise_for_error
from oncelog.wire.chunks import Buffer
from oncelog.wire.message import Response

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
P = ParamSpec("P")
R = TypeVar("R", bound=Response)
T = TypeVar("T")


class Produced(NamedTuple):
    """The offset of an appended batch; ``log_append_time`` is −1 unless the broker sets timestamps."""

    base_offset: int
    log_append_time: int
    log_start_offset: int


def _method(program: Callable[Concatenate[Cluster, P], Program[T]]) -> Callable[Concatenate[Client, P], T]:
    @wraps(program)
    def run(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(program(self.cluster, *args, **kwargs))

    show_signature(run, program, inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    return run


class Client:
    """The connections and the metadata of one cluster; a context manager, for one thread. See
    ``programs.cluster.Cluster``.

    ``config`` is a ClientConfig or a mapping with Java-style keys. Raises ConfigError for invalid values.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str | None = None,
        config: ClientConfig | Mapping[str, str] | None = None,
        system: System = THIS_MACHINE,
    ) -> None:
        text = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        self.bootstrap = parse_addresses(text)
        if not isinstance(config, ClientConfig):
            config = ClientConfig.from_properties(config or {})
            config = replace(config, client_id=client_id) if client_id else config
        self.config = config
        self.system = system
        driver = Driver(config, system)
        self.run = driver.run
        self.cluster = Cluster(self.bootstrap, config, driver)
        self.view = self.cluster.view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; later calls raise Closed."""
        for link in self.cluster.close():
            link.abort()

    def link(self, broker: Broker = "any") -> Link:
        return cast("Link", self.run(self.cluster.link(broker)))

    def connect(self, broker: int) -> Link:
        return cast("Link", self.run(self.cluster.connect(broker)))

    def forget_coordinator(self, key: str, key_type: int = GROUP_KEY) -> None:
        self.cluster.forget_coordinator(key, key_type)

    def retrying(self, attempt: Callable[[], T], timeout_ms: int | None = None) -> T:

        def program() -> Program[T]:
            yield from ()
            return attempt()

        return self.run(self.cluster.retrying(program, timeout_ms))

    def may_pass(self, error: ClientError) -> bool:
        return self.cluster.may_pass(error)

    request = _method(Cluster.request)
    coordinator = _method(Cluster.coordinator)
    pause = _method(Cluster.pause)
    refresh = _method(Cluster.refresh)
    refresh_brokers = _method(Cluster.refresh_brokers)
    all_topics = _method(Cluster.all_topics)
    metadata = _method(Cluster.metadata)
    topic = _method(Cluster.topic)
    leader = _method(Cluster.leader)
    by_leader = _method(Cluster.by_leader)
    list_offsets = _method(list_offsets)

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        until: Mapping[TopicPartition, int] | None = None,
        settings: FetchSettings | None = None,
    ) -> Iterator[Fetched]:
        """Raw batches from ``positions`` on, as they arrive; ends when every partition is at its ``until``.

        Without ``until`` it never ends, and yields partitions without records after each idle wait, so that the caller
        can stop. A partition with a final ``error_code`` is yielded once and not fetched again.
        """
        fetcher = Fetcher(self, settings or FetchSettings())
        fetcher.assign(positions, until)
        try:
            while len(fetcher):
                yield from fetcher.poll()
        finally:
            fetcher.close()

    def produce(
        self, partition: TopicPartition, batch: Buffer, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> Produced | None:
        """Append one whole batch (format 2). Returns None for acks=0, which has no response.

        Retried while errors may pass; only an idempotent producer's batch is sure not to be appended twice.
        """

        def attempt() -> Produced | None:
            link = self.link(self.leader(partition))
            message = produce_request(self.view, {partition: batch}, acks, timeout_ms)
            version = link.versions.choose(message, produce_version_limit(self.view, [partition]))
            correlation_id = link.submit(message, version, answered=acks != 0)
            if acks == 0:
                return None
            response = link.decode(link.response(correlation_id))
            answer = response.responses[0].partition_responses[0]
            raise_for_error(answer, f"produce to {partition}")
            return Produced(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)

        return self.retrying(attempt)


__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "Client", "ListedOffset", "Produced"]
