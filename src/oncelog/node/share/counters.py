"""Counters of the share partitions of this broker, for its metrics (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from oncelog.core.share.model import AcknowledgeType
from oncelog.core.share.partition import SharePartition


@dataclass(slots=True)
class ShareCounters:
    """Since the start of this process. Records of share partitions still led are added by ``with_led``."""

    lock_timeouts: int = 0
    """Records whose lock expired."""
    acknowledged: Counter[AcknowledgeType] = field(default_factory=Counter)
    """Records by type of acknowledgement."""
    dead_letters: int = 0
    """Dead letters written as their groups wish."""
    dead_letters_without_record: int = 0
    """Dead letters written with headers alone, as the record could not be copied."""
    failed_dead_letters: int = 0
    """Records archived although their dead letter could not be written."""

    def add(self, machine: SharePartition) -> None:
        """Count what a share partition has counted, once it is dropped."""
        self.lock_timeouts += machine.lock_timeouts
        self.acknowledged.update(machine.acknowledged)

    def by_type(self) -> dict[str, int]:
        """Acknowledged records by the name of their type, in lower case; zero for a type that none has."""
        return {kind.name.lower(): self.acknowledged[kind] for kind in AcknowledgeType}

    def with_led(self, machines: list[SharePartition]) -> ShareCounters:
        total = ShareCounters(
            self.lock_timeouts,
            Counter(self.acknowledged),
            self.dead_letters,
            self.dead_letters_without_record,
            self.failed_dead_letters,
        )
        for machine in machines:
            total.add(machine)
        return total
