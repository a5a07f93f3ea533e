"""Short runs of the real server under fire; `python -m tests.interop.faults` is the long one."""

from __future__ import annotations

import pytest

from tests.interop.faults.plan import Plan
from tests.interop.faults.run import run

PLANS = {
    "processes": ("kill", "stop", "pause"),
    "networks": ("reset", "deaf", "mute", "half-open", "slow"),
    "disk-and-clock": ("full-disk", "clock-ahead"),
}


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the proxy's sockets, see its close
@pytest.mark.parametrize("names", PLANS.values(), ids=PLANS)
def test_what_was_acknowledged_is_kept_and_everybody_comes_to_rest(tmp_path, names) -> None:
    plan = Plan(seed=11, names=names, longest_s=0.8, quiet_s=(0.2, 0.5), swarm=False)
    report = run(plan, tmp_path, most_faults=4)
    assert (report.anomalies, report.failures) == ({}, []), report.row()
    assert report.faults
    assert report.transactions["committed"], report.row()
