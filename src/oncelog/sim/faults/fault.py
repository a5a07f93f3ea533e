"""A fault as a value, and what every kind of fault is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from oncelog.core.controller.image.cluster_image import ClusterImage, load_image
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.network.conditions import END_TXN, HostPair, NetworkConditions
from oncelog.sim.virtual.world import ClientHost, World

_BITS_FOR_AMOUNTS: Final = 24
_LONGEST_WAIT_S: Final = 15.0
"""The longest wait for an answer to EndTxn."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Break ``kind`` at ``at_ms`` for ``span_ms``; ``choice`` (32 bits) picks whom and how much."""

    at_ms: int
    kind: str
    span_ms: int
    choice: int

    def __str__(self) -> str:
        return f"{self.at_ms} {self.kind} {self.span_ms} {self.choice}"


Kind = Callable[[World, Fault], Awaitable[None]]
"""Breaks something, waits for the span, and mends it."""


async def span(fault: Fault) -> None:
    await asyncio.sleep(fault.span_ms / 1000)


def broker_of(world: World, fault: Fault) -> BrokerHost:
    """The broker that a fault hits: by the upper bits of its choice, which say nothing of how much."""
    return world.brokers[(fault.choice >> _BITS_FOR_AMOUNTS) % len(world.brokers)]


def others_than(world: World, broker: BrokerHost) -> list[BrokerHost]:
    return [other for other in world.brokers if other is not broker]


def take_down(broker: BrokerHost, end: Callable[[BrokerHost], None] = BrokerHost.kill) -> bool:
    """End a broker, which stays down until :func:`come_back`; False if another fault has it."""
    if broker.stays_down:
        return False
    broker.stays_down = True
    end(broker)
    return True


async def down_for(world: World, fault: Fault, end: Callable[[BrokerHost], None]) -> None:
    """End the broker that a fault hits, for the span."""
    broker = broker_of(world, fault)
    if take_down(broker, end):
        await span(fault)
        come_back(broker)


@contextmanager
def cut_off(world: World, pairs: Sequence[HostPair]) -> Iterator[None]:
    """Let nothing through from the first to the second of each pair. A fault that is cancelled leaves the cuts, as what
    follows makes, to ``plan.heal``."""
    for pair in pairs:
        world.network.cut(*pair)
    yield
    for pair in pairs:
        world.network.heal(*pair)


async def cut(world: World, fault: Fault, *pairs: HostPair) -> None:
    """Let nothing through from the first to the second of each pair, for the span."""
    with cut_off(world, pairs):
        await span(fault)


@contextmanager
def under_conditions(world: World, pairs: Sequence[HostPair], conditions: NetworkConditions) -> Iterator[None]:
    """Give each pair conditions of its own."""
    for pair in pairs:
        world.network.set_conditions(*pair, conditions)
    yield
    for pair in pairs:
        world.network.set_conditions(*pair, None)


async def end_txn_answered(brokers: Sequence[BrokerHost], at_answer: Callable[[], None]) -> bool:
    """Wait until an answer to EndTxn leaves one of the brokers, and call ``at_answer`` in that instant; False if none
    does for long."""
    answered = asyncio.Event()

    def note() -> None:
        at_answer()
        answered.set()

    for broker in brokers:
        broker.tell_of_answer(END_TXN, note)
    try:
        async with asyncio.timeout(_LONGEST_WAIT_S):
            await answered.wait()
    except TimeoutError:
        return False
    finally:
        for broker in brokers:
            broker.records.answer_kill = None
    return True


def come_back(broker: BrokerHost) -> None:
    """Start a broker that a fault has kept down."""
    broker.stays_down = False
    broker.start_until_up()


def image_of(world: World) -> ClusterImage:
    """The cluster as the coordination tree has it now."""
    session = world.tree.tree.session()
    image = load_image(session.snapshot()[1])
    session.close()
    return image


def client_of(world: World, fault: Fault) -> ClientHost | None:
    """The client host that a fault hits, None when none is alive."""
    names = sorted(name for name, host in world.hosts.items() if host.alive)
    return world.hosts[names[fault.choice % len(names)]] if names else None
