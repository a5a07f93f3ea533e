"""Seeds of clusters: what they draw, and a few whole ones that find nothing wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from oncelog.sim.faults.brokers import AT_ANSWERS, BY_WORKLOADS
from oncelog.sim.faults.clusters import LOST_DISK
from oncelog.sim.faults.damage import DAMAGE
from oncelog.sim.faults.plan import KINDS, OF_CLUSTERS
from oncelog.sim.seeds.cluster_scenario import draw_cluster_scenario
from oncelog.sim.seeds.scenario import draw_scenario
from oncelog.sim.seeds.simulation import simulate
from oncelog.sim.workloads.hangs import HangingTransactions
from oncelog.sim.workloads.share_queues import ShareQueues

SAFETY_MS = 100_000


def test_every_kind_of_fault_is_drawn_and_a_disk_is_lost_only_where_all_is_on_two() -> None:
    used: Counter[str] = Counter()
    for seed in range(300):
        scenario = draw_cluster_scenario(seed, SAFETY_MS, None)
        kinds = {fault.kind for fault in scenario.plan}
        used.update(kinds)
        unsynced = scenario.config.get("log.sync.policy") == "none"
        if unsynced:
            assert [fault.kind for fault in scenario.plan if "power" in fault.kind] == ["power-cut-in-full-sets"]
        assert not (kinds & LOST_DISK.keys() and kinds & DAMAGE.keys())
        if unsynced or kinds & {*LOST_DISK, *DAMAGE}:
            assert scenario.brokers >= 3
            assert {replicas.min_insync_replicas for replicas in scenario.replication.values()} == {2}
            assert {replicas.factor for replicas in scenario.replication.values()} == {3}
    assert used.keys() == {*KINDS, *OF_CLUSTERS, *AT_ANSWERS} - BY_WORKLOADS.keys()
    assert min(used.values()) >= 8


def test_kinds_of_faults_can_be_chosen() -> None:
    drawn = [draw_cluster_scenario(seed, SAFETY_MS, None, kinds=["kill", "lose-disk"]).plan for seed in range(10)]
    assert {fault.kind for plan in drawn for fault in plan} == {"kill", "lose-disk"}
    assert all(sum(fault.kind == "lose-disk" for fault in plan) == 1 for plan in drawn)
    again = draw_cluster_scenario(1, SAFETY_MS, drawn[1], kinds=["kill", "lose-disk"])
    assert again == draw_cluster_scenario(1, SAFETY_MS, None, kinds=["kill", "lose-disk"])


def test_where_bits_flip_no_disk_is_lost_and_recovery_points_are_written_often() -> None:
    kinds = ["flipped-bit", "flipped-bit-in-leader"]
    for seed in range(10):
        scenario = draw_cluster_scenario(seed, SAFETY_MS, None, kinds=kinds)
        assert {fault.kind for fault in scenario.plan} <= {*kinds}
        assert {replicas.factor for replicas in scenario.replication.values()} == {3}
        assert scenario.config["log.flush.offset.checkpoint.interval.ms"] == "1000"
        assert draw_cluster_scenario(seed, SAFETY_MS, scenario.plan, kinds=kinds) == scenario


def test_the_number_of_brokers_changes_nothing_else_that_a_seed_draws_first() -> None:
    drawn, forced = draw_cluster_scenario(5, SAFETY_MS, None), draw_cluster_scenario(5, SAFETY_MS, None, 4)
    assert forced.brokers == 4
    assert repr(forced.workloads) == repr(drawn.workloads)
    counts = {draw_cluster_scenario(seed, SAFETY_MS, None).brokers for seed in range(50)}
    assert counts == {2, 3, 4, 5}
    assert draw_scenario(5, SAFETY_MS, None).brokers == 1


def test_seeds_move_replicas_have_batches_refused_and_meet_hostile_clients() -> None:
    drawn = [draw_cluster_scenario(seed, SAFETY_MS, None).workloads for seed in range(80)]
    used = Counter(type(workload).__name__ for workloads in drawn for workload in workloads)
    assert all(used[kind] >= 4 for kind in ("HostileClients", "OldCopiers", "Reassignments", "RefusedBatches"))


def test_transactions_hang_in_some_seeds() -> None:
    drawn = [draw_cluster_scenario(seed, SAFETY_MS, None) for seed in range(60)]
    hanging = [scenario for scenario in drawn if isinstance(scenario.workloads[0], HangingTransactions)]
    assert 3 <= len(hanging) <= 15
    assert {len(scenario.workloads) for scenario in hanging} == {1}
    assert all(abs(error_ms) <= 1_000 for scenario in hanging for error_ms in scenario.clock_errors_ms)


def test_share_groups_run_in_some_seeds_with_their_state_on_as_many_disks_as_the_rest() -> None:
    drawn = [draw_cluster_scenario(seed, SAFETY_MS, None) for seed in range(100)]
    queuing = [scenario for scenario in drawn if isinstance(scenario.workloads[0], ShareQueues)]
    assert 4 <= len(queuing) <= 20
    for scenario in queuing:
        factor = int(scenario.config["share.coordinator.state.topic.replication.factor"])
        assert factor <= scenario.brokers
        if any(fault.kind in LOST_DISK for fault in scenario.plan):
            assert factor == 3


def test_topics_have_as_many_replicas_as_there_are_brokers_at_most() -> None:
    for seed in range(50):
        scenario = draw_cluster_scenario(seed, SAFETY_MS, None)
        assert {topic.name for workload in scenario.workloads for topic in workload.topics()} == {*scenario.replication}
        for factor, least in scenario.replication.values():
            assert 1 <= factor <= min(scenario.brokers, 3)
            assert least in (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.long), 2, 3])
def test_nothing_is_violated(seed: int) -> None:
    """Two-phase commit, and share groups."""
    outcome = simulate(seed, safety_s=15, brokers=None)
    assert outcome.violations == []
    assert outcome.requests > 500
