"""The world of hanging transactions: hangs of every kind do occur in it, and administrators set partitions free."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from oncelog.sim.scene import Scene, draw_scene
from oncelog.sim.simulation import Simulation
from oncelog.sim.workloads.hangs import Hangs, draw_hangs

SECONDS = 20


def scene_of(seed: int, *, verifies: bool, vandal: bool) -> tuple[Scene, Hangs]:
    """A calm one."""
    hangs, config = draw_hangs("hang", random.Random(seed))
    config = {**config, "transaction.partition.verification.enable": "true" if verifies else "false"}
    hangs.ground.verifies = verifies
    hangs = replace(hangs, vandal=vandal, planters=2, administrators=1)
    scene = draw_scene(seed, SECONDS * 1000, [])
    return replace(scene, workloads=[hangs], config={**scene.config, **config}, transaction_version=2), hangs


@pytest.mark.slow
def test_hangs_occur_and_are_ended() -> None:
    scene, hangs = scene_of(3, verifies=False, vandal=True)
    simulation = Simulation(3, scene, SECONDS, None)
    assert simulation.run().violations == []
    kinds = Counter(one.kind for one in hangs.ground.planted.values() if one.certain)
    assert len(kinds.keys() & {"late", "moved-on", "offsets", "raw", "unlisted"}) > 2
    assert kinds.keys() & {"lost", "tombstone", "unmarked"}
    ended = [one for one in simulation.world.broker.audits if one.action == "abort-hanging" and one.outcome == "NONE"]
    assert len(ended) > 5


@pytest.mark.slow
def test_a_leader_that_verifies_lets_none_begin() -> None:
    scene, hangs = scene_of(4, verifies=True, vandal=False)
    assert Simulation(4, scene, SECONDS, None).run().violations == []
    assert hangs.ground.planted
    assert not any(one.certain for one in hangs.ground.planted.values())
