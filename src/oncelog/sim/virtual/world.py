"""A simulated world: brokers, client hosts, the network and the tree, in one virtual time.

N brokers have ids 1 to N, each on its own machine. A client host runs ordinary asyncio code. Killing it is ``kill -9``:
bytes already sent may still arrive, and brokers notice only if the network tells them. ``supervise`` restarts a dead
program under a new host name, like an operator. A program may run within a broker's process (``on_broker``), and dies
with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import copy_context
from random import Random
from typing import Any, Final, TypeVar

from oncelog.base.ids import uuid_text
from oncelog.client.aio.client import AsyncClient
from oncelog.client.config import ClientConfig
from oncelog.client.errors import ClientError
from oncelog.coordination.memory import MemoryTree
from oncelog.sim.virtual.broker_host import FIRST_BROKER, BrokerHost
from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.loop import SimulatedLoop
from oncelog.sim.virtual.machine import Latencies
from oncelog.sim.virtual.network.conditions import NetworkConditions
from oncelog.sim.virtual.network.network import CURRENT_HOST, Network
from oncelog.sim.virtual.tree_session import TreeHost

T = TypeVar("T")

# Impatient, so that many attempts fit in a simulation.
CLIENT_CONFIG: Final = ClientConfig(
    connect_timeout_ms=2_000,
    bootstrap_timeout_ms=3_000,
    request_timeout_ms=3_000,
    retry_timeout_ms=20_000,
    retry_backoff_ms=50,
    retry_backoff_max_ms=1_000,
)
LONGEST_CALM_PAUSE_MS: Final = 2_000


class ClientHost:
    """One life of one program, on its own host or within a broker's process."""

    def __init__(self, world: World, name: str, jitter: str = "jitter") -> None:
        self.world = world
        self.name = name
        self.alive = True
        # Tasks of the host in the order of their start; finished ones are dropped now and then.
        self.tasks: list[asyncio.Task[Any]] = []
        # The random stream of its clients.
        self._jitter = jitter

    @property
    def now_ms(self) -> int:
        return self.world.kernel.now_ms()

    @property
    def stopping(self) -> bool:
        return self.world.stopping

    def client(self, config: ClientConfig = CLIENT_CONFIG) -> AsyncClient:
        world = self.world
        return AsyncClient(
            world.bootstrap, config=config, entropy=world.kernel.entropy(self._jitter), now_ms=world.kernel.now_ms
        )

    async def sleep(self, milliseconds: float) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def pause(self, entropy: Random, most_ms: int) -> None:
        """Wait up to ``most_ms`` between two steps of a program; during the calm phase ten times as long, up to a
        bound.
        """
        pause_ms = entropy.randint(1, most_ms)
        if self.world.is_calm:
            pause_ms = max(pause_ms, min(10 * pause_ms, LONGEST_CALM_PAUSE_MS))
        await self.sleep(pause_ms)

    def kill(self, *, silent: bool = True) -> None:
        """Kill it at once. Unless ``silent``, brokers see its connections close."""
        if not self.alive:
            return
        self.world.kernel.trace(f"{self.name} killed")
        self.world.network.host_died(self.name, silent=silent)
        self.end_tasks()

    def end_tasks(self) -> None:
        self.alive = False
        for task in self.tasks:
            task.cancel()

    def add_task(self, task: asyncio.Task[Any]) -> None:
        if len(self.tasks) > 64:
            self.tasks = [other_task for other_task in self.tasks if not other_task.done()]
        self.tasks.append(task)
        if not self.alive:
            task.cancel()


Program = Callable[[ClientHost], Awaitable[None]]


class World:
    def __init__(
        self,
        seed: int,
        config: Mapping[str, str],
        *,
        brokers: int = 1,
        latencies: Latencies | None = None,
        conditions: NetworkConditions | None = None,
        session_timeout_ms: int | None = None,
    ) -> None:
        self.kernel = Kernel(seed)
        self.loop = SimulatedLoop(self.kernel)  # type: ignore[abstract]  # missing methods raise NotImplementedError
        self.network = Network(self.kernel, conditions or NetworkConditions())
        self.loop.network = self.network
        self.loop.on_task = self._add_task
        self.tree = TreeHost(self.kernel, self.network, MemoryTree(), session_timeout_ms)
        self.brokers = [
            BrokerHost(self.kernel, self.network, self.tree, config, broker_id=broker_id, latencies=latencies)
            for broker_id in range(FIRST_BROKER, FIRST_BROKER + brokers)
        ]
        if brokers > 1:  # a single broker generates its cluster id at the start
            cluster_id = uuid_text(self.kernel.entropy("cluster").randbytes(16))
            for broker in self.brokers:
                broker.format(cluster_id)
        # The running client hosts, by name.
        self.hosts: dict[str, ClientHost] = {}
        self.stopping = False
        # True while no faults happen. Programs do less then: most of a seed's requests would tell little otherwise.
        self.is_calm = False
        # The programs within brokers' processes, by broker host.
        self._on_brokers: dict[str, ClientHost] = {}
        self._supervised: list[asyncio.Task[None]] = []

    @property
    def broker(self) -> BrokerHost:
        return self.brokers[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in (broker.address for broker in self.brokers))

    def broker_times(self) -> dict[int, int]:
        return {broker.broker_id: broker.now_ms() for broker in self.brokers}

    def run(self, main: Coroutine[Any, Any, T], until_s: float | None = None) -> T:
        return self.loop.run(main, None if until_s is None else int(until_s * 1_000_000))

    async def on_host(self, name: str, program: Callable[[ClientHost], Awaitable[T]]) -> T:
        host = self.hosts[name] = ClientHost(self, name)
        context = copy_context()
        context.run(CURRENT_HOST.set, name)
        try:
            return await self.loop.create_task(_as_coroutine(program(host)), context=context)
        finally:
            self.hosts.pop(name, None)

    async def on_broker(self, broker: BrokerHost, program: Callable[[ClientHost], Awaitable[T]]) -> T:
        assert broker.is_up
        host = self._on_brokers.get(broker.name)
        if host is None:
            host = self._on_brokers[broker.name] = ClientHost(self, broker.name, f"jitter {broker.name}")
            broker.call_on_death(lambda _power_lost: self._end_on_broker(broker.name))
        context = copy_context()
        context.run(CURRENT_HOST.set, broker.name)
        return await self.loop.create_task(_as_coroutine(program(host)), context=context)

    def supervise(self, name: str, program: Program, *, pause_ms: int = 500) -> None:
        """Run a program, and again whenever its host dies or it fails with a ClientError, until it returns."""
        self._supervised.append(self.loop.create_task(self._supervise(name, program, pause_ms), name=name))

    async def finished(self) -> None:
        """Wait until every supervised program has returned. Raises their exceptions."""
        await asyncio.gather(*self._supervised)

    def unfinished(self) -> list[str]:
        return [task.get_name() for task in self._supervised if not task.done()]

    async def _supervise(self, name: str, program: Program, pause_ms: int) -> None:
        life = 0
        while True:
            life += 1
            host = f"{name}.{life}"
            try:
                await self.on_host(host, program)
            except ClientError as error:
                self.kernel.trace(f"{host} failed: {type(error).__name__}")
            except asyncio.CancelledError:
                if host not in self.network.dead:
                    raise
            else:
                return
            await asyncio.sleep(pause_ms / 1000)

    def _end_on_broker(self, name: str) -> None:
        host = self._on_brokers.pop(name, None)
        if host is not None:
            host.end_tasks()

    def _add_task(self, task: asyncio.Task[Any], host_name: str) -> None:
        host = self.hosts.get(host_name) or self._on_brokers.get(host_name)
        if host is not None:
            host.add_task(task)


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


__all__ = ["CLIENT_CONFIG", "ClientHost", "Program", "World"]
