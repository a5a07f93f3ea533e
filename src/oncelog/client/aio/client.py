"""A client of one cluster over asyncio: runs its programs while they are awaited.

The package runs on any event loop and is deterministic, so that a simulator can run it on virtual time: time and
connections are the loop's, jitter and record timestamps come from the constructor, and nothing depends on the order of
a set. Without TLS and SASL no thread is used.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar, cast

from oncelog.client.aio.driver import Driver, awaited, loop_ms
from oncelog.client.aio.link import AsyncLink
from oncelog.client.config import ClientConfig, parse_addresses
from oncelog.client.errors import ClientError
from oncelog.client.programs.cluster import GROUP_KEY, TRANSACTION_KEY, Broker, Cluster
from oncelog.client.programs.operation import show_signature
from oncelog.client.programs.steps import Program
from oncelog.wire.message import Response

ANY: Final[Literal["any"]] = "any"
P = ParamSpec("P")
R = TypeVar("R", bound=Response)
T = TypeVar("T")


def wall_ms() -> int:
    """Milliseconds since 1970, for the timestamps of records."""
    return time.time_ns() // 1_000_000


def finished(tasks: Mapping[asyncio.Task[T], object], done: Collection[asyncio.Future[T]]) -> list[asyncio.Task[T]]:
    # asyncio's set has another order in every run.
    return [task for task in tasks if task in done]


def _method(
    program: Callable[Concatenate[Cluster, P], Program[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @wraps(program)
    async def run(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(program(self.cluster, *args, **kwargs))

    show_signature(run, program, inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    return run


class AsyncClient:
    """A client, used as an asynchronous context manager; its methods are those of ``programs.cluster.Cluster``.

    ``entropy`` gives the jitter of retry pauses, ``now_ms`` the wall time for record timestamps.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        config: ClientConfig | Mapping[str, str] | None = None,
        entropy: random.Random | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.bootstrap = parse_addresses(bootstrap_servers)
        self.config = config if isinstance(config, ClientConfig) else ClientConfig.from_properties(config or {})
        self.now_ms = now_ms
        driver = Driver(self.config, entropy or random.Random(), now_ms)
        self.run = driver.run
        self.cluster = Cluster(self.bootstrap, self.config, driver)
        self.view = self.cluster.view

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; later calls raise Closed."""
        for link in self.cluster.close():
            await cast("AsyncLink", link).close()

    async def link(self, broker: Broker = ANY) -> AsyncLink:
        return cast("AsyncLink", await self.run(self.cluster.link(broker)))

    async def connect(self, broker: int) -> AsyncLink:
        return cast("AsyncLink", await self.run(self.cluster.connect(broker)))

    def forget_coordinator(self, key: str, key_type: int = GROUP_KEY) -> None:
        self.cluster.forget_coordinator(key, key_type)

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self.run(self.cluster.retrying(lambda: awaited(attempt())))

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


__all__ = ["ANY", "GROUP_KEY", "TRANSACTION_KEY", "AsyncClient", "finished", "loop_ms", "wall_ms"]
