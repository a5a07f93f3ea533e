"""Mirrors, brokers and registries are killed while schemas are registered on both sides and their records copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.mirror.schema_drill import run

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]


def test_no_schema_is_lost_or_late_whatever_is_killed(tmp_path: Path) -> None:
    registered, problems = run(3, 8, tmp_path)
    assert registered > 100
    assert problems == []
