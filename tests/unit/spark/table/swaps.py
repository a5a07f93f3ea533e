"""Tests that need a system with ``renameat2``."""

from __future__ import annotations

from typing import Final

import pytest

from oncelog.spark.table import atomic_swap

NEEDS_SWAPS: Final = pytest.mark.skipif(
    atomic_swap._renameat2() is None,
    reason="this system has no renameat2; test_a_file_system_without_swaps_is_refused_in_words has its refusal",
)
