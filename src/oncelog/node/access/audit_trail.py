"""Records of administrative aborts: written by an effect, and counted for the metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oncelog.node.kernel.events import Audit, Outbox

if TYPE_CHECKING:
    from oncelog.handlers.broker.audit import AuditRecord


class AuditTrail:
    """Emits each record before any effect that follows it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.counts: Counter[tuple[str, str]] = Counter()
        """Records since the start, by action and outcome."""

    def add(self, record: AuditRecord) -> None:
        self.counts[(record.action, record.outcome)] += 1
        self._outbox.effects.append(Audit(record))
