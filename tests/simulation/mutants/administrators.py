"""Bugs of whatever ends transactions that are not its own: leaders, the broker's watch, the administrators' tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oncelog.admin.transactions import cluster_scan as tool
from oncelog.admin.transactions import coordinator_answers
from oncelog.base.errors import ErrorCode
from oncelog.base.transaction_verdicts import ReasonCode
from oncelog.handlers.produce.verification import Verification
from oncelog.handlers.transactions import coordinator_verdict as transaction_findings
from oncelog.handlers.transactions import write_txn_markers
from oncelog.node.access.audit_trail import AuditTrail
from oncelog.node.coordinators import markers
from oncelog.node.coordinators.transaction_coordinators import TransactionCoordinators
from oncelog.node.hanging.watch import HangingTransactionWatch
from oncelog.storage.errors import AppendRefused
from tests.simulation.mutants.mutant import Mutant, every

LONG_MS: Final = 1 << 40


def _start_ignored(right: Any) -> Any:
    def check(log: Any, marker: Any) -> None:
        entry = log.producers.entries.get(marker.producer_id)
        if entry is None or entry.epoch != marker.producer_epoch:
            raise AppendRefused(ErrorCode.INVALID_PRODUCER_EPOCH, "another epoch")

    return check


def _epoch_ignored(right: Any) -> Any:
    def check(log: Any, marker: Any) -> None:
        entry = log.producers.entries.get(marker.producer_id)
        if entry is None or entry.transaction_first_offset != marker.start_offset:
            raise AppendRefused(ErrorCode.INVALID_TXN_STATE, "another start")

    return check


def _never(right: Any) -> Any:
    def is_so(*what: Any, **how: Any) -> bool:
        return False

    return is_so


def _no_refusal(right: Any) -> Any:
    def refusal(*what: Any, **how: Any) -> Any:
        yield from ()
        return ErrorCode.NONE

    return refusal


def _two_phase_forgotten(right: Any) -> Any:
    def takes_marker(code: ReasonCode, *, forced: bool) -> Any:
        return code is ReasonCode.TWO_PHASE or right(code, forced=forced)

    return takes_marker


def _no_grace(right: Any) -> Any:
    def hanging_found(
        self: HangingTransactionWatch, watched: Any, finding: Any, log: Any, entry: Any, now_ms: int
    ) -> Any:
        watched.found_ms = now_ms - LONG_MS
        return right(self, watched, finding, log, entry, now_ms)

    return hanging_found


def _found(code: ReasonCode) -> Any:
    def applied(right: Any) -> Any:
        def judge(self: HangingTransactionWatch, watched: Any, finding: Any, log: Any, entry: Any, now_ms: int) -> Any:
            if finding.code is code:
                finding = finding._replace(code=ReasonCode.ENDED, timeout_ms=1_000)
            return right(self, watched, finding, log, entry, now_ms)

        return judge

    return applied


def _not_aborted(right: Any) -> Any:
    def abort(self: HangingTransactionWatch, transaction: Any, entry: Any) -> ErrorCode:
        return ErrorCode.NONE

    return abort


def _audit_forgotten(right: Any) -> Any:
    now = every(5)

    def add(self: AuditTrail, record: Any) -> None:
        if not now():
            right(self, record)

    return add


def _not_verified(right: Any) -> Any:
    def ask(self: Verification, context: Any) -> Any:
        if context.version >= 12:  # which also adds the partition
            yield from right(self, context)

    return ask


def _last_write(right: Any) -> Any:
    def ages_of(now_ms: int, timestamp_ms: Any, last_timestamp_ms: int, *rest: Any) -> Any:
        return right(now_ms, last_timestamp_ms, last_timestamp_ms, *rest)

    return ages_of


def _silence_is_evidence(right: Any) -> Any:
    def finding_of(row: Any, evidence: Any) -> Any:
        return right(row, replace(evidence, unanswered=()))

    return finding_of


ADMINISTRATORS: Final = (
    Mutant(
        "start-offset-ignored",
        "an administrator's marker ends a transaction that begins elsewhere",
        markers,
        "_check_administrators",
        _start_ignored,
    ),
    Mutant(
        "administrators-epoch-ignored",
        "an administrator's marker of another epoch is written",
        markers,
        "_check_administrators",
        _epoch_ignored,
    ),
    Mutant(
        "coordinator-not-asked",
        "a leader writes an administrator's marker without asking the coordinator again",
        write_txn_markers,
        "marker_refusal",
        _no_refusal,
    ),
    Mutant(
        "two-phase-not-protected",
        "an administrator's marker ends what is prepared in two phases",
        transaction_findings,
        "leader_takes_marker",
        _two_phase_forgotten,
    ),
    Mutant(
        "loading-not-awaited",
        "an administrator's marker is written while coordinators read their logs",
        TransactionCoordinators,
        "is_loading",
        _never,
    ),
    Mutant(
        "orphans-without-grace",
        "a broker that ends orphans does so as soon as it sees one",
        HangingTransactionWatch,
        "_hanging",
        _no_grace,
    ),
    Mutant(
        "live-ones-orphaned",
        "a broker that ends orphans takes what is older than its time-out for one",
        HangingTransactionWatch,
        "_judge",
        _found(ReasonCode.ONGOING),
    ),
    Mutant(
        "prepared-ones-orphaned",
        "a broker that ends orphans takes what is prepared in two phases for one",
        HangingTransactionWatch,
        "_judge",
        _found(ReasonCode.TWO_PHASE),
    ),
    Mutant(
        "orphans-not-ended",
        "a broker that ends orphans says so, and does not",
        HangingTransactionWatch,
        "_abort",
        _not_aborted,
    ),
    Mutant(
        "audit-forgotten",
        "an administrative end is missing from the audit log now and then",
        AuditTrail,
        "add",
        _audit_forgotten,
    ),
    Mutant(
        "late-writes-taken",
        "a leader that verifies lets clients before Transactions V2 begin what no coordinator knows",
        Verification,
        "ask",
        _not_verified,
    ),
    Mutant(
        "no-second-look",
        "the tool does not ask leaders again after the coordinators have spoken",
        tool,
        "needs_recheck",
        _never,
    ),
    Mutant(
        "age-from-last-write", "the tool counts a transaction's age from its last write", tool, "ages_of", _last_write
    ),
    Mutant(
        "silence-is-evidence",
        "the tool takes an id for forgotten when its coordinator has not answered",
        coordinator_answers,
        "finding_of",
        _silence_is_evidence,
    ),
)
