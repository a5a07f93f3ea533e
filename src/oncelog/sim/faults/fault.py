"""A fault as a value, and the building blocks of all kinds of faults."""

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
# The longest wait for an EndTxn response.
_LONGEST_WAIT_S: Final = 15.0


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Break ``kind`` at ``at_ms`` for ``span_ms``. ``choice`` (32 bits) selects the target and the amount."""

    at_ms: int
    kind: str
    span_ms: int
    choice: int

    def __str__(self) -> str:
        return f"{self.at_ms} {self.kind} {self.span_ms} {self.choice}"


# Breaks something, waits for the span, and repairs it.
Kind = Callable[[World, Fault], Awaitable[None]]


async def span(fault: Fault) -> None:
    await asyncio.sleep(fault.span_ms / 1000)


def broker_of(world: World, fault: Fault) -> BrokerHost:
    # The upper bits of the choice: the lower ones select the amount.
    return world.brokers[(fault.choice >> _BITS_FOR_AMOUNTS) % len(world.brokers)]


def other_brokers(world: World, broker: BrokerHost) -> list[BrokerHost]:
    return [other for other in world.brokers if other is not broker]


def take_down(broker: BrokerHost, end: Callable[[BrokerHost], None] = BrokerHost.kill) -> bool:
    """Stop a broker until :func:`bring_back`. Returns False if another fault holds it."""
    if broker.stays_down:
        return False
    broker.stays_down = True
    end(broker)
    return True


async def down_for(world: World, fault: Fault, end: Callable[[BrokerHost], None]) -> None:
    broker = broker_of(world, fault)
    if take_down(broker, end):
        await span(fault)
        bring_back(broker)


@contextmanager
def cut_off(world: World, pairs: Sequence[HostPair]) -> Iterator[None]:
    """Block traffic from the first to the second host of each pair."""
    # A cancelled fault leaves its cuts to `plan.heal`, as `under_conditions` does.
    for pair in pairs:
        world.network.cut(*pair)
    yield
    for pair in pairs:
        world.network.heal(*pair)


async def cut(world: World, fault: Fault, *pairs: HostPair) -> None:
    with cut_off(world, pairs):
        await span(fault)


@contextmanager
def under_conditions(world: World, pairs: Sequence[HostPair], conditions: NetworkConditions) -> Iterator[None]:
    for pair in pairs:
        world.network.set_conditions(*pair, conditions)
    yield
    for pair in pairs:
        world.network.set_conditions(*pair, None)


async def end_txn_answered(brokers: Sequence[BrokerHost], at_answer: Callable[[], None]) -> bool:
    """Wait until an EndTxn response leaves one of the brokers, and call ``at_answer`` at that moment. Returns False
    after a long wait.
    """
    answered = asyncio.Event()

    def call_and_wake() -> None:
        at_answer()
        answered.set()

    for broker in brokers:
        broker.call_at_response(END_TXN, call_and_wake)
    try:
        async with asyncio.timeout(_LONGEST_WAIT_S):
            await answered.wait()
    except TimeoutError:
        return False
    finally:
        for broker in brokers:
            broker.records.response_trigger = None
    return True


def bring_back(broker: BrokerHost) -> None:
    broker.stays_down = False
    broker.start_until_up()


def image_of(world: World) -> ClusterImage:
    session = world.tree.tree.session()
    image = load_image(session.snapshot()[1])
    session.close()
    return image


def client_of(world: World, fault: Fault) -> ClientHost | None:
    """The live client host that a fault hits, or None."""
    names = sorted(name for name, host in world.hosts.items() if host.alive)
    return world.hosts[names[fault.choice % len(names)]] if names else None
