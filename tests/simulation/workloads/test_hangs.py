"""The world of hanging transactions: hangs of every kind do occur in it, and administrators set partitions free."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from oncelog.sim.faults.fault import Fault
from oncelog.sim.seeds.cluster_scenario import draw_cluster_scenario
from oncelog.sim.seeds.scenario import Replication, Scenario, draw_scenario
from oncelog.sim.seeds.simulation import Simulation
from oncelog.sim.workloads.hangs import HangingTransactions, draw_hangs

SECONDS = 20


def scene_of(
    seed: int, *, verifies: bool, log_damager: bool, in_cluster: bool = False
) -> tuple[Scenario, HangingTransactions]:
    """A calm one; in a cluster each broker is killed once."""
    hangs, config = draw_hangs("hang", random.Random(seed), in_cluster=in_cluster)
    config = {**config, "transaction.partition.verification.enable": "true" if verifies else "false"}
    hangs.truth.verifies = verifies
    hangs = replace(hangs, log_damager=log_damager, injectors=2, administrators=1)
    if in_cluster:
        kills = [Fault(at_ms, "kill", 500, at_ms) for at_ms in range(4_000, SECONDS * 1000, 4_000)]
        drawn = draw_cluster_scenario(seed, SECONDS * 1000, kills, brokers=3)
        scenario = replace(drawn, replication={topic.name: Replication(3, 2) for topic in hangs.topics()})
    else:
        scenario = draw_scenario(seed, SECONDS * 1000, [])
    return replace(scenario, workloads=[hangs], config={**scenario.config, **config}, transaction_version=2), hangs


@pytest.mark.slow
def test_hangs_occur_and_are_ended() -> None:
    scenario, hangs = scene_of(3, verifies=False, log_damager=True)
    simulation = Simulation(3, scenario, SECONDS, None)
    assert simulation.run().violations == []
    kinds = Counter(item.kind for item in hangs.truth.injected.values() if item.certain)
    assert len(kinds.keys() & {"late", "moved-on", "offsets", "raw", "unlisted"}) > 2
    assert kinds.keys() & {"lost", "tombstone", "unmarked"}
    ended = [
        audit for audit in simulation.world.broker.audits if audit.action == "abort-hanging" and audit.outcome == "NONE"
    ]
    assert len(ended) > 5


@pytest.mark.slow
@pytest.mark.long
def test_hangs_are_found_and_ended_in_a_cluster_whose_brokers_are_killed() -> None:
    scenario, hangs = scene_of(3, verifies=False, log_damager=False, in_cluster=True)
    simulation = Simulation(3, scenario, SECONDS, None)
    assert simulation.run().violations == []
    kinds = {item.kind for item in hangs.truth.injected.values() if item.certain}
    assert len(kinds & {"late", "moved-on", "offsets", "raw", "unlisted"}) > 2
    ends = [audit for broker in simulation.world.brokers for audit in broker.audits if audit.action == "abort-hanging"]
    assert sum(end.outcome == "NONE" for end in ends) > 2


@pytest.mark.slow
def test_a_leader_that_verifies_lets_none_begin() -> None:
    scenario, hangs = scene_of(4, verifies=True, log_damager=False)
    assert Simulation(4, scenario, SECONDS, None).run().violations == []
    assert hangs.truth.injected
    assert not any(item.certain for item in hangs.truth.injected.values())
