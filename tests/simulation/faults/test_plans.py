"""Plans of faults: drawn by seed, as text, and shortened while the simulation still fails."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.plan import KINDS, draw_plan, format_plan, parse_plan
from oncelog.sim.seeds.delta_debugging import minimise
from oncelog.sim.seeds.scenario import SESSION_TIMEOUT_MS, draw_scenario


def test_a_plan_is_read_back_as_it_was_written() -> None:
    plan = draw_plan(random.Random("1"), 120_000)
    assert plan
    assert parse_plan(format_plan(plan)) == plan == draw_plan(random.Random("1"), 120_000)


@pytest.mark.parametrize("text", ["10 nonsense 1 1", "x kill 1 1", "1 kill 1"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever int() and unpacking say
        parse_plan(text)


def test_every_kind_is_drawn_and_no_seed_draws_most_of_them() -> None:
    used: Counter[str] = Counter()
    for seed in range(300):
        kinds = {fault.kind for fault in draw_plan(random.Random(seed), 120_000)}
        assert 1 <= len(kinds) <= 9
        used.update(kinds)
    assert KINDS.keys() - used.keys() == {"tight-disk"}  # that one is drawn by the workload that wants it
    assert min(used.values()) >= 8


def test_faults_lie_within_the_safety_phase_in_order() -> None:
    for seed in range(50):
        plan = draw_plan(random.Random(seed), 60_000)
        assert plan == sorted(plan)
        assert all(0 < fault.at_ms < 60_000 and 0 < fault.span_ms <= 30_000 for fault in plan)


def test_kinds_of_faults_can_be_chosen() -> None:
    kinds = ["power-cut", "tree-cut"]
    for seed in range(20):
        scenario = draw_scenario(seed, 60_000, None, kinds=kinds)
        drawn = {fault.kind for fault in scenario.plan}
        assert drawn <= {*kinds}  # no workload adds to them
        assert scenario.session_timeout_ms == (SESSION_TIMEOUT_MS if "tree-cut" in drawn else None)
        assert draw_scenario(seed, 60_000, scenario.plan, kinds=kinds) == scenario
        assert draw_scenario(seed, 60_000, None).session_timeout_ms is None


def test_minimising_leaves_what_is_needed_and_halves_its_spans() -> None:
    plan = [Fault(at * 100, kind, 64, at) for at, kind in enumerate(["kill", "stall", "reset"] * 7)]

    def fails(tried: object) -> bool:
        assert isinstance(tried, list)
        spans = {fault.choice: fault.span_ms for fault in tried}
        return spans.get(3, 0) >= 10 and 17 in spans

    shortest = minimise(plan, fails)
    assert [(fault.choice, fault.span_ms) for fault in shortest] == [(3, 16), (17, 1)]


def test_what_fails_without_faults_needs_none() -> None:
    assert minimise([Fault(1, "kill", 1, 1)], lambda tried: True) == []
