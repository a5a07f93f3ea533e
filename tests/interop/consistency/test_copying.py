"""Short transactional copies under fire; `python -m tests.interop.consistency` are the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.consistency import planted
from tests.interop.consistency.copying import Plan, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.mark.parametrize(
    ("client", "groups"),
    [("confluent", False), ("confluent", True), ("aiokafka", False), ("oncelog", False), ("oncelog", True)],
    ids=["confluent", "confluent in a group", "aiokafka", "oncelog", "oncelog in a group"],
)
def test_everything_is_copied_once_though_everybody_is_killed(client: str, groups: bool, tmp_path: Path) -> None:
    plan = Plan(
        seed=4,
        events=1200,
        client=client,
        groups=groups,
        pause_s=(0.2, 0.6),
        frozen_s=(0.3, 1.6),
        transaction_timeout_ms=1500,
        stall_share=0.005,
        timeout_s=60,
    )
    outcomes = run(plan, tmp_path)
    assert (outcomes.anomalies, outcomes.failures) == ({}, []), outcomes.summary()
    assert sum(outcomes.faults[kind] for kind in plan.faults) >= 2


@pytest.mark.parametrize("fault", planted.FAULTS)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    """Not by what is missing alone: the copiers may be stopped before they are done."""
    faults = {"replaced": 1.0} if fault == "reuse-an-epoch" else {}
    plan = Plan(
        seed=4,
        events=6000 if faults else 1500,
        pause_s=(0.1, 0.3),
        frozen_s=(0.02, 0.3),
        faults=faults,
        transaction_timeout_ms=1000,
        stall_share=0,
        timeout_s=5,
        drain_timeout_s=2,
        broker_command=planted.command(fault),
    )
    assert run(plan, tmp_path).anomalies.keys() - {"not copied"}
