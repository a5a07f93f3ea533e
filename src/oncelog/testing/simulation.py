"""Runs a user's own asyncio program in the simulator: virtual time, the real broker, and faults by seed.

The program uses ``oncelog.client.aio`` (``host.client()``) and asyncio. It must not use another clock, threads or its
own sockets. The same seed gives the same run. See docs/testing-your-application.md.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.plan import KINDS, carry_out, format_plan, heal
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.testing.configuration import Config, texts

__all__ = ["ClientHost", "Simulation"]

T = TypeVar("T")
DEFAULTS: Final = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
_LONGEST_S: Final = 3_600


class Simulation:
    """The simulated world of a seed, with one broker that runs within the ``with`` block. Times are virtual seconds."""

    def __init__(self, seed: int, config: Config | None = None) -> None:
        self.seed = seed
        self.world = World(seed, {**DEFAULTS, **texts(config)})
        self.plan: list[Fault] = []
        """The faults that happened, for a report: ``print(simulation.plan_text())``."""

    def __enter__(self) -> Self:
        self.world.broker.start_until_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"in simulation {self.seed}, at {self.now_s:.3f} s; faults:\n{self.plan_text()}")
        self.world.loop.end()

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self.world.kernel.now_us / 1_000_000

    def plan_text(self) -> str:
        """The faults that happened, one per line: at ms, kind, span in ms, choice."""
        return format_plan(self.plan)

    def run(self, program: Callable[[ClientHost], Awaitable[T]], within_s: float = 300) -> T:
        """Run a program on its own host and return its result. Raises its exceptions, and TimeoutError."""
        return self.world.run(self.world.on_host("test", program), until_s=self.now_s + within_s)

    def supervise(self, name: str, program: Callable[[ClientHost], Awaitable[None]]) -> None:
        """Run a program beside the others, and again whenever it is killed or fails with a ClientError. It starts when
        time next advances, and must return once ``host.stopping`` is true."""

        async def begin() -> None:
            self.world.supervise(name, program)

        self.world.run(begin())

    def trouble(self, seconds: float, *kinds: str, every_s: float = 5) -> None:
        """Let time pass with faults of these kinds (default: all kinds), on average one every ``every_s`` seconds."""
        unknown = set(kinds) - set(KINDS)
        if unknown:
            raise ValueError(f"no fault is called {sorted(unknown)[0]!r}; the faults are {', '.join(KINDS)}")
        begun_ms = self.world.kernel.now_us // 1000
        entropy = self.world.kernel.entropy("trouble")
        drawn = _draw(entropy, kinds or tuple(KINDS), begun_ms, int(seconds * 1000), every_s)
        self.plan += drawn

        async def pass_time() -> None:
            faults = asyncio.create_task(carry_out(self.world, drawn))
            await asyncio.sleep(seconds)
            faults.cancel()

        self.world.run(pass_time(), until_s=self.now_s + _LONGEST_S)

    def wait(self, seconds: float) -> None:
        self.world.run(asyncio.sleep(seconds), until_s=self.now_s + _LONGEST_S)

    def settle(self, within_s: float = 120) -> None:
        """End all faults, tell the supervised programs to stop, and wait for them. Raises TimeoutError."""
        heal(self.world)
        self.world.stopping = True
        try:
            self.world.run(self.world.finished(), until_s=self.now_s + within_s)
        except TimeoutError:
            names = ", ".join(self.world.unfinished())
            raise TimeoutError(f"{within_s:.0f} s after all faults ended these have not returned: {names}") from None


def _draw(entropy: random.Random, kinds: tuple[str, ...], begun_ms: int, length_ms: int, every_s: float) -> list[Fault]:
    plan, at_ms = [], 0
    while (at_ms := at_ms + 1 + int(entropy.expovariate(1 / (every_s * 1000)))) < length_ms:
        span_ms = 1 + int(entropy.expovariate(1 / 1_500))
        plan.append(Fault(begun_ms + at_ms, entropy.choice(kinds), span_ms, entropy.getrandbits(32)))
    return plan
