"""Random histories of a share group: its log loads after any compaction, and damaged logs load and are served."""

from __future__ import annotations

import random

import pytest

from oncelog.core.groups.classic.rebalance import TimerKey, TimerKind
from oncelog.core.groups.model import Record
from oncelog.core.groups.modern.members import bytes_of_share
from oncelog.core.groups.shard import GroupShard
from oncelog.core.groups.share.group import ShareGroup
from tests.conformance.groups.log import compacted
from tests.property.groups.test_damaged_records import damaged
from tests.unit.core.groups.share.scene import GROUP, RandomHistory, Scene, state_of

STEPS = 60


def run(seed: int) -> RandomHistory:
    history = RandomHistory(seed)
    for _ in range(STEPS):
        history.step()
        check(history.scene.shard)
    return history


def check(shard: GroupShard) -> None:
    """Members have partitions of subscribed topics with state, sessions, and their memory is counted."""
    group = shard._groups.get(GROUP)
    if not isinstance(group, ShareGroup):
        return
    subscribers = {name for member in group.members.values() for name in member.topics}
    assert group.subscribed_topics().keys() == subscribers
    for member_id, member in group.members.items():
        key = TimerKey(TimerKind.MEMBER_SESSION, GROUP, member_id)
        assert shard._timers.deadline_of(key) is not None, member_id
        assert member.epoch <= group.target_epoch <= group.epoch
    held = sum(member.size_bytes() for member in group.members.values())
    held += sum(bytes_of_share(share) for share in group.target.values())
    assert group.size_bytes() == held
    assert group.state_count() == (0 if group.state_topics is None else group.state_topics.partition_count())


@pytest.mark.parametrize("seed", range(12))
def test_a_group_loads_after_any_compaction(seed: int) -> None:
    history = run(seed)
    scene, entropy = history.scene, random.Random(seed)
    for end, state in enumerate(scene.states, 1):
        mapped = entropy.randint(0, end)
        cleaned, drops = entropy.randint(0, mapped), entropy.random() < 0.5
        prefix = scene.loaded(compacted(scene.batches[:end], mapped, cleaned, drops_tombstones=drops))
        assert state_of(prefix._groups.get(GROUP)) == state, (end, mapped, cleaned, drops)
        check(prefix)
        start = entropy.randint(0, mapped)
        window = compacted(scene.batches[start:end], mapped - start, max(0, cleaned - start), drops_tombstones=drops)
        scene.loaded(window).check()


@pytest.mark.parametrize("seed", range(3))
def test_damaged_logs_load_and_their_groups_are_served(seed: int) -> None:
    history = run(seed)
    log: list[Record] = [record for batch in history.scene.batches for record in batch]
    for number in range(12):
        entropy = random.Random(f"{seed} {number}")
        history.scene.batches = [damaged(entropy, log)]
        scene = history.scene = Scene(history.scene.topics, history.scene.settings, batches=history.scene.batches)
        for listed in scene.shard.listings():
            scene.shard.share.describe(listed.group_id)
            scene.shard.share.partitions(listed.group_id)
        if not isinstance(scene.shard._groups.get(GROUP), ShareGroup | None):
            continue  # A damaged key made a group of another kind.
        for _ in range(6):
            history.step()
        scene.advance(100_000)
        scene.shard.check()
