"""``invariant``: a check of our own state that stays on in production.

A peer's mistake is an error code or :class:`PeerError` instead. A broken invariant stops the node, because going on
would damage acknowledged data.
"""

from __future__ import annotations


class InvariantViolation(Exception):
    """A broken invariant, with the facts that show it."""

    def __init__(self, message: str, facts: dict[str, object]) -> None:
        # For the flight recording and the log, beside the message.
        self.facts = facts
        detail = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        super().__init__(f"{message} ({detail})" if detail else message)


def invariant(condition: object, message: str, **facts: object) -> None:
    if not condition:
        raise InvariantViolation(message, facts)
