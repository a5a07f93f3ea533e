"""Progress of Spark: tasks done of those of the stages that run now, asked of its status tracker twice a second."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from oncelog.spark.audit.pipeline import Tell

if TYPE_CHECKING:
    from pyspark import SparkContext

_EVERY_S: Final = 0.5


@contextlib.contextmanager
def watched(context: SparkContext, tell: Tell) -> Iterator[None]:
    """Tell how far the stages are while the block runs; what is as it was is not told again."""
    ended = threading.Event()

    def watch() -> None:
        told = None
        tracker = context.statusTracker()
        while not ended.wait(_EVERY_S):
            stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
            found = [one for one in stages if one is not None]
            number = max((one.stageId for one in found), default=None)
            if number is None:
                continue
            now = sum(one.numCompletedTasks for one in found), sum(one.numTasks for one in found)
            if (number, now) != told:
                told = number, now
                tell(f"stage {number} of Spark", *now)

    thread = threading.Thread(target=watch, name="oncelog-audit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
