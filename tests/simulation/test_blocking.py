"""Blocking code in the simulator: in virtual time, in the loop's order, gone with its host."""

from __future__ import annotations

import threading

import pytest

from oncelog.admin.transactions import Scan, scan
from oncelog.client.blocking import Client
from oncelog.client.errors import ClientError, NoBrokerReachable
from oncelog.sim.blocking import with_client
from oncelog.sim.virtual.world import ClientHost
from oncelog.testing.simulation import Simulation


async def look(host: ClientHost) -> Scan:
    return await with_client(host, lambda client: scan(client, min_age_ms=0))


def run_once(seed: int) -> tuple[int, str]:
    with Simulation(seed) as simulation:
        simulation.supervise("one", lambda host: twice(host, 3))
        simulation.supervise("other", lambda host: twice(host, 5))
        simulation.wait(5)
        result = simulation.run(look)
        return result.now_ms, simulation.world.kernel.trace_sha256()


async def twice(host: ClientHost, seconds: int) -> None:
    def work(client: Client) -> None:
        for _ in range(2):
            client.metadata()
            client.system.sleep(seconds * 1000)

    await with_client(host, work)


def test_the_tool_runs_in_virtual_time_and_the_same_twice() -> None:
    assert run_once(1) == run_once(1)
    assert run_once(1) != run_once(2)


def test_whoever_waits_does_not_hold_up_others() -> None:
    ended: list[tuple[str, float]] = []

    async def named(host: ClientHost, name: str, seconds: int) -> None:
        await with_client(host, lambda client: client.system.sleep(seconds * 1000))
        ended.append((name, host.world.kernel.now_us / 1e6))

    with Simulation(1) as simulation:
        simulation.supervise("slow", lambda host: named(host, "slow", 3))
        simulation.supervise("quick", lambda host: named(host, "quick", 1))
        simulation.wait(5)
    assert [name for name, _ in ended] == ["quick", "slow"]
    assert ended[1][1] == pytest.approx(3, abs=0.1)


def test_it_is_gone_with_its_host() -> None:
    unwound: list[BaseException] = []

    async def endless(host: ClientHost) -> None:
        def work(client: Client) -> None:
            try:
                client.system.sleep(1_000_000)
            except BaseException as end:
                unwound.append(end)
                client.system.sleep(1)  # who is dead does not wait any more
                raise

        await with_client(host, work)

    before = set(threading.enumerate())

    def new_threads() -> int:
        return len(set(threading.enumerate()) - before)

    with Simulation(1) as simulation:
        simulation.supervise("endless", endless)
        simulation.wait(1)
        assert new_threads() == 1
        simulation.world.hosts["endless.1"].kill()
        simulation.wait(0.1)
        assert not new_threads()
        simulation.wait(1)  # it was started again
        assert new_threads() == 1
    assert not new_threads()
    assert len(unwound) == 2


def test_errors_are_those_of_the_production_client() -> None:
    async def fail(host: ClientHost) -> None:
        with pytest.raises(NoBrokerReachable):
            await with_client(host, lambda client: client.metadata())
        with pytest.raises(ClientError, match="mine"):
            await with_client(host, failing)

    def failing(client: Client) -> None:
        raise ClientError("mine")

    with Simulation(1) as simulation:
        simulation.world.broker.stays_down = True
        simulation.world.broker.kill()
        simulation.run(fail)
