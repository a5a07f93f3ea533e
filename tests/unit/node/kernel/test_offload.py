"""Lanes of work for workers: one request's work at a time in each, side by side."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

from oncelog.handlers.broker.waits import Lane, Offload
from oncelog.node.kernel.events import Effect, JobFinished, RunJob
from oncelog.node.kernel.tasks import OffloadedWork, Runnable, Task


class Waiting:
    """A request that waits, as far as the work for it needs one."""

    waiting = True


def work(result: str) -> Generator[None, None, str]:
    yield
    return result


def test_work_of_one_lane_waits_for_no_other_lane() -> None:
    runnable, effects = Runnable(), list[Effect]()
    offloaded = OffloadedWork(runnable)
    tasks = {}
    for lane in (*Lane, Lane.PATTERNS):
        task = cast("Task", Waiting())
        tasks[id(task)] = task
        offloaded.park(task, Offload(work(lane.name), lane))
    offloaded.start(effects)
    jobs: list[Any] = [effect for effect in effects if isinstance(effect, RunJob)]
    assert len(jobs) == len(Lane)
    for job in jobs:
        assert list(job.slices) == [None]
        assert offloaded.finished(JobFinished(job.token, None))
    assert [runnable.take() for _ in Lane] == [
        (task, lane.name, None) for task, lane in zip(tasks.values(), Lane, strict=False)
    ]
    effects.clear()
    offloaded.start(effects)
    assert len(effects) == 1
    assert not offloaded.is_idle()
