"""Bugs of coordinators in clusters: markers to other brokers, loading and unloading."""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.node.broker_requests.awaited_markers import AwaitedMarkers
from oncelog.node.broker_requests.marker_requests import MarkerRequests
from oncelog.sim.mutants.mutant import Mutant


def _unanswered_is_written(right: Any) -> Any:
    def answered(self: MarkerRequests, broker_id: Any, sent: Any, response: Any) -> None:
        if response is not None:
            right(self, broker_id, sent, response)
            return
        self._under_way.discard(broker_id)
        for queued in sent:
            queued.answer(ErrorCode.NONE)

    return answered


def _remote_decisions_passed_over(right: Any) -> Any:
    def send(self: AwaitedMarkers, broker_id: Any, message: Any, answered: Any) -> Any:
        answered(None)
        return lambda: None

    return send


COORDINATORS: Final = (
    Mutant(
        "unanswered-marker-counts",
        "a marker to another broker counts as written when no answer comes",
        MarkerRequests,
        "_answered",
        _unanswered_is_written,
        ("killed-before-marker",),
    ),
    Mutant(
        "remote-decisions-passed-over",
        "a group coordinator does not ask other brokers which transactions are decided and lack their markers",
        AwaitedMarkers,
        "send",
        _remote_decisions_passed_over,
        ("broker-cut", "broker-isolated"),
    ),
)
