"""An audit's result as plain values, for JSON and for printing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from oncelog.base.text import counted
from oncelog.spark.audit.model import KINDS, NONE, NOTES, Finding
from oncelog.spark.audit.pipeline import BUCKETS, AuditResult

_WORTH_A_SPEED: Final = 64 << 20
_YEAR_9999_MS: Final = 253_402_300_799_000


FORMAT: Final = 1  # the console's reader has the same number


def as_json(result: AuditResult) -> dict[str, Any]:
    """The whole result. Times of findings are ISO 8601; unknown values are left out."""
    return {
        "format": FORMAT,
        "directories": list(result.directories),
        "as_of": time_text(result.now_ms),
        "checksums_checked": result.check_crc,
        "caveats": list(caveats(result)),
        "seconds": round(result.seconds, 3),
        "read": totals(result),
        "transactions": count_by_fate(result),
        "findings": result.kinds,
        "meanings": {kind: meaning(kind) for kind in result.kinds},
        "over_time": over_time(result),
        "listed": [finding_json(finding) for finding in result.findings],
        "notes": [finding_json(note) for note in result.notes],
        "not_ended": [
            {name: value for name, value in part._asdict().items() if value not in ("", NONE)}
            for part in result.transactions
        ],
    }


def caveats(result: AuditResult) -> Iterator[str]:
    """Questions that the audit could not decide, each with the option that would decide it."""
    context = result.context
    if context.settled_ms < context.now_ms:
        yield (
            f"nothing newer than {time_text(context.settled_ms)} is said to be missing: the logs may have been copied "
            "one after the other (--copied-within 0 if they are of one instant)"
        )
    if context.coordinators and not context.has_all_coordinators():
        expected = context.transaction_partitions
        present = f"not all {expected} partitions" if expected else "perhaps not all partitions"
        yield (
            f"{present} of __transaction_state are here and whole: a producer that none of them knows may be another's"
            + ("" if expected else " (--transaction-partitions tells how many there are)")
        )


def totals(result: AuditResult) -> dict[str, int]:
    stats = result.stats
    return {
        "brokers": len(result.directories),
        "partitions": len(result.context.partitions),
        "segments": len(stats),
        "batches": sum(stat.batches for stat in stats),
        "records": sum(stat.records for stat in stats),
        "size_bytes": sum(stat.size_bytes for stat in stats),
    }


def count_by_fate(result: AuditResult) -> dict[str, int]:
    """Number of transactions by fate; a transaction counts once for each partition it wrote to."""
    numbers: Counter[str] = Counter()
    for tally in result.tallies:
        numbers[tally.fate] += tally.parts
    return dict(sorted(numbers.items(), key=lambda item: -item[1]))


def over_time(result: AuditResult) -> dict[str, Any]:
    """Number of transactions by fate and interval; empty intervals are left out."""
    start, width = result.buckets
    stretches = [{"time": time_text(start + number * width), **column} for number, column in fates_by_interval(result)]
    return {"from": time_text(start), "stretch_ms": width, "stretches": BUCKETS, "transactions": stretches}


def fates_by_interval(result: AuditResult) -> list[tuple[int, dict[str, int]]]:
    """(number of the interval, transactions by fate) for each interval that has transactions."""
    columns: dict[int, dict[str, int]] = {}
    for tally in result.tallies:
        column = columns.setdefault(min(BUCKETS - 1, max(0, tally.bucket)), {})
        column[tally.fate] = column.get(tally.fate, 0) + tally.parts
    return sorted(columns.items())


def finding_json(finding: Finding) -> dict[str, Any]:
    values = {name: value for name, value in finding._asdict().items() if value not in ("", NONE)}
    if "time" in values:
        values["time"] = time_text(finding.time)
    return values


def meaning(kind: str) -> str:
    return KINDS.get(kind) or NOTES.get(kind, kind)


def time_text(milliseconds: int) -> str:
    """ISO 8601 in UTC; a number outside the range of dates as it is."""
    if not 0 <= milliseconds <= _YEAR_9999_MS:
        return str(milliseconds)
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def headline(result: AuditResult) -> str:
    read = totals(result)
    busy = sum(stat.read_seconds for stat in result.stats)
    speed = (
        f", {read['size_bytes'] / busy / 1e6:,.0f} MB/s a core" if read["size_bytes"] > _WORTH_A_SPEED and busy else ""
    )
    return (
        f"{counted(read['partitions'], 'partition')}, {counted(read['segments'], 'segment')}, "
        f"{size_text(read['size_bytes'])}, {counted(read['batches'], 'batch', 'batches')}, "
        f"{counted(read['records'], 'record')} in {result.seconds:.1f} s{speed}"
    )
