"""The effects of the event that is being handled, in the order in which they are to be carried out."""

from __future__ import annotations

from oncelog.node.kernel.events import Effect


class Outbox:
    """Shared by those parts of a node whose effects have an order among each other: answers and audit records."""

    __slots__ = ("effects",)

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def begin(self) -> list[Effect]:
        """Begin a new event; its effects, as they will be."""
        self.effects = []
        return self.effects
