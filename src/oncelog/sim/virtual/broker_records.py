"""A simulated broker's records over all its lives: what it reported, why it died, and who observes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncelog.handlers.broker.audit import AuditRecord
from oncelog.sim.checkers.wire.tap import NoTap, WireTap
from oncelog.sim.virtual.answer_kill import AnswerKill


@dataclass(slots=True)
class BrokerRecords:
    """Reports, audit entries and causes of death of a broker over all its lives, and its observers."""

    broker_id: int
    reports: list[str] = field(default_factory=list)
    audits: list[AuditRecord] = field(default_factory=list)
    """Entries of its audit log."""
    deaths: list[str] = field(default_factory=list)
    """Why it stopped by itself, each time."""
    tap: WireTap = field(default_factory=NoTap)
    """The tap that is told of everything that crosses the broker's network."""
    answer_kill: AnswerKill | None = None
    """Kills the process when a certain answer leaves."""
