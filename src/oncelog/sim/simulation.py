"""One seed: a world, workloads, a plan of faults, a time to heal, and every checker.

Safety phase: workloads run while faults happen; nothing wrong may ever be seen. Liveness phase: everything is mended;
while workloads go on for a while every request must be answered; then every program must come to its end within
:data:`LIVENESS_S` of virtual time, and no transaction may stay open. Then all
topics are drained, the broker is shut down, and history, wire and disk are checked. A run stops at its first violation.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.sim.broker_host import BrokerHost
from oncelog.sim.checkers.anomalies import check
from oncelog.sim.checkers.disk.administrative import ends_of
from oncelog.sim.checkers.disk.logs import Kept
from oncelog.sim.checkers.disk.observer import check_disk
from oncelog.sim.checkers.liveness import WITHOUT_MEMBERS, EndState, check_liveness
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.sim.end_state import drain, groups_of, offsets_of, partitions_of, transactions_of
from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.plan import carry_out, heal
from oncelog.sim.scenario import Scenario, draw_scenario
from oncelog.sim.wire_tap import DecodingTap
from oncelog.sim.workloads.recorder import Recorder
from oncelog.sim.workloads.workload import Topic, WorkloadContext
from oncelog.sim.world import ClientHost, World
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

SAFETY_S: Final = 100
LIVENESS_S: Final = 120
SETTLING_S: Final = 5
"""After the healing, until everybody is connected again."""
CALM_S: Final = 15
"""Then nothing is wrong for so long: whatever is asked has to be answered."""
_DOWNGRADE: Final = 2
_EXCUSES: Final = (
    *("PowerLost", "ProcessKilled", "Errno 5]", "Errno 28]", "input/output error", "no space left"),
    *("TreeUnavailable", "TreeUnreachable"),
)
"""Words in a report or a cause of death that name a fault: the disk's, or the path's to the coordination tree."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a seed."""

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
    mutant: AbstractContextManager[object] | None = None,
    safety_s: int = SAFETY_S,
    log: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed. ``plan`` replaces the faults that it draws, ``mutant`` breaks the code meanwhile on purpose."""
    with mutant or nullcontext(), _one_collection():
        return Simulation(seed, draw_scenario(seed, safety_s * 1000, plan), safety_s, log).run()


class Simulation:
    """See the module."""

    def __init__(self, seed: int, scenario: Scenario, safety_s: int, log: Callable[[str], None] | None) -> None:
        self.scenario = scenario
        self.safety_s = safety_s
        self.world = World(
            seed,
            scenario.config,
            brokers=scenario.brokers,
            latencies=scenario.latencies,
            conditions=scenario.conditions,
            session_timeout_ms=scenario.session_timeout_ms,
        )
        self.recorder = Recorder(self.world.kernel)
        self.context = WorkloadContext(self.world, self.recorder, scenario.transaction_version)
        self.topics: list[Topic] = [topic for workload in scenario.workloads for topic in workload.topics()]
        self.world.kernel.log = log
        self.observer = WireObserver()
        self.tap = DecodingTap(self.observer, self.world.kernel.now_ms, _violated)
        for broker in self.world.brokers:
            broker.observe(self.tap, partial(self._died, broker))
        self._deaths_ms: list[int] = []
        """By the clock of the broker that died, which its markers have, too."""
        self._reported = [0] * scenario.brokers
        """Number of reports of each broker that were looked at."""

    def run(self) -> Outcome:
        """All of it."""
        violations: list[str] = []
        kernel = self.world.kernel
        try:
            self.world.run(self._main(), until_s=self.safety_s + 4 * LIVENESS_S)
            settled = not any(workload.leaves_open for workload in self.scenario.workloads)
            for broker in self.world.brokers:
                self._check_disk(broker, torn=False, settled=settled)
        except Violated as violated:
            violations = [str(violated)]
        except ClientError as error:
            violations = [f"S5 what is there cannot be read: {error!r}"]
        except TimeoutError as error:
            violations = [f"L0 not at rest: {error}: {', '.join(self.world.unfinished()) or 'the drain'}"]
        kernel.trace(f"violations {violations}")
        outcome = Outcome(
            seed=kernel.seed,
            violations=violations,
            events=kernel.happened,
            requests=self.tap.requests,
            virtual_s=kernel.now_us / 1_000_000,
            trace_sha256=kernel.trace_sha256(),
            plan=list(self.scenario.plan),
            workloads=[repr(workload) for workload in self.scenario.workloads],
            last_lines=kernel.last_lines() if violations else [],
        )
        kernel.log = None
        self.world.loop.end()
        return outcome

    # Phases

    async def _main(self) -> None:
        world = self.world
        for broker in world.brokers:
            broker.start_until_up()
        await world.on_host("setup", self._set_up)
        for workload in self.scenario.workloads:
            workload.start(self.context)
        troubles = asyncio.create_task(carry_out(world, self.scenario.plan))
        await asyncio.sleep(self.safety_s)
        troubles.cancel()
        world.kernel.trace("heal")
        heal(world)
        self._check_reports()
        await asyncio.sleep(SETTLING_S)
        self.tap.calm_since_ms = world.kernel.now_ms()
        await asyncio.sleep(CALM_S)
        await self._come_to_rest()
        await world.on_host("drain", self._drain)
        self._raise(check(self.recorder.history()))
        for broker in world.brokers:
            broker.stays_down = True
            broker.shut_down()
        while any(broker.is_up for broker in world.brokers):
            await asyncio.sleep(0.1)
        gc.collect()  # asyncio tells of exceptions that nobody took when their tasks are collected
        self._check_reports()

    async def _come_to_rest(self) -> None:
        world = self.world
        world.stopping = True
        try:
            async with asyncio.timeout(LIVENESS_S):
                await world.finished()
        except TimeoutError:
            names = ", ".join(world.unfinished())
            raise Violated(f"L0 not at rest {LIVENESS_S} s after all was mended: {names}") from None

    async def _set_up(self, host: ClientHost) -> None:
        async with host.client() as client:
            version = self.scenario.transaction_version
            if version != 2:
                update = FeatureUpdateKey(
                    feature="transaction.version", max_version_level=version, upgrade_type=_DOWNGRADE
                )
                await client.request(UpdateFeaturesRequest(feature_updates=[update]))
            await _create(client, self.topics)

    async def _drain(self, host: ClientHost) -> None:
        healed_at_ms = host.now_ms
        async with host.client() as client:
            await self._let_time_outs_pass(host, client)
            partitions = await partitions_of(client, self.topics)
            end_state = EndState(
                healed_at_ms=healed_at_ms,
                bound_ms=LIVENESS_S * 1000,
                partitions=await offsets_of(client, partitions),
                transactions=await transactions_of(client),
                groups=await groups_of(client),
                waiting=self.observer.waiting(healed_at_ms),
            )
            self._raise(check_liveness(end_state))
            for workload in self.scenario.workloads:
                await workload.record_final_state(self.context, client)
            await drain(client, self.recorder, partitions)

    async def _let_time_outs_pass(self, host: ClientHost, client: AsyncClient) -> None:
        """Wait, within the bound, until the transactions and groups of dead clients have ended by their time-outs.

        A group of dead members is "Stable" until the first of their sessions ends, and rebalances then.
        """
        until_ms = host.now_ms + LIVENESS_S * 1000
        while host.now_ms < until_ms:
            left = WITHOUT_MEMBERS.issuperset((await groups_of(client)).values())
            if left and all(one.state != "Ongoing" or one.two_phase for one in await transactions_of(client)):
                break
            await host.sleep(1_000)
        await host.sleep(1_000)

    # What is looked at

    def _died(self, broker: BrokerHost, power_lost: bool) -> None:
        """A broker's process is gone: in some of these moments its disk is checked."""
        self._deaths_ms.append(broker.now_ms())
        entropy = self.world.kernel.entropy("disk checks")
        if entropy.random() < self.scenario.disk_checks:
            self._check_disk(broker, torn=power_lost, settled=False)

    def _check_disk(self, broker: BrokerHost, *, torn: bool, settled: bool) -> None:
        recorder = self.recorder
        kept = Kept(
            compacted=frozenset(recorder.compacted),
            rewritten=frozenset(recorder.rewritten),
            expiring=frozenset(recorder.expiring),
            recreated=frozenset(one.topic for one in recorder.deletions),
        )
        found = check_disk(
            broker.files,
            acknowledged=self.observer.acknowledged_batches(),
            kept=kept,
            torn=torn,
            settled=settled,
            restarted_at_ms=self._deaths_ms,
            ended=ends_of(broker.audits),
            now_ms=broker.now_ms(),
        )
        self._raise(found)

    def _check_reports(self) -> None:
        """Rules S1 to S6: no client and no request may fail with an exception, no broker may stop for no reason."""
        if self.recorder.objections:
            _violated(self.recorder.objections[0])
        if self.world.loop.failures:
            _violated(f"S1 a client failed: {self.world.loop.failures[0]!r}")
        for index, broker in enumerate(self.world.brokers):
            for report in broker.reports[self._reported[index] :]:
                if report.startswith("error: ") and not any(word in report for word in _EXCUSES):
                    _violated(f"S2 a request failed: {report}")
            self._reported[index] = len(broker.reports)
            for death in broker.deaths:
                if not any(word in death for word in _EXCUSES):
                    _violated(f"S3 the broker stopped: {death}")

    def _raise(self, found: dict[str, list[str]]) -> None:
        for rule, instances in found.items():
            _violated(f"{rule}: {instances[0]}" + (f" (and {len(instances) - 1} more)" if instances[1:] else ""))


@contextmanager
def _one_collection() -> Iterator[None]:
    """Looking for cyclic garbage again and again takes a tenth of a seed, which has little: once does, at its end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _violated(what: str) -> NoReturn:
    raise Violated(what)


async def _create(client: AsyncClient, topics: Sequence[Topic]) -> None:
    message = CreateTopicsRequest(timeout_ms=10_000)
    for topic in topics:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()]
        message.topics.append(
            CreatableTopic(name=topic.name, num_partitions=topic.partitions, replication_factor=1, configs=configs)
        )
    for created in (await client.request(message)).topics:
        if created.error_code:
            raise BrokerRefused(created.error_code, f"topic {created.name}")
