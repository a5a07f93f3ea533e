"""Runs one seed: a world, workloads, a plan of faults, a time to recover, and all checkers.

Safety phase: workloads run during the faults. Liveness phase: everything is repaired; while workloads continue for a
while, every request must be answered, then every program must end within :data:`LIVENESS_S` of virtual time, and no
transaction may stay open. At the end all topics are drained, the brokers shut down, and history, wire and disks
checked. A run stops at its first violation.
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
from oncelog.sim.checkers.share_groups import check_share_groups
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.sim.checkers.wire.shares import ShareLimits
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
# The time after the repair for all clients to reconnect.
SETTLING_S: Final = 5
# The same for clusters: sessions may have to expire, and logs to be copied.
CLUSTER_SETTLING_S: Final = 20
# The time between two checks of a cluster's brokers.
CLUSTER_CHECKS_S: Final = 0.05
# The time without faults that follows: every request must be answered.
CALM_S: Final = 15
_DOWNGRADE: Final = 2
# As in Apache Kafka, dead letters are tried five times.
_LETTERS_FAILED: Final = "its records are archived without a dead letter"
# Words in a report or cause of death that name a fault: of a disk or the path to the tree, or a flipped bit.
_EXCUSES: Final = (
    *("PowerLost", "ProcessKilled", "Errno 5]", "Errno 28]", "input/output error", "no space left"),
    *("TreeUnavailable", "TreeUnreachable"),
    *("is damaged at offset", "are damaged on this broker's disk", "Record is corrupt", "checksum of the batch at"),
    _LETTERS_FAILED,
)
# An excuse on a machine with a new disk: the session of its dead process still exists.
_ID_IN_USE: Final = "is already running in this cluster"


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
    """A rule is violated; the run ends."""


def simulate(
    seed: int,
    *,
    plan: Sequence[Fault] | None = None,
    safety_s: int = SAFETY_S,
    log: Callable[[str], None] | None = None,
    brokers: int | None = 1,
    kinds: Sequence[str] = (),
) -> SeedResult:
    """Run one seed. ``plan`` replaces the drawn faults, ``kinds`` the kinds to draw from. ``brokers``: more than one is
    a cluster; None: the seed draws the number.
    """
    if brokers == 1:
        scenario = draw_scenario(seed, safety_s * 1000, plan, kinds=kinds)
    else:
        scenario = draw_cluster_scenario(seed, safety_s * 1000, plan, brokers, kinds)
    with _single_collection():
        return Simulation(seed, scenario, safety_s, log).run()


class Simulation:
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
        self.world.tree.is_near = not scenario.sessions_outlive_processes  # a file of the host
        self.recorder = Recorder(self.world.kernel)
        self.context = WorkloadContext(self.world, self.recorder, scenario.transaction_version)
        self.topics = [
            _with_replication(topic, scenario) for workload in scenario.workloads for topic in workload.topics()
        ]
        self.world.kernel.log = log
        is_cluster = scenario.brokers > 1
        self.observer = WireObserver(is_cluster=is_cluster)
        self.cluster = self._observe_cluster() if is_cluster else None
        if self.cluster is not None and isinstance(self.observer.watermarks, ClusterWatermarks):
            self.observer.watermarks.on_high_watermark = self.cluster.record_watermark
            self.observer.on_deleted = self.cluster.deleted
        self._observe_shares()
        self.taps: list[DecodingTap] = []
        for broker in self.world.brokers:
            tap = DecodingTap(self.observer, self.world.kernel.now_ms, _violated, broker.broker_id)
            self.taps.append(tap)
            broker.observe(tap, partial(self._died, broker))
        for broker, error_ms in zip(self.world.brokers, scenario.clock_errors_ms, strict=False):
            broker.move_clock(error_ms)
        # Times of deaths by the clock of the broker, as in its markers.
        self._deaths_ms: list[int] = []
        # Number of checked reports of each broker.
        self._reported = [0] * scenario.brokers

    def _observe_cluster(self) -> ClusterObserver:
        synced = self.scenario.config.get("log.sync.policy") != "none"
        return ClusterObserver(self.world.brokers, self.world.tree, _violated, synced=synced)

    def _observe_shares(self) -> None:
        config, brokers = self.scenario.config, {broker.broker_id: broker for broker in self.world.brokers}
        self.observer.shares.limits = ShareLimits(
            int(config.get("group.share.delivery.count.limit", 5)),
            int(config.get("group.share.record.lock.duration.ms", 30_000)),
        )
        self.observer.shares.clock = lambda broker_id: brokers[broker_id].now_ms()

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
            violations = [f"S5 existing records cannot be read: {error!r}"]
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
        # Let all tasks clean up. Further violations on the way are ignored: the verdict is fixed.
        while True:
            try:
                self.world.loop.end()
            except Violated:
                continue
            return

    async def _main(self) -> None:
        world = self.world
        for broker in world.brokers:
            broker.start_until_up()
        await world.on_host("setup", self._set_up)
        for workload in self.scenario.workloads:
            workload.start(self.context)
        faults = asyncio.create_task(carry_out(world, self.scenario.plan))
        self._check_cluster_regularly()
        await asyncio.sleep(self.safety_s)
        faults.cancel()
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
        self._raise_first(check(self.recorder.history()))
        self._raise_first(self._check_share_groups())
        await self._wait_until_replicas_agree()
        for broker in world.brokers:
            broker.stays_down = True
            broker.shut_down()
        while any(broker.is_up for broker in world.brokers):
            await asyncio.sleep(0.1)
        gc.collect()  # asyncio reports unretrieved exceptions when it collects the tasks
        self._check_reports()

    def _check_share_groups(self) -> dict[str, list[str]]:
        recorder = self.recorder
        reports = (report for broker in self.world.brokers for report in broker.reports)
        recorder.share_groups.letters_failed = any(_LETTERS_FAILED in report for report in reports)
        return check_share_groups(self.observer.shares, recorder.share_groups, recorder.drained, recorder.log_starts)

    def _check_cluster_regularly(self) -> None:
        # Check the cluster now and regularly. The kernel calls it, so an exception ends the run.
        if self.cluster is not None:
            self.cluster.check()
            self.world.kernel.after(int(CLUSTER_CHECKS_S * 1_000_000), self._check_cluster_regularly)

    async def _wait_until_replicas_agree(self) -> None:
        """R10: wait, within the bound, until all replicas are in sync and equally long."""
        if self.cluster is None:
            return
        for _ in range(LIVENESS_S):
            differences = self.cluster.differences_at_rest()
            if not differences:
                break
            await asyncio.sleep(1)
        else:
            _violated(f"{differences[0][0]}: {differences[0][1]} (and {len(differences) - 1} more)")
        self.cluster.check()

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
            await self._wait_for_brokers(host, client)
            version = self.scenario.transaction_version
            if version != 2:
                update = FeatureUpdateKey(
                    feature="transaction.version", max_version_level=version, upgrade_type=_DOWNGRADE
                )
                await client.request(UpdateFeaturesRequest(feature_updates=[update]))
            await create_topics(client, self.topics)
            for workload in self.scenario.workloads:
                await workload.prepare(self.context, client)

    async def _wait_for_brokers(self, host: ClientHost, client: AsyncClient) -> None:
        while self.cluster is not None:
            await client.refresh()
            if len(client.view.brokers) == len(self.world.brokers):
                break
            await host.sleep(100)

    async def _drain(self, host: ClientHost) -> None:
        healed_at_ms = host.now_ms
        async with host.client() as client:
            await self._wait_for_timeouts(host, client)
            partitions = await partitions_of(client, self.topics)
            end_state = EndState(
                healed_at_ms=healed_at_ms,
                bound_ms=LIVENESS_S * 1000,
                partitions=await offsets_of(client, partitions),
                transactions=await transactions_of(client),
                groups=await groups_of(client),
                waiting=self.observer.waiting(healed_at_ms),
            )
            self._raise_first(check_liveness(end_state))
            for workload in self.scenario.workloads:
                await workload.record_final_state(self.context, client)
            await drain(client, self.recorder, partitions)

    async def _wait_for_timeouts(self, host: ClientHost, client: AsyncClient) -> None:
        """Wait, within the bound, until transactions and groups of dead clients have timed out."""
        until_ms = host.now_ms + LIVENESS_S * 1000
        while host.now_ms < until_ms:
            # A group of dead members is "Stable" until the first of their sessions ends, and then rebalances.
            are_empty = WITHOUT_MEMBERS.issuperset((await groups_of(client)).values())
            if are_empty and all(
                transaction.state != "Ongoing" or transaction.two_phase for transaction in await transactions_of(client)
            ):
                break
            await host.sleep(1_000)
        await host.sleep(1_000)

    def _died(self, broker: BrokerHost, power_lost: bool) -> None:
        # A broker's process is gone. Its disk is checked in a share of these cases.
        self._deaths_ms.append(broker.now_ms())
        entropy = self.world.kernel.entropy("disk checks")
        is_checked = entropy.random() < self.scenario.disk_checks
        if self.cluster is not None:
            if power_lost:
                self.cluster.lost_power(broker)
            self.observer.watermarks.replicas_lost(self.cluster.partitions_only_on(broker))
            self.cluster.in_sync.check_all()
            if is_checked:
                self.cluster.compare_disks()
        if is_checked:
            self._check_disk(broker, torn=power_lost, settled=False)

    def _check_disk(self, broker: BrokerHost, *, torn: bool, settled: bool) -> None:
        if broker.machine.standing_flips():
            return  # a bit that was not read yet; at the end all are repaired
        acknowledged = self.observer.acknowledged_batches()
        if self.cluster is not None:
            acknowledged = [batch for batch in acknowledged if self.cluster.must_have(broker, batch)]
        with broker.files.examined() as files:
            instances_by_rule = check_disk(
                files,
                acknowledged=acknowledged,
                kept=self._changing_topics(),
                torn=torn,
                settled=settled,
                restarted_at_ms=self._deaths_ms,
                ended=ends_of(broker.audits),
                now_ms=broker.now_ms(),
                is_alone=self.cluster is None,
                unreplicated=() if self.cluster is None else self.cluster.unreplicated(),
            )
        self._raise_first(instances_by_rule)

    def _check_disks(self, *, settled: bool) -> None:
        if self.cluster is None:
            return
        self.cluster.compare_disks()
        brokers = self.world.brokers
        ended = [end for broker in brokers for end in ends_of(broker.audits)]
        self._raise_first(
            check_markers(
                [broker.files for broker in brokers], kept=self._changing_topics(), settled=settled, ended=ended
            )
        )

    def _changing_topics(self) -> ChangingTopics:
        recorder = self.recorder
        return ChangingTopics(
            compacted=frozenset(recorder.compacted),
            rewritten=frozenset(recorder.rewritten),
            expiring=frozenset(recorder.expiring),
            recreated=frozenset(deletion.topic for deletion in recorder.deletions),
        )

    def _check_reports(self) -> None:
        if self.recorder.violations:
            _violated(self.recorder.violations[0])
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

    def _raise_first(self, instances_by_rule: dict[str, list[str]]) -> None:
        for rule, instances in instances_by_rule.items():
            _violated(f"{rule}: {instances[0]}" + (f" (and {len(instances) - 1} more)" if instances[1:] else ""))


def is_excused(broker: BrokerHost, message: str) -> bool:
    return any(word in message for word in _EXCUSES) or (broker.has_lost_disk and _ID_IN_USE in message)


@contextmanager
def _single_collection() -> Iterator[None]:
    # Repeated collections take a tenth of a run, which produces little cyclic garbage.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _violated(message: str) -> NoReturn:
    raise Violated(message)


def _with_replication(topic: Topic, scenario: Scenario) -> Topic:
    replication = scenario.replication.get(topic.name)
    if replication is None:
        return topic
    configs = {**topic.configs, "min.insync.replicas": str(replication.min_insync_replicas)}
    return replace(topic, configs=configs, replication_factor=replication.factor)
