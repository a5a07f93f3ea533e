"""A clean log of very many transactions gives no finding. (A million, and the rate: ``python -m bench audit``.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.spark.audit.logs import run
from tests.unit.spark.audit.million import LAST_EPOCH, write_transactions

MANY = 4 * (LAST_EPOCH + 1_000)
"""So many that the producers of all four partitions go on under other ids."""


@pytest.mark.parametrize(
    "count", [4_000, pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)])]
)
def test_a_clean_log_of_many_transactions_gives_none(tmp_path: Path, count: int) -> None:
    write_transactions(tmp_path, count)
    result = run(tmp_path)
    assert result.findings == []
    assert sum(tally.parts for tally in result.tallies if tally.fate == "aborted") == count // 10
    assert sum(tally.parts for tally in result.tallies) == count
