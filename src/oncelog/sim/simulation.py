"""One seed: a world, workloads, a plan of faults, a time to heal, and every checker.

Safety phase: workloads run while faults happen; nothing wrong may ever be seen. Liveness phase: everything is mended;
every program must come to its end within :data:`LIVENESS_S` of virtual time, and no transaction may stay open. Then all
topics are drained, the broker is shut down, and history, wire and disk are checked. A run stops at its first violation.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, NoReturn

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import FetchSettings
from oncelog.sim import faults
from oncelog.sim.checkers.anomalies import check
from oncelog.sim.checkers.history import Seen
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.sim.faults import Fault
from oncelog.sim.observing import WireWatcher
from oncelog.sim.workloads.base import Stage, Topic, Workload
from oncelog.sim.workloads.drawing import draw_workloads
from oncelog.sim.workloads.recording import Recorder, value_of
from oncelog.sim.world import ClientHost, World
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

SAFETY_S: Final = 100
LIVENESS_S: Final = 120
LAST_LINES: Final = 400
"""Of the trace, kept for a report."""


@dataclass(slots=True)
class Outcome:
    """What a seed came to."""

    seed: int
    violations: list[str]
    events: int
    requests: int
    virtual_s: float
    trace_sha256: str
    plan: list[Fault]
    workloads: list[str]
    last_lines: list[str] = field(default_factory=list)


class Violated(Exception):
    """A rule does not hold; the run ends here."""


def simulate(
    seed: int,
    *,
    plan: Sequence[Fault] | None = None,
    plant: AbstractContextManager[object] | None = None,
    safety_s: int = SAFETY_S,
    log: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed. ``plan`` replaces the faults that it draws, ``plant`` breaks the code meanwhile on purpose."""
    with plant or nullcontext():
        return Simulation(seed, plan, safety_s, log).run()


class Simulation:
    """See the module."""

    def __init__(
        self, seed: int, plan: Sequence[Fault] | None, safety_s: int, log: Callable[[str], None] | None
    ) -> None:
        draws = random.Random(f"{seed}/scene")
        self.transaction_version = 1 if draws.random() < 0.15 else 2
        self.world = World(seed, _draw_config(draws))
        self.workloads: list[Workload] = draw_workloads(draws)
        drawn = faults.draw_plan(random.Random(f"{seed}/faults"), safety_s * 1000)
        self.plan = _suitable(drawn if plan is None else list(plan), self.transaction_version)
        self.safety_s = safety_s
        self.recorder = Recorder(self.world.kernel)
        self.stage = Stage(self.world, self.recorder, self.transaction_version)
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.world.kernel.log = log or self.lines.append
        self.watcher = WireWatcher(WireObserver(), self.world.kernel.now_ms, _violated)
        self.world.broker.watcher = self.watcher

    def run(self) -> Outcome:
        """All of it."""
        violations: list[str] = []
        kernel = self.world.kernel
        try:
            self.world.run(self._main(), until_s=self.safety_s + 4 * LIVENESS_S)
            self._check_at_rest()
        except Violated as violated:
            violations = [str(violated)]
        except TimeoutError as error:
            violations = [f"liveness: {error}; not done: {', '.join(self.world.unfinished()) or 'the drain'}"]
        kernel.trace(f"violations {violations}")
        outcome = Outcome(
            seed=kernel.seed,
            violations=violations,
            events=kernel.happened,
            requests=self.watcher.requests,
            virtual_s=kernel.now_us / 1_000_000,
            trace_sha256=kernel.trace_sha256(),
            plan=self.plan,
            workloads=[repr(workload) for workload in self.workloads],
            last_lines=list(self.lines) if violations else [],
        )
        self._end()
        return outcome

    def _end(self) -> None:
        """Let go of whatever still runs; nothing of it counts any more."""
        self.world.kernel.log = None
        self.world.loop.end()

    async def _main(self) -> None:
        world = self.world
        world.broker.start_until_up()
        topics = [topic for workload in self.workloads for topic in workload.topics()]
        await world.on_host("setup", lambda host: self._set_up(host, topics))
        for workload in self.workloads:
            workload.start(self.stage)
        troubles = asyncio.create_task(faults.carry_out(world, self.plan))
        await asyncio.sleep(self.safety_s)
        troubles.cancel()
        world.kernel.trace("heal")
        faults.heal(world)
        world.stopping = True
        self._look_at_failures()
        try:
            async with asyncio.timeout(LIVENESS_S):
                await world.finished()
        except TimeoutError:
            names = ", ".join(world.unfinished())
            raise Violated(f"liveness: not done {LIVENESS_S} s after all was mended: {names}") from None
        await world.on_host("drain", lambda host: self._drain(host, topics))
        self._check_history()
        world.broker.stays_down = True
        world.broker.shut_down()
        while world.broker.is_up:
            await asyncio.sleep(0.1)

    async def _set_up(self, host: ClientHost, topics: Sequence[Topic]) -> None:
        async with host.client() as client:
            if self.transaction_version != 2:
                update = FeatureUpdateKey(
                    feature="transaction.version", max_version_level=self.transaction_version, upgrade_type=2
                )
                await client.request(UpdateFeaturesRequest(feature_updates=[update]))
            message = CreateTopicsRequest(timeout_ms=10_000)
            for topic in topics:
                configs = [CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()]
                message.topics.append(
                    CreatableTopic(
                        name=topic.name, num_partitions=topic.partitions, replication_factor=1, configs=configs
                    )
                )
            response = await client.request(message)
            for created in response.topics:
                if created.error_code:
                    raise BrokerRefused(created.error_code, f"topic {created.name}")

    async def _drain(self, host: ClientHost, topics: Sequence[Topic]) -> None:
        async with host.client() as client:
            for topic in topics:
                await self._drain_topic(client, topic)

    async def _drain_topic(self, client: AsyncClient, topic: Topic) -> None:
        partitions = [TopicPartition(TopicName(topic.name), index) for index in range(topic.partitions)]
        async with AsyncConsumer(client, FetchSettings(read_committed=True, max_wait_ms=100)) as consumer:
            stable = await consumer.list_offsets(dict.fromkeys(partitions, -1), read_committed=True)
            ends = await consumer.list_offsets(dict.fromkeys(partitions, -1))
            open_until = [f"{p}: {stable[p]} of {ends[p]}" for p in partitions if stable[p] != ends[p]]
            if open_until and not self._is_held(topic):
                raise Violated(f"liveness: the last stable offset stays behind: {', '.join(open_until)}")
            starts = await consumer.list_offsets(dict.fromkeys(partitions, -2))
            self.recorder.log_starts.update(starts)
            self.recorder.drained.update({partition: [] for partition in partitions})
            await consumer.assign(starts, stable)
            while len(consumer.positions):
                for fetched in await consumer.poll():
                    self.recorder.drained[fetched.partition] += _seen(self.recorder, fetched)

    def _is_held(self, topic: Topic) -> bool:
        """Whether a prepared transaction may hold it for ever."""
        return False

    def _look_at_failures(self) -> None:
        """What no broker may ever do: stop by itself without a reason, or fail at a request."""
        if self.world.loop.failures:
            raise Violated(f"a client's task failed: {self.world.loop.failures[0]!r}")
        for report in self.world.broker.reports:
            if "its connection is closed" in report and "Traceback" in report:
                raise Violated(f"a handler failed: {report}")
        for death in self.world.broker.deaths:
            if not _is_excused(death):
                raise Violated(f"the broker stopped: {death}")

    def _check_history(self) -> None:
        found = check(self.recorder.history())
        for rule, instances in found.items():
            raise Violated(f"{rule}: {instances[0]}" + (f" (and {len(instances) - 1} more)" if instances[1:] else ""))

    def _check_at_rest(self) -> None:
        self._look_at_failures()


def _violated(what: str) -> NoReturn:
    raise Violated(what)


def _seen(recorder: Recorder, fetched: object) -> list[Seen]:
    from oncelog.client.machine.reading import read_fetched

    return [
        Seen(one.offset, value_of(one.value, one.headers), None if one.key is None else one.key.decode())
        for one in read_fetched(fetched, read_committed=True)  # type: ignore[arg-type]
    ]


def _is_excused(death: str) -> bool:
    """Whether a broker may stop for this: what the disk did to it."""
    return any(word in death for word in ("PowerLost", "Errno 5", "Errno 28", "input/output error", "no space left"))


def _draw_config(draws: random.Random) -> Mapping[str, str]:
    return {
        "transaction.state.log.num.partitions": str(draws.choice((1, 3, 5))),
        "offsets.topic.num.partitions": str(draws.choice((1, 3, 5))),
        "log.roll.ms": str(draws.choice((2_000, 10_000, 3_600_000))),
        "group.initial.rebalance.delay.ms": str(draws.choice((0, 500))),
    }


def _suitable(plan: list[Fault], transaction_version: int) -> list[Fault]:
    """Late requests decide the wrong transaction in Transactions V1, by Kafka's design (KAFKA-17754): not there."""
    late = ("cut-up", "hold-connection", "reset", "repeated-requests")
    return plan if transaction_version >= 2 else [fault for fault in plan if fault.kind not in late]
