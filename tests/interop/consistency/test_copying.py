"""A short transactional copy under fire; `python -m tests.interop.consistency` is the long one."""

from __future__ import annotations

import pytest

from tests.interop.consistency.copying import Plan, run


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_everything_is_copied_once_though_everybody_is_killed(tmp_path) -> None:
    outcomes = run(Plan(seed=4, events=4000, pause_s=(0.05, 0.3), timeout_s=60), tmp_path)
    assert (outcomes.anomalies, outcomes.failures) == ({}, []), outcomes.summary()
    assert outcomes.kills.total() >= 2
