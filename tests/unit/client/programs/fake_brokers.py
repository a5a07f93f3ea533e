"""A cluster of fake brokers in virtual time, and clients of it that run programs by each of the two drivers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pytest

from oncelog.client.addresses import Address
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.driver import Driver as AsyncDriver
from oncelog.client.blocking.driver import Driver as BlockingDriver
from oncelog.client.blocking.stream import Stream
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ConnectionLost, NoBrokerReachable, RebootstrapRequired, RequestTimedOut
from oncelog.client.machine.connection import Expected, ExpectedBroker, Response
from oncelog.client.machine.versions import Versions
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.steps import Program
from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.loop import SimulatedLoop
from oncelog.wire.message import Request
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T = TypeVar("T")
LATENCY_MS = 10
CONFIG = ClientConfig(retry_backoff_ms=100, retry_backoff_max_ms=1000, retry_timeout_ms=10_000, request_timeout_ms=3000)
Answer = Callable[[int, Any], ResponseMessage | None]
"""The response of a broker to a request; None for none. May raise ConnectionLost."""


class FakeBrokers:
    """Brokers with the ids 1 to ``count``; each answers after LATENCY_MS and what ``slow_ms`` adds."""

    def __init__(self, count: int = 3) -> None:
        self.addresses = {broker: Address("h", broker) for broker in range(1, count + 1)}
        self.leaders: dict[str, dict[int, int]] = {}
        self.controller_id = 1
        self.metadata_error = 0
        self.features: dict[str, int] = {}
        self.down: set[int] = set()
        self.unreachable: set[int] = set()
        """Brokers to which a connection is neither made nor refused."""
        self.connect_ms: dict[int, int] = {}
        """How long a connection to a broker takes."""
        self.slow_ms: dict[int, int] = {}
        self.answers: dict[type[Request[Any]], Answer] = {MetadataRequest: self._metadata}
        self.requests: list[tuple[int, Request[Any]]] = []
        """Requests as they came, each with its broker."""
        self.connections = 0
        self.links: list[FakeLink] = []
        self.cluster_id: str | None = None
        self.expected: list[ExpectedBroker | None] = []
        """The brokers that connections were meant for."""
        self.decoded = 0
        self.now_ms = 0

    def connects(self, broker: int, timeout_ms: int | None) -> bool:
        """True if a connection to the broker is made, or refused, within the time-out."""
        allowed_ms = CONFIG.open_timeout_ms if timeout_ms is None else timeout_ms
        return broker not in self.unreachable and self.connect_ms.get(broker, 0) <= allowed_ms

    def asked(self, kind: type[Request[Any]]) -> list[int]:
        """The brokers that got requests of a kind, in order."""
        return [broker for broker, message in self.requests if isinstance(message, kind)]

    def answer(self, broker: int, message: Request[Any]) -> ResponseMessage | None:
        self.requests.append((broker, message))
        return self.answers[type(message)](broker, message)

    def _metadata(self, _: int, message: MetadataRequest) -> MetadataResponse:
        names = self.leaders if message.topics is None else [_name(topic) for topic in message.topics]
        brokers = [MetadataResponseBroker(node_id=b, host=at.host, port=at.port) for b, at in self.addresses.items()]
        topics = [
            MetadataResponseTopic(
                name=name,
                topic_id=name.encode().ljust(16)[:16],
                error_code=0 if name in self.leaders else 3,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader)
                    for index, leader in self.leaders.get(name, {}).items()
                ],
            )
            for name in names
        ]
        return MetadataResponse(
            error_code=self.metadata_error,
            cluster_id=self.cluster_id,
            brokers=brokers,
            controller_id=self.controller_id,
            topics=topics,
        )


def _name(topic: MetadataRequestTopic) -> str:
    """A topic's name in a request, which may have its id instead."""
    return topic.name or topic.topic_id.strip(b"\0 ").decode()


class FakeLink:
    """A link to a fake broker, for both drivers."""

    def __init__(
        self,
        brokers: FakeBrokers,
        address: Address,
        expected: ExpectedBroker | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        broker = address.port
        if not brokers.connects(broker, timeout_ms):
            brokers.now_ms += CONFIG.open_timeout_ms if timeout_ms is None else timeout_ms
            raise NoBrokerReachable(f"no broker at {address}: no answer")
        brokers.now_ms += brokers.connect_ms.get(broker, 0)
        brokers.expected.append(expected)
        if broker in brokers.down:
            raise NoBrokerReachable(f"no broker at {address}")
        if expected is not None and (expected.cluster_id, expected.broker_id) != (brokers.cluster_id, broker):
            raise RebootstrapRequired(f"{expected} is elsewhere")
        brokers.connections += 1
        brokers.links.append(self)
        self.address = address
        self.is_open = True
        self.stream = self
        self.versions = Versions(dict.fromkeys(range(100), (0, 99)), dict(brokers.features))
        self._brokers = brokers
        self.broker = broker
        self._closed = asyncio.Event()
        self._due: dict[int, tuple[float, Response[Any] | None]] = {}
        """By correlation id: the time at which a response comes, and the response."""
        self._last_ms = 0.0
        """The time of the last response: they come in the order of their requests."""

    def abort(self) -> None:
        self.is_open = False
        self._closed.set()

    close = abort
    missing = 0

    def pending(self) -> bool:
        return any(self.has_arrived(correlation_id) for correlation_id in self._due)

    def submit(self, message: Request[Any], version: int | None = None, *, answered: bool = True) -> int:
        self._require_open()
        correlation_id = len(self._brokers.requests)
        answer = self._brokers.answer(self.broker, message)
        chosen = self.versions.choose(message) if version is None else version
        response = None
        if answer is not None:
            body = memoryview(b"".join(bytes(chunk) for chunk in answer.encode(chosen)))
            response = Response(Expected(correlation_id, message.API_KEY, chosen, type(answer)), body)
        due_ms: float = self._brokers.now_ms + LATENCY_MS + self._brokers.slow_ms.get(self.broker, 0)
        if answered:
            due_ms = self._last_ms = max(due_ms, self._last_ms) if response is not None else math.inf
        self._due[correlation_id] = due_ms, response
        return correlation_id

    def response(self, correlation_id: int, timeout_ms: int | None) -> Response[Any]:
        due_ms, response = self._due.pop(correlation_id)
        allowed = CONFIG.request_timeout_ms if timeout_ms is None else timeout_ms
        if response is None or due_ms > self._brokers.now_ms + allowed:
            self._brokers.now_ms += allowed
            self.abort()
            raise RequestTimedOut(f"no answer from {self.address} within {allowed} ms")
        self._brokers.now_ms = max(self._brokers.now_ms, int(due_ms))
        return response

    def has_arrived(self, correlation_id: int) -> bool:
        due_ms, response = self._due[correlation_id]
        return response is not None and due_ms <= self._brokers.now_ms

    def arrived(self, correlation_id: int) -> Response[Any] | None:
        self._require_open()
        return self._due.pop(correlation_id)[1] if self.has_arrived(correlation_id) else None

    def next_ms(self) -> float:
        return min((due for due, response in self._due.values() if response is not None), default=float("inf"))

    def read(self, response: Response[Any], read: Callable[[Response[Any]], T]) -> T:
        self._brokers.decoded += 1
        return read(response)

    def decode(self, response: Response[Any]) -> Any:
        return self.read(response, Response.decode)

    async def call(
        self, message: Request[Any], version: int | None, timeout_ms: int | None, *, answered: bool = True
    ) -> Any:
        if not answered:
            self.submit(message, version, answered=False)
            return None
        return await self.ask(message, version, timeout_ms, Response.decode)

    async def ask(
        self, message: Request[Any], version: int | None, timeout_ms: int | None, read: Callable[[Response[Any]], T]
    ) -> T:
        self._brokers.now_ms = int(asyncio.get_running_loop().time() * 1000)
        due_ms, response = self._due.pop(self.submit(message, version))
        allowed = CONFIG.request_timeout_ms if timeout_ms is None else timeout_ms
        wait_ms = due_ms - self._brokers.now_ms
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((allowed if response is None else min(wait_ms, allowed)) / 1000):
                    await self._closed.wait()
        except asyncio.CancelledError:
            self.abort()
            raise
        self._brokers.now_ms = int(asyncio.get_running_loop().time() * 1000)
        self._require_open()
        if response is None or wait_ms > allowed:
            self.abort()
            raise RequestTimedOut(f"no answer from {self.address} within {allowed} ms")
        return self.read(response, read)

    def _require_open(self) -> None:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")


class AsyncFakeLink(FakeLink):
    """The same for asyncio alone, where closing is awaited."""

    async def close(self) -> None:  # type: ignore[override]
        self.abort()


class VirtualSystem:
    """The System of a blocking driver, in virtual time."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self._brokers = brokers

    def connect(self, address: Address, config: ClientConfig, timeout_ms: int) -> Stream:
        raise AssertionError("links are fakes")

    def now_ms(self) -> int:
        return self._brokers.now_ms

    wall_ms = now_ms

    def now_us(self) -> int:
        return self._brokers.now_ms * 1000

    def sleep(self, milliseconds: float) -> None:
        self._brokers.now_ms += int(milliseconds)

    def wait(self, streams: Sequence[Any], wait_ms: float) -> bool:
        due = min(link.next_ms() for link in streams)
        self._brokers.now_ms = int(min(due, self._brokers.now_ms + wait_ms))
        return due <= self._brokers.now_ms

    def jitter(self, least: int, most: int) -> int:
        return 0


class Runner(Protocol):
    """Runs programs to their ends, by one of the drivers."""

    brokers: FakeBrokers
    cluster: Cluster

    def run(self, program: Program[T]) -> T: ...

    def within(self, make: Callable[[], T]) -> T:
        """Call a function where the driver has a clock."""
        ...

    def now_ms(self) -> int: ...


class BlockingRunner:
    """By the blocking driver."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.brokers = brokers
        driver = BlockingDriver(CONFIG, VirtualSystem(brokers), partial(FakeLink, brokers))
        self.cluster = Cluster(list(brokers.addresses.values()), CONFIG, driver)
        self.run = driver.run
        self.now_ms = driver.now_ms

    def within(self, make: Callable[[], T]) -> T:
        return make()


class VirtualClient(AsyncClient):
    """An asyncio client of fake brokers."""

    def __init__(self, brokers: FakeBrokers) -> None:
        super().__init__("h:1", config=CONFIG)
        entropy = random.Random(1)
        entropy.randint = lambda a, b: 0  # type: ignore[method-assign]  # no jitter

        async def open_link(address: Address, expected: ExpectedBroker | None, timeout_ms: int | None) -> FakeLink:
            if not brokers.connects(address.port, timeout_ms):
                await asyncio.sleep((CONFIG.open_timeout_ms if timeout_ms is None else timeout_ms) / 1000)
            await asyncio.sleep(brokers.connect_ms.get(address.port, 0) / 1000)
            return AsyncFakeLink(brokers, address, expected, timeout_ms)

        driver = AsyncDriver(CONFIG, entropy, lambda: brokers.now_ms, open_link)
        self.cluster = Cluster(list(brokers.addresses.values()), CONFIG, driver)
        self.view = self.cluster.view
        self.run = driver.run


class AsyncRunner:
    """By the asyncio driver, on a loop in virtual time."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self.brokers = brokers
        self.loop = SimulatedLoop(Kernel(1))  # type: ignore[abstract]  # what it lacks it refuses
        self.client = VirtualClient(brokers)
        self.cluster = self.client.cluster

    def run(self, program: Program[T]) -> T:
        return self.loop.run(self.client.run(program))

    def within(self, make: Callable[[], T]) -> T:
        async def call() -> T:
            return make()

        return self.loop.run(call())

    def now_ms(self) -> int:
        return int(self.loop.time() * 1000)


@pytest.fixture(params=[BlockingRunner, AsyncRunner], ids=["blocking", "asyncio"])
def runner(request: pytest.FixtureRequest) -> Runner:
    """A client of three brokers, by each driver."""
    made: Runner = request.param(FakeBrokers())
    return made
