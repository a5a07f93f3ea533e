"""Short transactional copies under fire; `python -m tests.interop.consistency` are the long ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.consistency import planted
from tests.interop.consistency.copying import Plan, run

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize(
    ("client", "groups"),
    [("confluent", False), ("confluent", True), ("aiokafka", False), ("oncelog", False), ("oncelog", True)],
    ids=["confluent", "confluent in a group", "aiokafka", "oncelog", "oncelog in a group"],
)
def test_everything_is_copied_once_though_everybody_is_killed(client: str, groups: bool, tmp_path: Path) -> None:
    plan = Plan(
        seed=4,
        events=3000,
        client=client,
        groups=groups,
        pause_s=(0.1, 0.4),
        frozen_s=(0.3, 1.6),
        transaction_timeout_ms=1500,
        stall_share=0.005,
        most_faults=10,
    )
    outcomes = run(plan, tmp_path)
    assert (outcomes.anomalies, outcomes.failures) == ({}, []), outcomes.summary()
    assert sum(outcomes.faults[kind] for kind in plan.faults) >= 2


PLANS = {
    "skip-a-marker": Plan(4, 1500, faults={}, stall_share=0),
    "answer-before-append": Plan(4, 1500, faults={}, stall_share=0),
    "reuse-an-epoch": Plan(4, 6000, pause_s=(0.1, 0.3), frozen_s=(0.02, 0.3), faults={"replaced": 1}, stall_share=0),
    # It is thrown out while it sleeps, since our client says that it lives only when it polls; its transaction goes on.
    "ignore-the-generation": Plan(4, 6000, "oncelog", True, sources=3, faults={}, stall_share=0.03, stall_s=4),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", planted.FAULTS)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    """Within three plans: when processes meet is not the seed's to say. Not by what is missing alone: the copiers may
    be stopped before they are done."""
    outlives_its_sleep = fault == "ignore-the-generation"
    for seed in range(4, 7):
        plan = replace(
            PLANS[fault],
            seed=seed,
            transaction_timeout_ms=8000 if outlives_its_sleep else 1000,
            stuck_s=20 if outlives_its_sleep else 8,
            pending_s=2,
            broker_command=planted.command(fault),
        )
        directory = tmp_path / str(seed)
        directory.mkdir()
        if run(plan, directory).anomalies.keys() - {"not copied"}:
            return
    pytest.fail(f"{fault} was not noticed in three runs")
