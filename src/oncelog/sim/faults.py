"""What goes wrong in a simulation: faults by name, plans of them drawn by seed (swarm testing), plans as text.

A plan is a list of faults in virtual time. Each fault breaks something and mends it after its span; at the end of the
plan :func:`heal` mends everything. A seed draws which kinds it uses at all, so that rare combinations get whole runs to
themselves. A plan is values only: it can be printed, shortened and run again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from oncelog.sim.network import DOWN, UP, NetworkConditions
from oncelog.sim.world import ClientHost, World


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Break ``kind`` at ``at_ms`` for ``span_ms``; ``choice`` picks whom and how much."""

    at_ms: int
    kind: str
    span_ms: int
    choice: int

    def __str__(self) -> str:
        return f"{self.at_ms} {self.kind} {self.span_ms} {self.choice}"


def parse_plan(text: str) -> list[Fault]:
    """The plan that :func:`format_plan` wrote. Raises ValueError."""
    plan = []
    for line in text.splitlines():
        if line.strip():
            at_ms, kind, span_ms, choice = line.split()
            if kind not in KINDS:
                raise ValueError(f"no fault is called {kind}")
            plan.append(Fault(int(at_ms), kind, int(span_ms), int(choice)))
    return plan


def format_plan(plan: Sequence[Fault]) -> str:
    """One fault a line."""
    return "".join(f"{fault}\n" for fault in plan)


def draw_plan(entropy: random.Random, length_ms: int) -> list[Fault]:
    """Which kinds, how often, and when."""
    used: list[str] = []
    for kinds, most, share in _FAMILIES:
        if entropy.random() < share:
            used += entropy.sample(kinds, entropy.randint(1, most))
    used = used or [entropy.choice(sorted(KINDS.keys() - _BY_WORKLOADS))]
    pause_ms = entropy.choice((2_000, 5_000, 10_000))
    plan, at_ms = [], 0
    while (at_ms := at_ms + 1 + int(entropy.expovariate(1 / pause_ms))) < length_ms:
        span_ms = min(1 + int(entropy.expovariate(1 / entropy.choice((200, 2_000, 6_000)))), 30_000)
        plan.append(Fault(at_ms, entropy.choice(used), span_ms, entropy.getrandbits(32)))
    return plan


async def carry_out(world: World, plan: Sequence[Fault]) -> None:
    """Let each fault happen at its time; faults overlap."""
    running = []
    for fault in sorted(plan):
        await asyncio.sleep(max(0, fault.at_ms * 1000 - world.kernel.now_us) / 1_000_000)
        world.kernel.trace(f"fault {fault}")
        running.append(asyncio.create_task(_run(KINDS[fault.kind], world, fault)))
    for task in running:
        await task


async def _run(kind: Kind, world: World, fault: Fault) -> None:
    await kind(world, fault)


def heal(world: World) -> None:
    """Mend everything: the network, the disks, and whoever is down comes up."""
    world.network.heal_all()
    for broker in world.brokers:
        broker.latencies = broker.usual_latencies
        broker.files.be_well()
        broker.thaw()
        broker.stays_down = False
        if not broker.is_up:
            broker.start_until_up()


Kind = Callable[[World, Fault], Awaitable[None]]


async def _span(fault: Fault) -> None:
    await asyncio.sleep(fault.span_ms / 1000)


async def _down_for(world: World, fault: Fault, end: Callable[[], None]) -> None:
    broker = world.broker
    if broker.stays_down:
        return  # another fault has it
    broker.stays_down = True
    end()
    await _span(fault)
    broker.stays_down = False
    if not broker.is_up:
        broker.start_until_up()


async def _kill(world: World, fault: Fault) -> None:
    """kill -9 of the broker."""
    await _down_for(world, fault, world.broker.kill)


async def _power_cut(world: World, fault: Fault) -> None:
    """The broker's machine loses power."""
    await _down_for(world, fault, world.broker.lose_power)


async def _power_cut_while_writing(world: World, fault: Fault) -> None:
    """The machine loses power in the middle of an event, a recovery, a compaction."""
    world.broker.files.lose_power_after(fault.choice % 200)


async def _power_cut_at_sync(world: World, fault: Fault) -> None:
    """The machine loses power when something is written and not synced: whoever spoke too soon has lied."""
    world.broker.files.lose_power_at_sync(fault.choice % 8)


async def _kill_while_writing(world: World, fault: Fault) -> None:
    """The process is killed in the middle of an event (no memory is left); what it has written stays."""
    world.broker.files.lose_power_after(fault.choice % 200, only_process=True)


async def _damaged_files(world: World, fault: Fault) -> None:
    """The process is killed, and files that can be made anew (indexes, snapshots) are damaged before it comes back."""

    def end() -> None:
        broker = world.broker
        broker.kill()
        entropy = random.Random(fault.choice)
        paths = broker.files.paths(".index", ".timeindex", ".snapshot")
        for path in entropy.sample(paths, min(len(paths), 1 + fault.choice % 4)):
            broker.files.flip_bit(path, entropy.randrange(8 * (broker.files.size(path) or 0)))

    await _down_for(world, fault, end)


async def _restart(world: World, fault: Fault) -> None:
    """A clean shutdown and a start."""
    await _down_for(world, fault, world.broker.shut_down)


async def _stall(world: World, fault: Fault) -> None:
    """The process stands still (SIGSTOP, a garbage collector, a suspended machine) and goes on."""
    world.broker.freeze()
    await _span(fault)
    world.broker.thaw()


async def _slow_disk(world: World, fault: Fault) -> None:
    """Every sync takes long."""
    most_us = 1_000 * (1 + fault.choice % 3_000)
    world.broker.latencies = replace(world.broker.latencies, sync_us=(most_us // 2, most_us), slice_us=(1_000, 200_000))
    await _span(fault)
    world.broker.latencies = world.broker.usual_latencies


async def _failing_sync(world: World, fault: Fault) -> None:
    """A sync fails, once: the broker must not go on."""
    world.broker.files.fail_syncs(1)


async def _failing_sync_then_power_cut(world: World, fault: Fault) -> None:
    """A sync fails, and at one of the next the power does: the page cache was the only place left (fsyncgate)."""
    world.broker.files.fail_syncs(1)
    world.broker.files.lose_power_at_sync(1 + fault.choice % 3)


async def _full_disk(world: World, fault: Fault) -> None:
    """The disk is full for a while."""
    files = world.broker.files
    files.capacity = files.used + fault.choice % 20_000
    await _span(fault)
    files.capacity = None


async def _tight_disk(world: World, fault: Fault) -> None:
    """For a moment there is room for a decision, perhaps, and not for what follows from it."""
    files = world.broker.files
    files.capacity = files.used + fault.choice % 1_500
    await _span(fault)
    files.capacity = None


async def _slow_facts(world: World, fault: Fault) -> None:
    """The coordination tree takes its time."""
    most_us = 1_000 * (1 + fault.choice % 4_000)
    world.broker.latencies = replace(world.broker.latencies, metadata_us=(most_us // 2, most_us))
    await _span(fault)
    world.broker.latencies = world.broker.usual_latencies


async def _clock_jump(world: World, fault: Fault) -> None:
    """The broker's clock is set forward."""
    world.broker.clock_ms += fault.choice % 20_000
    world.broker.set_alarm()


async def _clock_set_back(world: World, fault: Fault) -> None:
    """The broker's clock is set back a little."""
    world.broker.clock_ms -= fault.choice % 2_000
    world.broker.set_alarm()


async def _kill_client(world: World, fault: Fault) -> None:
    """kill -9 of a client; the broker hears of it, or does not."""
    host = _pick(world, fault)
    if host is not None:
        host.kill(silent=bool(fault.choice & 1))


async def _reset(world: World, fault: Fault) -> None:
    """All connections of a client break; what it sent last still arrives, or does not."""
    host = _pick(world, fault)
    if host is not None:
        for connection in world.network.of(host.name):
            connection.reset(deliver=bool(fault.choice & 1))


async def _cut_up(world: World, fault: Fault) -> None:
    """Nothing gets from a client to the broker; it gives up, connects again, and later all of it arrives."""
    await _cut(world, fault, UP)


async def _cut_down(world: World, fault: Fault) -> None:
    """Nothing gets from the broker to a client: what it asked for happens, and it does not know."""
    await _cut(world, fault, DOWN)


async def _cut(world: World, fault: Fault, way: str) -> None:
    host = _pick(world, fault)
    if host is not None:
        world.network.cut(host.name, way)
        await _span(fault)
        world.network.heal(host.name, way)


async def _hold_connection(world: World, fault: Fault) -> None:
    """One connection of a client holds what is sent on it, while others do not: its requests arrive much later."""
    host = _pick(world, fault)
    connections = [] if host is None else world.network.of(host.name)
    if connections:
        connection = connections[fault.choice // 7 % len(connections)]
        connection.up.cut(fault.kind)
        await _span(fault)
        connection.up.heal(fault.kind)


async def _lossy_network(world: World, fault: Fault) -> None:
    """Packets are lost and sent again: delays of 200 ms and more."""
    world.network.conditions = NetworkConditions(
        100, 1_000 + fault.choice % 100_000, lost=0.02 + fault.choice % 20 / 100
    )
    await _span(fault)
    world.network.conditions = world.network.usual


async def _repeated_requests(world: World, fault: Fault) -> None:
    """Requests that are made to be repeated arrive a second time, on another connection, later."""
    world.network.conditions = replace(world.network.conditions, repeated=0.05 + fault.choice % 30 / 100)
    await _span(fault)
    world.network.conditions = world.network.usual


def _pick(world: World, fault: Fault) -> ClientHost | None:
    names = sorted(name for name, host in world.hosts.items() if host.alive)
    return world.hosts[names[fault.choice % len(names)]] if names else None


_PROCESS: Final[Mapping[str, Kind]] = {
    "damaged-files": _damaged_files,
    "kill": _kill,
    "kill-while-writing": _kill_while_writing,
    "restart": _restart,
}
_POWER: Final[Mapping[str, Kind]] = {
    "power-cut": _power_cut,
    "power-cut-at-sync": _power_cut_at_sync,
    "power-cut-while-writing": _power_cut_while_writing,
}
_DISK: Final[Mapping[str, Kind]] = {
    "failing-sync": _failing_sync,
    "failing-sync-power-cut": _failing_sync_then_power_cut,
    "full-disk": _full_disk,
    "slow-disk": _slow_disk,
    "slow-facts": _slow_facts,
}
_CLIENTS: Final[Mapping[str, Kind]] = {
    "cut-down": _cut_down,
    "cut-up": _cut_up,
    "hold-connection": _hold_connection,
    "kill-client": _kill_client,
    "lossy-network": _lossy_network,
    "repeated-requests": _repeated_requests,
    "reset": _reset,
}
_TIME: Final[Mapping[str, Kind]] = {
    "clock-jump": _clock_jump,
    "clock-set-back": _clock_set_back,
    "stall": _stall,
}
_BY_WORKLOADS: Final[Mapping[str, Kind]] = {"tight-disk": _tight_disk}
"""Drawn by the workload that wants it."""
KINDS: Final[Mapping[str, Kind]] = {**_PROCESS, **_POWER, **_DISK, **_CLIENTS, **_TIME, **_BY_WORKLOADS}
_FAMILIES: Final = (
    (sorted(_PROCESS), 2, 0.5),
    (sorted(_POWER), 2, 0.6),
    (sorted(_DISK), 2, 0.4),
    (sorted(_CLIENTS), 3, 0.8),
    (sorted(_TIME), 1, 0.2),
)
"""Kinds, how many of them a seed uses at most, and how often it uses any: what matters most meets itself often."""
