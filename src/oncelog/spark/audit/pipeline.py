"""Runs the audit's steps in order on any engine that maps over tasks and over sorted rows.

The driver receives only totals: one row per segment, findings up to a bound, and counts by fate and interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from oncelog.spark.audit.audit_context import AuditContext, Limits, context_of, skew_of
from oncelog.spark.audit.audit_plan import Plan, SegmentTask
from oncelog.spark.audit.committed_offsets import batch_at, committed_offsets
from oncelog.spark.audit.model import (
    FACT_ORDER,
    KINDS,
    NOTES,
    PART_ORDER,
    Fact,
    Finding,
    Part,
    Rank,
    SegmentStat,
    batches_of,
)
from oncelog.spark.audit.producer_history import histories
from oncelog.spark.audit.segments.segment_facts import ReadOptions, TypedBatch, read_segment
from oncelog.spark.audit.transaction_outcomes import decide_fates

# Findings returned to the driver, gravest first; the Parquet files have all of them.
SHOWN_FINDINGS: Final = 2_000
SHOWN_TRANSACTIONS: Final = 2_000
BUCKETS: Final = 120
# Rows of several types held by an engine, in a form that only the engine knows.
Handle = Any
# Called with the step, the number of tasks done, and the number of all tasks.
ProgressCallback = Callable[[str, int, int], None]


def ignore_progress(step: str, done: int, total: int) -> None:
    """Discard the progress."""


class Engine(Protocol):
    def map_segments(self, tasks: Sequence[SegmentTask], read: Callable[[SegmentTask], Iterator[TypedBatch]]) -> Handle:
        """Apply ``read`` to every task. Returns a handle on all rows."""

    def map_sorted(
        self,
        sources: Sequence[Handle],
        row_type: type[Any],
        order: Sequence[str],
        group: int,
        keep: tuple[str, Sequence[int]] | None,
        step: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> Handle:
        """Apply ``step`` to the rows of a type, sorted by ``order``. Rows with equal values in the first ``group``
        columns come in one stream. ``keep``: only rows whose column has one of the values."""

    def rows(self, sources: Sequence[Handle], row_type: type[Any]) -> Iterator[Any]:
        """Return the rows of a type to the driver."""

    def findings(self, sources: Sequence[Handle], limit: int) -> tuple[dict[str, int], list[Finding]]:
        """Return the number of distinct findings by kind, and the gravest."""

    def totals(self, parts: Handle, buckets: tuple[int, int], limit: int) -> tuple[list[Tally], list[Part]]:
        """Count by fate and bucket (start and width in milliseconds). Returns up to ``limit`` transactions that are
        neither committed nor aborted."""

    def write(self, sources: Sequence[Handle], row_type: type[Any], directory: Path) -> None:
        """Write the rows of a type as Parquet files."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Transactions of one fate that ended, or last wrote, in one interval; counted once per partition."""

    bucket: int
    fate: str
    parts: int
    records: int
    size_bytes: int


@dataclass(slots=True)
class AuditResult:
    """The result of an audit: complete counts, and rows up to a bound."""

    directories: tuple[str, ...]
    now_ms: int
    stats: list[SegmentStat]
    context: AuditContext
    kinds: dict[str, int]
    findings: list[Finding]
    tallies: list[Tally]
    # Transactions that are neither committed nor aborted.
    transactions: list[Part]
    buckets: tuple[int, int]
    seconds: float
    check_crc: bool
    # Findings of kinds in ``NOTES``, as far as the others leave room.
    notes: list[Finding] = field(default_factory=list)

    @property
    def finding_count(self) -> int:
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
    """Run the audit. ``to``: the directory for transactions and findings as Parquet files."""
    began = time.perf_counter()
    limits = limits or Limits()
    options = ReadOptions(check_crc, plan.partitions, moving=skew_of(plan, limits) > 0)
    # Steps are partial functions, not closures: they are pickled to wherever the engine runs them.
    facts = engine.map_segments(plan.tasks, partial(read_segment, options=options))
    stats: list[SegmentStat] = list(engine.rows([facts], SegmentStat))
    context = context_of(plan, stats, limits, int(time.time() * 1000) if wall_ms is None else wall_ms)
    # Ranks above MARKER are only for committed_offsets.
    history_ranks = ("rank", [rank for rank in Rank if rank <= Rank.MARKER])
    history = engine.map_sorted([facts], Fact, FACT_ORDER, 4, history_ranks, partial(histories, context=context))
    parts = engine.map_sorted([facts, history], Part, PART_ORDER, 1, None, partial(decide_fates, context=context))
    offset_ranks = ("rank", [Rank.ABORTED_DATA, Rank.COMMITTED_OFFSET])
    commits = partial(committed_offsets, context=context, lookup=partial(batch_at, plan.partitions))
    offsets = engine.map_sorted([facts, history], Fact, FACT_ORDER, 2, offset_ranks, commits)
    sources = [facts, history, parts, offsets]
    kinds, findings = engine.findings(sources, SHOWN_FINDINGS)
    notes = [finding for finding in findings if finding.kind in NOTES]
    findings = [finding for finding in findings if finding.kind not in NOTES]
    for path, reason in plan.unreadable:
        # Directories are listed by the driver, so no engine reports these.
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
        notes,
    )


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    kinds = {kind: number for number, kind in enumerate(KINDS)}
    return sorted(
        findings,
        key=lambda finding: (kinds.get(finding.kind, len(kinds)), finding.topic, finding.partition, finding.offset),
    )


def _buckets(stats: Sequence[SegmentStat], now_ms: int) -> tuple[int, int]:
    """Start and width of the counted intervals, in milliseconds."""
    begins = [stat.first_timestamp for stat in stats if 0 < stat.first_timestamp <= now_ms]
    start = min(begins, default=max(0, now_ms))
    return start, max(1, (now_ms - start) // BUCKETS + 1)


def typed_batches(rows: Iterable[Any], size: int = 16_384) -> Iterator[TypedBatch]:
    """Group a stream of mixed rows into batches of one type each; types may interleave."""
    pending_by_type: dict[type[Any], list[Any]] = {}
    for row in rows:
        pending = pending_by_type.setdefault(type(row), [])
        pending.append(row)
        if len(pending) >= size:
            for batch in batches_of(pending, type(row)):
                yield type(row), batch
            pending.clear()
    for row_type, rest in pending_by_type.items():
        for batch in batches_of(rest, row_type):
            yield row_type, batch
