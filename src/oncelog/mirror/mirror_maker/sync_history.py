"""The offset syncs and checkpoints of MirrorMaker 2 in log order, as far as its topics still have them.

A sync that goes back upstream invalidates the earlier ones, as in MirrorMaker's own store: it copies again from there.
Of a partition's older syncs fewer and fewer are kept, so that memory does not grow with the topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.mirror.mirror_maker.internal_records import Checkpoint, OffsetSync

_MOST_SYNCS: Final = 256
_KEPT_STEPS_BACK: Final = 20


class StepBack(NamedTuple):
    """Two successive offset pairs; the second is earlier."""

    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(slots=True)
class SyncHistory:
    """The syncs of one source partition since the last step back."""

    syncs: list[OffsetSync] = field(default_factory=list)
    steps_back: list[StepBack] = field(default_factory=list)
    count: int = 0

    def add(self, sync: OffsetSync) -> None:
        self.count += 1
        if self.syncs:
            last = self.syncs[-1]
            if sync.upstream < last.upstream or sync.downstream < last.downstream:
                before, after = (last.upstream, last.downstream), (sync.upstream, sync.downstream)
                self.steps_back = [*self.steps_back, StepBack(before, after)][-_KEPT_STEPS_BACK:]
                self.syncs.clear()
        self.syncs.append(sync)
        if len(self.syncs) > _MOST_SYNCS:
            del self.syncs[1 : _MOST_SYNCS // 2 : 2]

    @property
    def latest(self) -> OffsetSync:
        return self.syncs[-1]

    def nearest(self, upstream: int, downstream: int | None = None) -> OffsetSync | None:
        """The newest sync that is not after ``upstream``, nor after ``downstream`` if it is given."""
        for sync in reversed(self.syncs):
            if sync.upstream <= upstream and (downstream is None or sync.downstream <= downstream):
                return sync
        return None

    def translated(self, upstream: int) -> int | None:
        """The offset to which MirrorMaker translates by the nearest sync: never more than one past it."""
        sync = self.nearest(upstream)
        return None if sync is None else sync.downstream + (upstream > sync.upstream)


@dataclass(slots=True)
class CheckpointHistory:
    """The checkpoints of one group in one partition of a copy."""

    latest: Checkpoint
    at_ms: int
    step_back: StepBack | None = None

    def add(self, checkpoint: Checkpoint, at_ms: int) -> None:
        last = self.latest
        # MirrorMaker emits an earlier downstream offset only for a group that was reset at the source.
        if checkpoint.downstream < last.downstream and checkpoint.upstream >= last.upstream:
            before, after = (last.upstream, last.downstream), (checkpoint.upstream, checkpoint.downstream)
            self.step_back = StepBack(before, after)
        self.latest, self.at_ms = checkpoint, at_ms
