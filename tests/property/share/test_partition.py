"""Random histories of a share partition: its invariants hold, no record is lost, and none that is done comes again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.share.world import World


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32))
def test_a_history_obeys_the_rules(seed: int) -> None:
    World(seed).run(60)


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32))
def test_after_any_history_the_window_reaches_the_end_of_the_log(seed: int) -> None:
    world = World(seed)
    world.run(40)
    world.drain()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_long_histories(seed: int) -> None:
    world = World(seed)
    world.run(300)
    world.drain()
