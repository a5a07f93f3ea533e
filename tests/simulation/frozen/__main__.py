"""Hours of trouble in which no process stands still for longer than a second: no broker may be replaced.

``python -m tests.simulation.frozen [--seeds 24] [--first 0] [--minutes 60] [--workers 2]`` runs a seed for so many
virtual minutes: pauses of one broker and of all, lost packets, slow and cut paths, disks that take seconds, clocks that
jump. ``--freezes`` freezes leaders for 3 to 6 s instead, among pauses, and prints the pauses of acknowledgements.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from multiprocessing import Pool
from statistics import median

from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.network.conditions import NetworkConditions
from tests.simulation.frozen.world import FrozenWorld

LONGEST_PAUSE_S = 1.0
WRITES_MS = 250


@dataclass
class Outcome:
    seed: int
    problems: list[str] = field(default_factory=list)
    troubles: int = 0
    elected_s: list[float] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


class Troubles:
    """Troubles of a seed, drawn one after the other; they overlap."""

    def __init__(self, frozen: FrozenWorld, draws: random.Random) -> None:
        self._frozen = frozen
        self._draws = draws
        self._running: list[asyncio.Task[None]] = []
        self.count = 0

    async def go_on(self, until_s: float) -> None:
        kinds = (self._pause, self._pause, self._pause_all, self._lose, self._slow, self._cut, self._disk, self._clock)
        while self._frozen.now_s < until_s:
            self._running.append(asyncio.create_task(self._draws.choice(kinds)()))
            self.count += 1
            await asyncio.sleep(self._draws.uniform(0, 4))
        await asyncio.gather(*self._running)
        self._frozen.world.network.heal_all()

    def _one(self) -> BrokerHost:
        return self._draws.choice(self._frozen.world.brokers)

    async def _pause(self) -> None:
        await self._freeze([self._one()])

    async def _pause_all(self) -> None:
        await self._freeze(self._frozen.world.brokers)

    async def _freeze(self, hosts: Sequence[BrokerHost]) -> None:
        # A process that is paused already would stand still for longer.
        chosen = [host for host in hosts if not host.machine.frozen]
        for host in chosen:
            host.freeze()
        await asyncio.sleep(self._draws.uniform(0.1, LONGEST_PAUSE_S))
        for host in chosen:
            host.thaw()

    async def _lose(self) -> None:
        network, lost = self._frozen.world.network, self._draws.uniform(0.01, 0.2)
        network.conditions = NetworkConditions(100, self._draws.choice((1_000, 20_000, 100_000)), lost=lost)
        await asyncio.sleep(self._draws.uniform(1, 20))
        network.conditions = network.usual

    async def _slow(self) -> None:
        network, source, target = self._frozen.world.network, self._one().name, self._one().name
        most_us = self._draws.randint(50_000, 1_000_000)
        network.set_conditions(source, target, NetworkConditions(most_us // 2, most_us))
        await asyncio.sleep(self._draws.uniform(1, 10))
        network.set_conditions(source, target, None)

    async def _cut(self) -> None:
        network, source, target = self._frozen.world.network, self._one().name, self._one().name
        pairs = [(source, target), (target, source)][: self._draws.randint(1, 2)]
        for pair in pairs:
            network.cut(*pair)
        await asyncio.sleep(self._draws.uniform(0.2, 10))
        for pair in pairs:
            network.heal(*pair)

    async def _disk(self) -> None:
        machine = self._one().machine
        machine.latencies = replace(machine.latencies, sync_us=(500_000, 3_000_000))
        await asyncio.sleep(self._draws.uniform(1, 10))
        machine.latencies = machine.usual_latencies

    async def _clock(self) -> None:
        self._one().move_clock(self._draws.randint(-2_000, 20_000))


def run_seed(seed: int, minutes: float, *, freezes: bool) -> Outcome:
    began_s = time.process_time()
    draws = random.Random(f"{seed}/frozen")
    policy = draws.choice(("none", "commit"))
    frozen = FrozenWorld(seed, config={"log.sync.policy": policy}, pause_ms=20 if freezes else WRITES_MS)
    outcome = Outcome(seed)

    async def steps() -> None:
        if freezes:
            await _freeze_leaders(frozen, draws, frozen.now_s + minutes * 60, outcome)
        else:
            await _trouble(frozen, draws, frozen.now_s + minutes * 60, outcome)

    try:
        frozen.run(steps, until_s=None)
    except Exception as error:  # noqa: BLE001 - a seed that fails is reported with its number
        outcome.problems.append(repr(error))
    outcome.problems += frozen.violations
    outcome.cpu_s = time.process_time() - began_s
    return outcome


async def _trouble(frozen: FrozenWorld, draws: random.Random, until_s: float, outcome: Outcome) -> None:
    before = frozen.observer.journal.image.brokers
    troubles = Troubles(frozen, draws)
    await troubles.go_on(until_s)
    outcome.troubles = troubles.count
    after = frozen.observer.journal.image.brokers
    if {number: broker.epoch for number, broker in before.items()} != {
        number: broker.epoch for number, broker in after.items()
    }:
        outcome.problems.append(f"a broker was replaced: {[line for line in frozen.reports() if 'frozen' in line]}")


async def _freeze_leaders(frozen: FrozenWorld, draws: random.Random, until_s: float, outcome: Outcome) -> None:
    while frozen.now_s < until_s:
        leader, began_s = frozen.leader(), frozen.now_s
        leader.freeze()
        await asyncio.sleep(draws.uniform(3, 6))
        outcome.elected_s.append(frozen.elections_s[-1] - began_s)
        outcome.pauses_s.append(frozen.pause_s(began_s))
        leader.thaw()
        await frozen.in_sync()
        await asyncio.sleep(draws.uniform(0, 5))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--freezes", action="store_true")
    options = parser.parse_args()
    run = functools.partial(run_seed, minutes=options.minutes, freezes=options.freezes)
    outcomes = []
    with Pool(options.workers) as pool:
        for outcome in pool.imap_unordered(run, range(options.first, options.first + options.seeds)):
            outcomes.append(outcome)
            shown = "; ".join(outcome.problems) or "sound"
            print(f"seed {outcome.seed}: {shown}, {outcome.troubles} troubles, {outcome.cpu_s:.0f} s", flush=True)
    for name, lists in (
        ("until another leads", [outcome.elected_s for outcome in outcomes]),
        ("until the next acknowledgement", [outcome.pauses_s for outcome in outcomes]),
    ):
        times_s = sorted(chain.from_iterable(lists))
        if times_s:
            print(f"{len(times_s)} freezes, {name}: median {median(times_s):.2f} s, longest {times_s[-1]:.2f} s")
    bad = sum(bool(outcome.problems) for outcome in outcomes)
    print(f"{len(outcomes)} seeds of {options.minutes:g} virtual minutes, {bad} with problems")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
