"""The conversations, by name. Each begins with a cluster that is ready, and stands alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.conversations import (
    configs,
    coordinators,
    elections,
    followers,
    leadership,
    moves,
    topics,
    transactions,
    views,
)

CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    **views.CONVERSATIONS,
    **leadership.CONVERSATIONS,
    **elections.CONVERSATIONS,
    **followers.CONVERSATIONS,
    **coordinators.CONVERSATIONS,
    **moves.CONVERSATIONS,
    **topics.CONVERSATIONS,
    **configs.CONVERSATIONS,
    **transactions.CONVERSATIONS,
}
