"""Sources, targets and mirrors are killed and frozen while records flow; in the end both sides are equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.mirror.drill import run

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_nothing_is_lost_or_doubled_whoever_is_killed(tmp_path: Path) -> None:
    outcome = run(8, 2, 2, tmp_path)
    assert not outcome.wrong, (outcome, tmp_path)
    assert outcome.exits == [0, 0], "SIGTERM ends a mirror after its transaction"
