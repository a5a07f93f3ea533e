"""The time of a shard that a test drives."""

from __future__ import annotations

from typing import Any


class ShardTime:
    now_ms: int
    shard: Any

    def carry_out(self, decision: Any) -> Any:
        raise NotImplementedError

    def advance(self, milliseconds: int) -> None:
        """Let time pass, doing what falls due on the way."""
        end_ms = self.now_ms + milliseconds
        while (due_ms := self.shard.deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.shard.tick(self.now_ms))
        self.now_ms = end_ms
