"""One run: a cluster under a seed's schedule with load and a transactional copy, and what came of it."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.brokers import Cluster
from tests.cluster.replicas import differing_replicas
from tests.cluster.schedule import FAULTS, PROXIED, Scenario, Schedule, Step
from tests.interop.consistency import copying
from tests.interop.consistency.copying_client import COPY, SOURCE
from tests.interop.consistency.reading import fill
from tests.load import Load, check, create_topic
from tests.peers.zookeeper import ZooKeeper

TOPIC: Final = "orders"
PARTITIONS: Final = 3
COPIES: Final = (
    ("confluent", False),
    ("confluent", True),
    ("aiokafka", False),
    ("oncelog", False),
    ("oncelog", True),
    ("oncelog-aio", False),
    ("oncelog-aio", True),
)
"""Clients of the transactional copy, with partitions assigned to them or as one group."""
_EVENTS_PER_S: Final = 40
_SECONDS_PER_CLIENT_FAULT: Final = 8


@dataclass(frozen=True)
class Plan:
    """How long, with what."""

    seed: int
    seconds: float
    names: Sequence[str] = ()
    """Faults; none named: all that the surroundings allow."""
    copy: tuple[str, bool] | None = None
    """Client of the copy, and whether it subscribes."""
    on_zookeeper: bool = False
    proxied: bool = True
    verbose: bool = False

    def faults(self) -> list[str]:
        """Those that can be had."""
        names = self.names or tuple(FAULTS)
        missing = (() if self.on_zookeeper else ("zookeeper",)) + (() if self.proxied else tuple(PROXIED))
        return [name for name in names if name not in missing]


class Struck(NamedTuple):
    """A fault that was, and the longest time without an acknowledgement around it."""

    name: str
    since_s: float
    until_s: float
    gap_s: float


@dataclass
class Report:
    """The findings of a run."""

    plan: Plan
    struck: list[Struck] = field(default_factory=list)
    acknowledged: int = 0
    longest_gaps: list[float] = field(default_factory=list)
    """Of each partition of the load."""
    copied: str = ""
    broken: list[str] = field(default_factory=list)

    def gaps(self) -> Iterator[str]:
        """One line a fault: how often, median and longest gap."""
        for name in FAULTS:
            ses = sorted(entry.gap_s for entry in self.struck if entry.name == name)
            if ses:
                median = ses[len(ses) // 2]
                yield f"  {name:10} {len(ses):3} times, longest gap: median {median:6.2f} s, most {ses[-1]:6.2f} s"


class Fire(threading.Thread):
    """Strikes by the schedule until the time is up."""

    def __init__(self, plan: Plan, scenario: Scenario, loads: Sequence[Load]) -> None:
        super().__init__(name="fire")
        self._plan = plan
        self._scenario = scenario
        self._loads = loads
        self.struck: list[tuple[Step, float, float]] = []
        self.broken: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        """See the class."""
        until_s = time.monotonic() + self._plan.seconds
        began_s = time.monotonic()
        try:
            for step in Schedule(self._plan.seed, self._plan.faults()).steps():
                if time.monotonic() >= until_s or self.enough.is_set():
                    return
                since_s = time.monotonic()
                if self._plan.verbose:
                    print(f"  {since_s - began_s:7.2f} {step.name} {step.seconds:.2f}", flush=True)
                FAULTS[step.name](self._scenario, step.chance, step.seconds)
                self.struck.append((step, since_s, time.monotonic()))
                self.broken += self._scenario.cluster.ended_by_themselves()
                if self.broken:
                    return
                if step.goes_on:
                    for load in self._loads:
                        load.wait_for_more()
                self.enough.wait(step.quiet_s)
        except Exception:  # noqa: BLE001  # whatever it is, the run has failed by it
            self.broken.append(traceback.format_exc())


class _Host:
    """The cluster as the copy sees it: struck by others."""

    def __init__(self, cluster: Cluster, fire: Fire) -> None:
        self.bootstrap_servers = cluster.bootstrap_servers
        self._fire = fire

    def strike(self) -> None:
        """See ``copying.Host``."""

    def look(self) -> int:
        """See ``copying.Host``."""
        if self._fire.broken:
            raise RuntimeError(self._fire.broken[0])
        return 0


def run(plan: Plan, directory: Path) -> Report:
    """The whole of it, in an empty directory."""
    report = Report(plan)
    with contextlib.ExitStack() as stack:
        zookeeper = None
        if plan.on_zookeeper:
            (directory / "zookeeper").mkdir()
            zookeeper = stack.enter_context(ZooKeeper(directory / "zookeeper"))
        tree = {"zookeeper.connect": f"{zookeeper.connect}/cluster"} if zookeeper else None
        cluster = stack.enter_context(Cluster(directory / "brokers", tree=tree, proxied=plan.proxied))
        create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
        loads = [
            Load(cluster.bootstrap_servers, TOPIC, f"producer-{number}", PARTITIONS, pause_s=0.01) for number in (1, 2)
        ]
        copy = _copy_plan(plan)
        if copy is not None:
            fill(cluster.bootstrap_servers, copy.sources, copy.each)
        fire = Fire(plan, Scenario(cluster, zookeeper, TOPIC, PARTITIONS), loads)
        try:
            for load in loads:
                load.start()
            for load in loads:
                load.wait_for_more()
            fire.start()
            if copy is not None:
                _copy(copy, _Host(cluster, fire), directory / "copy", report)
            fire.join()
        finally:
            fire.enough.set()
            if fire.ident:
                fire.join()
            for load in loads:
                load.stop()
        report.broken += fire.broken
        _conclude(report, cluster, loads, fire)
    return report


def _copy_plan(plan: Plan) -> copying.Plan | None:
    if plan.copy is None:
        return None
    client, groups = plan.copy
    return copying.Plan(
        plan.seed,
        int(plan.seconds * _EVENTS_PER_S),
        client,
        groups,
        faults={"client": 4, "frozen": 1, "replaced": 1},
        pause_s=(0.5, 3),
        most_faults=int(plan.seconds / _SECONDS_PER_CLIENT_FAULT),
    )


def _copy(plan: copying.Plan, host: _Host, directory: Path, report: Report) -> None:
    directory.mkdir()
    try:
        outcomes = copying.copy(plan, host, directory)
    except (RuntimeError, TimeoutError) as failure:
        report.broken.append(f"the copy: {failure}")
        return
    report.copied = outcomes.summary()
    report.broken += outcomes.failures
    for name, instances in outcomes.anomalies.items():
        report.broken.append(f"the copy: {name}, {len(instances)} times: {instances[:5]}")


def _conclude(report: Report, cluster: Cluster, loads: list[Load], fire: Fire) -> None:
    report.acknowledged = sum(load.count for load in loads)
    by_load = [load.longest_gaps() for load in loads]
    report.longest_gaps = [max(gap.seconds for gap in gaps) for gaps in zip(*by_load, strict=True)]
    for number, (step, since_s, until_s) in enumerate(fire.struck):
        following = fire.struck[number + 1 :]
        next_s = following[0][1] if following else float("inf")
        gap_s = max(gap.seconds for load in loads for gap in load.longest_gaps(since_s, min(until_s, next_s)))
        report.struck.append(Struck(step.name, since_s, until_s, gap_s))
    cluster.start()
    cluster.wait_healthy()
    report.broken += check(cluster.bootstrap_servers, TOPIC, loads)
    codes = [cluster.stop(broker_id) for broker_id in cluster.ids]
    if any(codes):
        report.broken.append(f"exit codes after SIGTERM: {codes}")
    directories = {broker_id: cluster.data_directory(broker_id) for broker_id in cluster.ids}
    topics = [TOPIC, SOURCE, COPY] if report.plan.copy else [TOPIC]
    for topic in topics:
        report.broken += differing_replicas(directories, topic)


def draw_plan(seed: int, seconds: float) -> Plan:
    """The surroundings that a seed chooses."""
    chance = random.Random(f"{seed}/plan")
    return Plan(seed, seconds, copy=chance.choice(COPIES), on_zookeeper=chance.random() < 0.4)
