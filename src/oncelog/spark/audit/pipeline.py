"""The audit's steps in order, for any engine that maps over tasks and over sorted rows.

The rule: the engine decides where a step runs, this module which steps there are. Only totals come back to the driver:
one row a segment, findings up to a bound, and numbers by fate and by minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from oncelog.spark.audit.audit_context import AuditContext, Limits, context_of, skew_of
from oncelog.spark.audit.audit_plan import Plan, SegmentTask
from oncelog.spark.audit.committed_offsets import batch_at, committed_offsets
from oncelog.spark.audit.model import (
    FACT_ORDER,
    KINDS,
    PART_ORDER,
    Fact,
    Finding,
    Part,
    Rank,
    SegmentStat,
    batches_of,
)
from oncelog.spark.audit.producer_history import histories
from oncelog.spark.audit.segments.segment_facts import ReadOptions, Typed, read_segment
from oncelog.spark.audit.transaction_outcomes import fates

SHOWN_FINDINGS: Final = 2_000
"""Findings that come back to the driver, the gravest first; all are in the Parquet files."""
SHOWN_TRANSACTIONS: Final = 2_000
BUCKETS: Final = 120
Handle = Any
"""Rows of several types that an engine holds somewhere: its own affair."""
Tell = Callable[[str, int, int], None]
"""Called with how far an engine is: the step, the tasks done, and all of them."""


def nobody(step: str, done: int, total: int) -> None:
    """Take progress that nobody asks for."""


class Engine(Protocol):
    """A place where the audit's steps run: this process, or Spark."""

    def map_segments(self, tasks: Sequence[SegmentTask], read: Callable[[SegmentTask], Iterator[Typed]]) -> Handle:
        """Apply ``read`` to every task; a handle on all its rows."""

    def map_sorted(
        self,
        sources: Sequence[Handle],
        row_type: type[Any],
        order: Sequence[str],
        group: int,
        keep: tuple[str, Sequence[int]] | None,
        step: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> Handle:
        """``step`` over the rows of a type, sorted by ``order``; rows alike in its first ``group`` columns stay
        together and come in one stream. ``keep``: only rows whose column has one of the values."""

    def rows(self, sources: Sequence[Handle], row_type: type[Any]) -> Iterator[Any]:
        """Rows of a type, to the driver."""

    def findings(self, sources: Sequence[Handle], limit: int) -> tuple[dict[str, int], list[Finding]]:
        """Distinct findings: how many of each kind, and the first of the gravest."""

    def totals(self, parts: Handle, buckets: tuple[int, int], limit: int) -> tuple[list[Tally], list[Part]]:
        """Numbers by fate and time (bucket start and width), and up to ``limit`` transactions that are not plainly
        committed or aborted."""

    def write(self, sources: Sequence[Handle], row_type: type[Any], directory: Path) -> None:
        """Rows of a type as Parquet files."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Transactions (on a partition each) of one fate that ended, or last wrote, in one stretch of time."""

    bucket: int
    fate: str
    parts: int
    records: int
    size_bytes: int


@dataclass(slots=True)
class AuditResult:
    """The findings of an audit: numbers of everything, rows up to a bound."""

    directories: tuple[str, ...]
    now_ms: int
    stats: list[SegmentStat]
    context: AuditContext
    kinds: dict[str, int]
    findings: list[Finding]
    tallies: list[Tally]
    transactions: list[Part]
    """Transactions that are neither committed nor aborted."""
    buckets: tuple[int, int]
    seconds: float
    check_crc: bool

    @property
    def found(self) -> int:
        """Number of findings."""
        return sum(self.kinds.values())


def audit(
    plan: Plan,
    engine: Engine,
    *,
    check_crc: bool = True,
    limits: Limits | None = None,
    to: Path | None = None,
    wall_ms: int | None = None,
) -> AuditResult:
    """Run the audit. ``to``: also write transactions and findings as Parquet below that directory."""
    began = time.perf_counter()
    limits = limits or Limits()
    options = ReadOptions(check_crc, plan.partitions, moving=skew_of(plan, limits) > 0)
    # Steps are partial functions, not closures: they are pickled to wherever the engine runs them.
    facts = engine.map_segments(plan.tasks, partial(read_segment, options=options))
    stats: list[SegmentStat] = list(engine.rows([facts], SegmentStat))
    context = context_of(plan, stats, limits, int(time.time() * 1000) if wall_ms is None else wall_ms)
    history_ranks = ("rank", [one for one in Rank if one <= Rank.MARKER])
    history = engine.map_sorted([facts], Fact, FACT_ORDER, 4, history_ranks, partial(histories, context=context))
    parts = engine.map_sorted([facts, history], Part, PART_ORDER, 1, None, partial(fates, context=context))
    offset_ranks = ("rank", [Rank.ABORTED_DATA, Rank.COMMITTED_OFFSET])
    commits = partial(committed_offsets, context=context, lookup=partial(batch_at, plan.partitions))
    offsets = engine.map_sorted([facts, history], Fact, FACT_ORDER, 2, offset_ranks, commits)
    sources = [facts, history, parts, offsets]
    kinds, findings = engine.findings(sources, SHOWN_FINDINGS)
    for path, reason in plan.unreadable:
        kinds["unreadable"] = kinds.get("unreadable", 0) + 1
        findings.append(Finding("unreadable", path=path, text=f"cannot list: {reason}"))
    buckets = _buckets(stats, context.now_ms)
    tallies, transactions = engine.totals(parts, buckets, SHOWN_TRANSACTIONS)
    if to is not None:
        engine.write([parts], Part, to / "transactions")
        engine.write(sources, Finding, to / "findings")
    return AuditResult(
        plan.log_directories,
        context.now_ms,
        stats,
        context,
        {kind: kinds[kind] for kind in KINDS if kind in kinds},
        gravest_first(findings),
        tallies,
        transactions,
        buckets,
        time.perf_counter() - began,
        check_crc,
    )


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by gravity of their kind, then place."""
    kinds = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(findings, key=lambda one: (kinds.get(one.kind, len(kinds)), one.topic, one.partition, one.offset))


def _buckets(stats: Sequence[SegmentStat], now_ms: int) -> tuple[int, int]:
    """Start and width of the stretches of time that are counted separately, in milliseconds."""
    begins = [one.first_timestamp for one in stats if 0 < one.first_timestamp <= now_ms]
    start = min(begins, default=max(0, now_ms))
    return start, max(1, (now_ms - start) // BUCKETS + 1)


def typed_batches(rows: Iterable[Any], size: int = 16_384) -> Iterator[Typed]:
    """A stream of rows of several types as batches of one type each, in no order between types."""
    held: dict[type[Any], list[Any]] = {}
    for row in rows:
        one = held.setdefault(type(row), [])
        one.append(row)
        if len(one) >= size:
            for batch in batches_of(one, type(row)):
                yield type(row), batch
            one.clear()
    for row_type, rest in held.items():
        for batch in batches_of(rest, row_type):
            yield row_type, batch
