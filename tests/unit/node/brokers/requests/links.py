"""Links whose requests a test answers itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oncelog.base.ids import BrokerId
from oncelog.node.brokers.broker_links import LinkPurpose


@dataclass(eq=False)
class Asked:
    """A request that is not answered."""

    broker_id: BrokerId
    purpose: LinkPurpose
    message: Any
    answered: Callable[[Any], None]


class FakeLinks:
    """Notes requests, first in first out."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def request(
        self,
        broker_id: BrokerId,
        purpose: LinkPurpose,
        message: Any,
        answered: Callable[[Any], None],
        timeout_ms: int | None = None,
    ) -> Callable[[], None]:
        """Note a request."""
        request = Asked(broker_id, purpose, message, answered)
        self.asked.append(request)

        def forget() -> None:
            if request in self.asked:
                self.asked.remove(request)

        return forget

    def answer(self, response: Any) -> None:
        """Answer the request that is oldest."""
        self.asked.pop(0).answered(response)
