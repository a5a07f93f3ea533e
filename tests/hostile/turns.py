"""A node driven by hand that counts the turns which others have while something large is worked on."""

from __future__ import annotations

from oncelog.node.kernel.events import Continue, Continued, JobFinished, RunJob
from tests.scenario.node.driver import Driver


class Turns(Driver):
    """Counts the turns that others had; ``between`` runs in each."""

    def __init__(self) -> None:
        self.turns = 0
        self.between = lambda: None
        super().__init__()

    def _event_of(self, effect):
        if isinstance(effect, Continue):
            self.turns += 1
            self.between()
            return Continued()
        if isinstance(effect, RunJob) and effect.waited_for:
            for _ in effect.slices:
                self.turns += 1
                self.between()
            return JobFinished(effect.token)
        return super()._event_of(effect)
