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
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NoReturn

from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import ClientError
from oncelog.sim.checkers.anomalies import check
from oncelog.sim.checkers.cluster.observer import ClusterObserver
from oncelog.sim.checkers.disk.admin_aborts import ends_of
from oncelog.sim.checkers.disk.logs import ChangingTopics
from oncelog.sim.checkers.disk.observer import check_disk, check_markers
from oncelog.sim.checkers.liveness import WITHOUT_MEMBERS, EndState, check_liveness
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.sim.checkers.wire.tap import DecodingTap
from oncelog.sim.checkers.wire.watermarks import ClusterWatermarks
from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.plan import carry_out, heal
from oncelog.sim.seeds.cluster_scenario import draw_cluster_scenario
from oncelog.sim.seeds.scenario import Scenario, draw_scenario
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.sim.workloads.kit.final_state import drain, groups_of, offsets_of, partitions_of, transactions_of
from oncelog.sim.workloads.kit.recorder import Recorder
from oncelog.sim.workloads.kit.requests import create_topics
from oncelog.sim.workloads.kit.workload import Topic, WorkloadContext
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

SAFETY_S: Final = 100
LIVENESS_S: Final = 120
SETTLING_S: Final = 5
"""The time after the healing until everybody is connected again."""
CLUSTER_SETTLING_S: Final = 20
"""The same for several brokers, whose sessions may have to end first, and logs to be copied."""
LOOKS_S: Final = 0.05
"""The time between two looks into the brokers of a cluster."""
CALM_S: Final = 15
"""The time behind it in which nothing is wrong: whatever is asked has to be answered."""
_DOWNGRADE: Final = 2
_EXCUSES: Final = (
    *("PowerLost", "ProcessKilled", "Errno 5]", "Errno 28]", "input/output error", "no space left"),
    *("TreeUnavailable", "TreeUnreachable"),
    *("is damaged at offset", "are damaged on this broker's disk", "Record is corrupt", "checksum of the batch at"),
)
"""Words in a report or a cause of death that name a fault: the disk's, or the path's to the coordination tree; or a
bit that has flipped."""
_ID_IN_USE: Final = "is already running in this cluster"
"""The same, where a machine has another disk: the session of its dead process is still there."""


@dataclass(slots=True)
class SeedResult:
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
    safety_s: int = SAFETY_S,
    log: Callable[[str], None] | None = None,
    brokers: int | None = 1,
    kinds: Sequence[str] = (),
) -> SeedResult:
    """Run one seed. ``plan`` replaces the faults that it draws, ``kinds`` the kinds of faults that it draws from.
    ``brokers``: more than one is a cluster; None: the seed draws how many."""
    if brokers == 1:
        scenario = draw_scenario(seed, safety_s * 1000, plan, kinds=kinds)
    else:
        scenario = draw_cluster_scenario(seed, safety_s * 1000, plan, brokers, kinds)
    with _one_collection():
        return Simulation(seed, scenario, safety_s, log).run()


class Simulation:
    """One run of a seed, from its world to its verdict."""

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
        self.world.tree.outlives_processes = scenario.sessions_outlive_processes
        self.recorder = Recorder(self.world.kernel)
        self.context = WorkloadContext(self.world, self.recorder, scenario.transaction_version)
        self.topics = [_replicated(topic, scenario) for workload in scenario.workloads for topic in workload.topics()]
        self.world.kernel.log = log
        is_cluster = scenario.brokers > 1
        self.observer = WireObserver(is_cluster=is_cluster)
        self.cluster = self._observe_cluster() if is_cluster else None
        if self.cluster is not None and isinstance(self.observer.watermarks, ClusterWatermarks):
            self.observer.watermarks.on_high = self.cluster.told
            self.observer.on_deleted = self.cluster.deleted
        self.taps: list[DecodingTap] = []
        for broker in self.world.brokers:
            tap = DecodingTap(self.observer, self.world.kernel.now_ms, _violated, broker.broker_id)
            self.taps.append(tap)
            broker.observe(tap, partial(self._died, broker))
        for broker, error_ms in zip(self.world.brokers, scenario.clock_errors_ms, strict=False):
            broker.move_clock(error_ms)
        self._deaths_ms: list[int] = []
        """Deaths by the clock of the broker that died, which its markers have, too."""
        self._reported = [0] * scenario.brokers
        """Number of reports of each broker that were looked at."""

    def _observe_cluster(self) -> ClusterObserver:
        synced = self.scenario.config.get("log.sync.policy") != "none"
        return ClusterObserver(self.world.brokers, self.world.tree, _violated, synced=synced)

    def run(self) -> SeedResult:
        violations: list[str] = []
        kernel = self.world.kernel
        try:
            self.world.run(self._main(), until_s=self.safety_s + 4 * LIVENESS_S)
            settled = not any(workload.leaves_open for workload in self.scenario.workloads)
            for broker in self.world.brokers:
                self._check_disk(broker, torn=False, settled=settled)
            self._check_disks(settled=settled)
        except Violated as violated:
            violations = [str(violated)]
        except ClientError as error:
            violations = [f"S5 what is there cannot be read: {error!r}"]
        except TimeoutError as error:
            violations = [f"L0 not at rest: {error}: {', '.join(self.world.unfinished()) or 'the drain'}"]
        kernel.trace(f"violations {violations}")
        outcome = SeedResult(
            seed=kernel.seed,
            violations=violations,
            events=kernel.happened,
            requests=sum(tap.requests for tap in self.taps),
            virtual_s=kernel.now_us / 1_000_000,
            trace_sha256=kernel.trace_sha256(),
            plan=list(self.scenario.plan),
            workloads=[repr(workload) for workload in self.scenario.workloads],
            last_lines=kernel.last_lines() if violations else [],
        )
        kernel.log = None
        self._end()
        return outcome

    def _end(self) -> None:
        """Let all tasks clean up. The verdict is there: a rule that is broken once more on the way hides nothing."""
        while True:
            try:
                self.world.loop.end()
            except Violated:
                continue
            return

    # Phases

    async def _main(self) -> None:
        world = self.world
        for broker in world.brokers:
            broker.start_until_up()
        await world.on_host("setup", self._set_up)
        for workload in self.scenario.workloads:
            workload.start(self.context)
        troubles = asyncio.create_task(carry_out(world, self.scenario.plan))
        self._look()
        await asyncio.sleep(self.safety_s)
        troubles.cancel()
        world.kernel.trace("heal")
        heal(world)
        self._check_reports()
        await asyncio.sleep(SETTLING_S)
        world.is_calm = True
        if self.cluster is not None:
            await asyncio.sleep(CLUSTER_SETTLING_S - SETTLING_S)
        for tap in self.taps:
            tap.calm_since_ms = world.kernel.now_ms()
        await asyncio.sleep(CALM_S)
        world.is_calm = False
        await self._come_to_rest()
        await world.on_host("drain", self._drain)
        self._raise(check(self.recorder.history()))
        await self._become_alike()
        for broker in world.brokers:
            broker.stays_down = True
            broker.shut_down()
        while any(broker.is_up for broker in world.brokers):
            await asyncio.sleep(0.1)
        gc.collect()  # asyncio tells of exceptions that nobody took when their tasks are collected
        self._check_reports()

    def _look(self) -> None:
        """Look into a cluster, and again after a while. A call of the kernel's: what it raises ends the run."""
        if self.cluster is not None:
            self.cluster.look()
            self.world.kernel.after(int(LOOKS_S * 1_000_000), self._look)

    async def _become_alike(self) -> None:
        """R10: wait, within the bound, until all replicas are in sync and equally long."""
        if self.cluster is None:
            return
        for _ in range(LIVENESS_S):
            wrong = self.cluster.unlike()
            if not wrong:
                break
            await asyncio.sleep(1)
        else:
            _violated(f"{wrong[0][0]}: {wrong[0][1]} (and {len(wrong) - 1} more)")
        self.cluster.look()

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
            await self._all_joined(host, client)
            version = self.scenario.transaction_version
            if version != 2:
                update = FeatureUpdateKey(
                    feature="transaction.version", max_version_level=version, upgrade_type=_DOWNGRADE
                )
                await client.request(UpdateFeaturesRequest(feature_updates=[update]))
            await create_topics(client, self.topics)

    async def _all_joined(self, host: ClientHost, client: AsyncClient) -> None:
        while self.cluster is not None:
            await client.refresh()
            if len(client.view.brokers) == len(self.world.brokers):
                break
            await host.sleep(100)

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
            if left and all(
                transaction.state != "Ongoing" or transaction.two_phase for transaction in await transactions_of(client)
            ):
                break
            await host.sleep(1_000)
        await host.sleep(1_000)

    # What is looked at

    def _died(self, broker: BrokerHost, power_lost: bool) -> None:
        """A broker's process is gone: in some of these moments its disk is checked."""
        self._deaths_ms.append(broker.now_ms())
        entropy = self.world.kernel.entropy("disk checks")
        is_looked_at = entropy.random() < self.scenario.disk_checks
        if self.cluster is not None:
            if power_lost:
                self.cluster.lost_power(broker)
            self.observer.watermarks.replicas_lost(self.cluster.only_on(broker))
            self.cluster.in_sync.check_all()
            if is_looked_at:
                self.cluster.compare_disks()
        if is_looked_at:
            self._check_disk(broker, torn=power_lost, settled=False)

    def _check_disk(self, broker: BrokerHost, *, torn: bool, settled: bool) -> None:
        if broker.machine.standing_flips():
            return  # nobody has read it so far; at the end none is left
        acknowledged = self.observer.acknowledged_batches()
        if self.cluster is not None:
            acknowledged = [one for one in acknowledged if self.cluster.has_to_have(broker, one)]
        with broker.files.examined() as files:
            found = check_disk(
                files,
                acknowledged=acknowledged,
                kept=self._kept(),
                torn=torn,
                settled=settled,
                restarted_at_ms=self._deaths_ms,
                ended=ends_of(broker.audits),
                now_ms=broker.now_ms(),
                is_alone=self.cluster is None,
                unreplicated=() if self.cluster is None else self.cluster.unreplicated(),
            )
        self._raise(found)

    def _check_disks(self, *, settled: bool) -> None:
        """Check what only the disks of all brokers of a cluster show."""
        if self.cluster is None:
            return
        self.cluster.compare_disks()
        brokers = self.world.brokers
        ended = [end for broker in brokers for end in ends_of(broker.audits)]
        self._raise(
            check_markers([broker.files for broker in brokers], kept=self._kept(), settled=settled, ended=ended)
        )

    def _kept(self) -> ChangingTopics:
        recorder = self.recorder
        return ChangingTopics(
            compacted=frozenset(recorder.compacted),
            rewritten=frozenset(recorder.rewritten),
            expiring=frozenset(recorder.expiring),
            recreated=frozenset(deletion.topic for deletion in recorder.deletions),
        )

    def _check_reports(self) -> None:
        """Rules S1 to S6: no client and no request may fail with an exception, no broker may stop for no reason."""
        if self.recorder.objections:
            _violated(self.recorder.objections[0])
        if self.world.loop.failures:
            _violated(f"S1 a client failed: {self.world.loop.failures[0]!r}")
        for index, broker in enumerate(self.world.brokers):
            for report in broker.reports[self._reported[index] :]:
                if report.startswith("error: ") and not is_excused(broker, report):
                    _violated(f"S2 a request failed: {report}")
            self._reported[index] = len(broker.reports)
            for death in broker.deaths:
                if not is_excused(broker, death):
                    _violated(f"S3 the broker stopped: {death}")

    def _raise(self, found: dict[str, list[str]]) -> None:
        for rule, instances in found.items():
            _violated(f"{rule}: {instances[0]}" + (f" (and {len(instances) - 1} more)" if instances[1:] else ""))


def is_excused(broker: BrokerHost, said: str) -> bool:
    """True if a report of a broker, or a cause of its death, names a fault."""
    return any(word in said for word in _EXCUSES) or (broker.has_lost_disk and _ID_IN_USE in said)


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


def _replicated(topic: Topic, scenario: Scenario) -> Topic:
    drawn = scenario.replication.get(topic.name)
    if drawn is None:
        return topic
    configs = {**topic.configs, "min.insync.replicas": str(drawn.min_insync_replicas)}
    return replace(topic, configs=configs, replication_factor=drawn.factor)
