"""The lines of a report on a whole cluster about transactional ids. Pure.

Transactions that no partition shows, ids that time out again and again, ids that are not used again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from oncelog.admin.explain.cluster_problems import PREPARED_MS
from oncelog.admin.explain.cluster_report import Problem
from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.history.recent_ends import IdEnds
from oncelog.admin.transactions.history.unused_ids import EXPIRATION, UnusedIds
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted
from oncelog.base.transaction_verdicts import DECIDED_STATES
from oncelog.base.units import MINUTE_MS

OVERDUE_MS: Final = MINUTE_MS
"""How late a coordinator may be before it is a problem."""
_PATTERNS: Final = (("<uuid>", "[0-9a-fA-F-]+"), ("<random>", "[0-9A-Za-z]+"), ("<number>", "[0-9]+"))


def unfinished_problems(
    rows: Iterable[TransactionRow], shown: Collection[str | None], now_ms: int, options: str
) -> Iterator[Problem]:
    """Transactions that their coordinator should have ended. ``shown`` are ids with a transaction in a partition."""
    for row in rows:
        if row.transactional_id in shown or row.start_ms is None or not row.is_open:
            continue
        age_ms, name = now_ms - row.start_ms, row.transactional_id
        begun = f"begun {duration_text(age_ms)} ago"
        severity, way = Severity.STUCK, f"oncelog txn describe{options} {argument(name)}"
        if row.state in DECIDED_STATES:
            end = "commit" if row.state == "PrepareCommit" else "abort"
            names = ", ".join(map(str, sorted(row.partitions)[:3])) or "its partitions"
            text = f"The coordinator has decided to {end} {name!r}, {begun}, and lacks the markers of {names}."
            clears = "It clears by itself when the leaders of those partitions take the markers."
        elif row.is_two_phase:
            severity = Severity.RISK
            text = f"{name!r} is in two-phase commit, {begun}, with no records in any partition, and has no time-out."
            clears = "It does not clear by itself: the application that prepared it has to end it."
        else:
            late = duration_text(age_ms - row.timeout_ms)
            text = f"{name!r}, {begun}, is open {late} after its time-out: broker {row.coordinator} does not abort it."
            clears = "It clears when its coordinator does; no consumer waits for it, for it has no records."
            way = f"oncelog txn force-terminate{options} {argument(name)}"
        least_ms = PREPARED_MS if row.is_two_phase else row.timeout_ms + OVERDUE_MS
        if row.state in DECIDED_STATES:
            least_ms = OVERDUE_MS
        if age_ms >= least_ms:
            yield Problem(
                "id",
                name,
                Cause.UNFINISHED_TRANSACTION,
                severity,
                text,
                f"oncelog explain txn{options} {argument(name)}",
                tuple(sorted(row.partitions)),
                since_ms=row.start_ms,
                clears=clears,
                commands=(way,),
            )


def time_out_problems(
    repeated: Iterable[IdEnds], rows: Mapping[str, TransactionRow], options: str
) -> Iterator[Problem]:
    for ends in repeated:
        row = rows.get(ends.transactional_id)
        yield Problem(
            "id",
            ends.transactional_id,
            Cause.TIMES_OUT,
            Severity.RISK,
            " ".join(time_out_sentences(ends, "" if row is None else row.client)),
            f"oncelog explain txn{options} {argument(ends.transactional_id)}",
            since_ms=ends.timed_out_ms[0],
            clears="It clears when its transactions end within their time-out.",
        )


def time_out_sentences(ends: IdEnds, client: str) -> list[str]:
    times = counted(len(ends.timed_out_ms), "transaction")
    owner = f" of {client}" if client else ""
    return [
        f"{times} of {ends.transactional_id!r} (producer id {ends.producer_id}){owner}, of {ends.ended} that ended, "
        f"were aborted by the coordinator at the time-out of {duration_text(ends.timeout_ms)}, the last one at "
        f"{moment_text(ends.timed_out_ms[-1])}.",
        "Their records are lost for committed readers: the application takes longer than its time-out, or dies.",
    ]


def unused_problems(unused: Iterable[UnusedIds], options: str) -> Iterator[Problem]:
    for ids in unused:
        expiry = "" if ids.expiration_ms is None else f" ({duration_text(ids.expiration_ms)} here)"
        yield Problem(
            "ids",
            ids.pattern,
            Cause.UNUSED_IDS,
            Severity.RISK,
            f"{ids.count:,} transactional ids like {ids.pattern!r} are not used again: last used between "
            f"{moment_text(ids.oldest_ms)} and {moment_text(ids.newest_ms)} (of a sample; such as {ids.example!r}). "
            "Each stays in the memory and the log of its coordinator, which reads all of them when it starts. An "
            "application that makes up a new id each time should keep a stable one for each of its instances.",
            f"oncelog txn list{options} {option('--id-pattern', expression_of(ids.pattern))}",
            since_ms=ids.oldest_ms,
            clears=f"An id goes {EXPIRATION}{expiry} after its last use; a lower value frees them sooner.",
        )


def expression_of(pattern: str) -> str:
    """The pattern as a regular expression of RE2, which ``txn list`` takes."""
    text = pattern
    for name, expression in _PATTERNS:
        text = text.replace(name, f"\0{expression}\0")
    parts = text.split("\0")
    quoted = (part if index % 2 else _quoted(part) for index, part in enumerate(parts))
    return "".join(quoted)


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else f"\\{char}" for char in text)
