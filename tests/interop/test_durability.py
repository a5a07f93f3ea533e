"""Acknowledged records are there once, whenever the broker is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.durability import run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_every_acknowledged_record_is_there_exactly_once_after_kills_under_load(seed: int, tmp_path: Path) -> None:
    assert run(tmp_path, seed=seed, rounds=4) == []
