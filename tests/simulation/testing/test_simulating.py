"""A program of a user's own in the simulator: what is wrong in it shows, what is right in it holds."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.testing.simulation import ClientHost, Simulation

PLACE = TopicPartition(TopicName("numbers"), 0)


class Counter:
    """Writes 0, 1, 2 …, and remembers which were acknowledged."""

    def __init__(self) -> None:
        self.next = 0
        self.acknowledged: list[int] = []

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client, AsyncProducer(client, create_topics=True) as producer:
            while not host.stopping:
                number, self.next = self.next, self.next + 1
                await producer.send(PLACE.topic, str(number).encode(), partition=0)
                await producer.flush()
                self.acknowledged.append(number)
                await asyncio.sleep(0.1)


async def read_all(host: ClientHost) -> list[int]:
    async with host.client() as client, AsyncConsumer(client) as consumer:
        ends = await consumer.list_offsets({PLACE: -1})
        await consumer.assign({PLACE: 0}, ends)
        results: list[int] = []
        while len(consumer.positions):
            for fetched in await consumer.poll():
                results += [int(record.value or b"") for record in read_fetched(fetched)]
        return results


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_is_there_whatever_happens(seed: int) -> None:
    counter = Counter()
    with Simulation(seed) as simulation:
        simulation.supervise("counter", counter)
        simulation.trouble(60, "kill", "power-cut", "kill-client", "cut-down", "reset")
        simulation.settle()
        result = simulation.run(read_all)
    assert len(set(result)) == len(result)
    assert set(counter.acknowledged) <= set(result)
    assert len(counter.acknowledged) > 100
    assert len(simulation.plan) > 3


def test_a_program_that_does_not_stop_is_named() -> None:
    async def stubborn(host: ClientHost) -> None:
        while True:
            await asyncio.sleep(1)

    with Simulation(1) as simulation:
        simulation.supervise("stubborn", stubborn)
        with pytest.raises(TimeoutError, match="stubborn"):
            simulation.settle()


def fail_in_trouble() -> None:
    with Simulation(2) as simulation:
        simulation.trouble(30, "kill")
        raise AssertionError("wrong")


def test_a_failure_says_which_faults_there_were() -> None:
    with pytest.raises(AssertionError) as raised:
        fail_in_trouble()
    assert "kill" in raised.value.__notes__[0]
    assert "in simulation 2" in raised.value.__notes__[0]
    with pytest.raises(ValueError, match="no fault is called 'earthquake'"):
        Simulation(1).trouble(1, "earthquake")
