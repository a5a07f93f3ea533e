"""Every workload comes to its end in a calm world, and has kept the broker busy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from oncelog.sim.checkers.history import RecordedOutcome
from oncelog.sim.seeds.scenario import draw_scenario
from oncelog.sim.seeds.simulation import Simulation
from oncelog.sim.workloads.group_churn import GroupChurn
from oncelog.sim.workloads.refused_batches import LIMITS, RefusedBatches
from oncelog.sim.workloads.selection import KINDS, draw_workloads, with_refused_batches
from oncelog.sim.workloads.share_queues import ShareQueues

SECONDS = 10
LONG_SECONDS = 40
"""Until the limit is lowered that makes the first of some refusals."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_calm_world_has_no_violations(kind: str) -> None:
    drawn = KINDS[kind].draw(f"{kind}0", random.Random(1), 2)
    scenario = replace(draw_scenario(1, SECONDS * 1000, []), workloads=[drawn], transaction_version=2)
    outcome = Simulation(1, scenario, SECONDS, None).run()
    assert outcome.violations == []
    assert outcome.requests > 5 * SECONDS


def test_refusals_come_beside_the_first_that_was_drawn_and_change_no_other_seed() -> None:
    for seed in range(100):
        drawn = draw_workloads(random.Random(seed), 2)
        batches = with_refused_batches(drawn, random.Random(seed), 2)
        assert batches == drawn or (batches[:-1] == drawn[:1] and isinstance(batches[-1], RefusedBatches))
        assert not any(isinstance(workload, RefusedBatches) for workload in drawn)


def test_group_churn_runs_alone_in_some_seeds_and_changes_no_other() -> None:
    scenarios = [draw_scenario(seed, 1_000, []) for seed in range(100)]
    churning = [scenario for scenario in scenarios if isinstance(scenario.workloads[-1], GroupChurn)]
    assert 2 <= len(churning) <= 20
    assert all(len(scenario.workloads) == 1 for scenario in churning)
    assert all("group.consumer.assignment.interval.ms" in scenario.config for scenario in churning)
    others = [scenario for scenario in scenarios if scenario not in churning]
    assert not any("group.consumer.assignment.interval.ms" in scenario.config for scenario in others)


def test_share_groups_run_alone_in_some_seeds_and_change_no_other() -> None:
    scenarios = [draw_scenario(seed, 1_000, []) for seed in range(100)]
    queuing = [scenario for scenario in scenarios if isinstance(scenario.workloads[-1], ShareQueues)]
    assert 2 <= len(queuing) <= 20
    assert all(len(scenario.workloads) == 1 for scenario in queuing)
    assert all("group.share.record.lock.duration.ms" in scenario.config for scenario in queuing)
    others = [scenario for scenario in scenarios if scenario not in queuing]
    assert not any("group.share.record.lock.duration.ms" in scenario.config for scenario in others)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "version"), list(zip(LIMITS, (1, 2, 2, 1, 2), strict=True)))
def test_a_refusal_costs_its_transaction_and_nothing_else(kind: str, version: int) -> None:
    """Without faults: producers of every kind go on after it, and only what was sent with it is not there."""
    drawn = RefusedBatches("refuse0", kind, 1, 2, 200, True, 200)
    scenario = replace(draw_scenario(1, LONG_SECONDS * 1000, []), workloads=[drawn], transaction_version=version)
    simulation = Simulation(1, scenario, LONG_SECONDS, None)
    assert simulation.run().violations == []
    ended = simulation.recorder.transactions
    refused = [
        transaction
        for transaction in ended
        if any(write.outcome is RecordedOutcome.ABORTED for write in transaction.writes)
    ]
    assert refused
    assert all(item.outcome is RecordedOutcome.ABORTED for item in refused)
    assert {transaction.process for transaction in ended} == {"refuse0-0.1"}, "it has lived once"
    later = ended[ended.index(refused[0]) + 1 :]
    assert RecordedOutcome.COMMITTED in {transaction.outcome for transaction in later}


def test_what_needs_transactions_v2_is_not_drawn_without() -> None:
    names = {
        repr(workload).partition("(")[0] for seed in range(200) for workload in draw_workloads(random.Random(seed), 1)
    }
    assert names == {
        "Administrators",
        "Consumers",
        "Copiers",
        "LogCleanup",
        "PlainProducers",
        "Producers",
        "TopicChurn",
    }
