"""Copiers of the old kind: they copy and are asked for their offsets, and a death at an EndTxn answer is theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.sim.faults.fault import Fault
from oncelog.sim.seeds.scenario import draw_scenario
from oncelog.sim.seeds.simulation import Simulation
from oncelog.sim.workloads.old_copiers import OldCopiers
from oncelog.sim.workloads.producers import Producers

SECONDS = 12


def simulation(plan: list[Fault]) -> Simulation:
    """One copier, one monitor, and no other workload."""
    copiers = OldCopiers("old0", Producers("old0", 1, 1, 100, transactional=False), monitors=1, pause_ms=20)
    scenario = replace(draw_scenario(1, SECONDS * 1000, plan), workloads=[copiers], transaction_version=2)
    return Simulation(1, scenario, SECONDS, None)


@pytest.mark.slow
def test_old_copiers_copy_in_transactions_and_monitors_read_their_offsets() -> None:
    result = simulation([])
    assert result.run().violations == []
    assert len(result.recorder.offsets_committed) > SECONDS
    assert {read.version for read in result.recorder.offset_reads} == {1, 3, 5, 6}
    assert max(read.offset for read in result.recorder.offset_reads) > 50


@pytest.mark.slow
def test_a_broker_that_is_killed_when_an_end_txn_answer_leaves_has_answered() -> None:
    result = simulation([Fault(4_000, "kill-at-end-txn", 100, 0)])
    lines: list[str] = []
    result.world.kernel.log = lines.append
    result.run()
    [killed_s] = [float(line.split()[0]) for line in lines if line.endswith("broker 1 killed")]
    answered = [item.answered_at for item in result.recorder.offsets_committed]
    assert any(killed_s * 1_000_000 < at < killed_s * 1_000_000 + 100_000 for at in answered)


def test_old_copiers_are_drawn_in_some_seeds_and_change_no_other() -> None:
    drawn = 0
    for seed in range(60):
        plain, with_old = draw_scenario(seed, 1_000, None, old_clients=False), draw_scenario(seed, 1_000, None)
        if any(isinstance(workload, OldCopiers) for workload in with_old.workloads):
            drawn += 1
            assert [repr(workload) for workload in with_old.workloads[:-1]] == [
                repr(workload) for workload in plain.workloads[:1]
            ]
        else:
            assert repr(with_old) == repr(plain)
    assert 3 <= drawn <= 15


def test_a_seed_with_a_plan_of_its_own_has_the_clients_of_the_seed() -> None:
    for seed in range(60):
        drawn, planned = draw_scenario(seed, 1_000, None), draw_scenario(seed, 1_000, [])
        assert [repr(workload) for workload in planned.workloads] == [repr(workload) for workload in drawn.workloads]
