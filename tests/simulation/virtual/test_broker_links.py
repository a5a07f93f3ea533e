"""Links between simulated brokers: over the network with its delays, cuts and deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from oncelog.base.ids import BrokerId
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.kernel.events import Continued
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.world import World
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from tests.simulation.virtual.test_hosts import world_of

T = TypeVar("T")


class Asker:
    """Questions of one broker to another, and their answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.source, self.target = world.brokers
        self.answers: list[Any] = []
        self.refused: list[BrokerId] = []
        self.source.node.links.on_refused.append(self.refused.append)

    def ask(self, timeout_ms: int = 5_000) -> None:
        links = self.source.node.links
        target = BrokerId(self.target.broker_id)
        process_event(self.source)
        links.request(target, LinkPurpose.CONTROL, ListTransactionsRequest(), self.answers.append, timeout_ms)
        process_event(self.source)

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        """Run a test's steps once the brokers know of each other."""

        async def program() -> T:
            await asyncio.sleep(1)
            return await steps

        return self.world.run(program())

    def came(self) -> list[bool]:
        """True for each answer that was a response."""
        return [answer is not None for answer in self.answers]


def process_event(host: BrokerHost) -> None:
    """Let the broker handle an event, so that its time moves and its effects leave."""
    assert host._process is not None
    host._process.dispatch(Continued())


def test_an_answer_takes_its_time_and_a_cut_holds_it() -> None:
    asker = Asker(world_of(2))

    async def main() -> list[list[bool]]:
        network, seen = asker.world.network, []
        asker.ask()
        seen.append(asker.came())
        await asyncio.sleep(1)
        seen.append(asker.came())
        network.cut(asker.target.name, asker.source.name)
        asker.ask()
        await asyncio.sleep(2)
        seen.append(asker.came())
        network.heal(asker.target.name, asker.source.name)
        await asyncio.sleep(1)
        seen.append(asker.came())
        network.cut(asker.source.name, asker.target.name)
        asker.ask()
        await asyncio.sleep(6)
        return [*seen, asker.came()]

    assert asker.run(main()) == [[], [True], [True], [True, True], [True, True, False]]


def test_a_killed_process_is_noticed_and_asked_again_when_it_is_back() -> None:
    asker = Asker(world_of(2))

    async def main() -> None:
        asker.ask()
        await asyncio.sleep(1)
        asker.target.stays_down = True
        asker.target.kill()
        await asyncio.sleep(0.1)
        assert set(asker.refused) == {BrokerId(2)}
        assert asker.target.start()
        await asyncio.sleep(1)
        asker.ask()
        await asyncio.sleep(1)

    asker.run(main())
    assert asker.came() == [True, True]


def test_the_links_of_a_process_end_with_it() -> None:
    asker = Asker(world_of(2))

    async def main() -> None:
        asker.ask()
        await asyncio.sleep(1)
        assert asker.world.network.connections_of(asker.source.name)
        asker.source.stays_down = True
        asker.source.kill()
        await asyncio.sleep(1)
        assert asker.world.network.connections_of(asker.source.name) == []

    asker.run(main())


def test_a_frozen_process_takes_its_answers_in_when_it_thaws() -> None:
    asker = Asker(world_of(2))

    async def main() -> None:
        asker.ask()
        asker.source.freeze()
        await asyncio.sleep(2)
        assert asker.answers == []
        asker.source.thaw()
        await asyncio.sleep(0.5)

    asker.run(main())
    assert asker.came() == [True]
