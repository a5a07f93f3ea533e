"""An audit's result as plain values: for JSON, and for printing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from oncelog.base.text import counted
from oncelog.spark.audit.model import KINDS, NONE, Finding
from oncelog.spark.audit.pipeline import BUCKETS, AuditResult

_WORTH_A_SPEED: Final = 64 << 20
_YEAR_9999_MS: Final = 253_402_300_799_000


def as_json(result: AuditResult) -> dict[str, Any]:
    """The whole result. Times as ISO 8601 beside findings; what is not known is left out."""
    return {
        "directories": list(result.directories),
        "as_of": time_text(result.now_ms),
        "checksums_checked": result.check_crc,
        "caveats": list(caveats(result)),
        "seconds": round(result.seconds, 3),
        "read": totals(result),
        "transactions": fates(result),
        "findings": result.kinds,
        "meanings": {kind: meaning(kind) for kind in result.kinds},
        "over_time": over_time(result),
        "listed": [finding_json(one) for one in result.findings],
        "not_ended": [
            {name: value for name, value in one._asdict().items() if value not in ("", NONE)}
            for one in result.transactions
        ],
    }


def caveats(result: AuditResult) -> Iterator[str]:
    """Questions that the audit could not decide, with the option that lets it."""
    context = result.context
    if context.settled_ms < context.now_ms:
        yield (
            f"nothing newer than {time_text(context.settled_ms)} is said to be missing: the logs may have been copied "
            "one after the other (--copied-within 0 if they are of one instant)"
        )
    if context.coordinators and not context.knows_coordinators():
        number = context.transaction_partitions
        known = f"not all {number} partitions" if number else "perhaps not all partitions"
        yield (
            f"{known} of __transaction_state are here and whole: a producer that none of them knows may be another's"
            + ("" if number else " (--transaction-partitions tells how many there are)")
        )


def totals(result: AuditResult) -> dict[str, int]:
    """Totals of the segments read."""
    stats = result.stats
    return {
        "brokers": len(result.directories),
        "partitions": len(result.context.partitions),
        "segments": len(stats),
        "batches": sum(one.batches for one in stats),
        "records": sum(one.records for one in stats),
        "size_bytes": sum(one.size_bytes for one in stats),
    }


def fates(result: AuditResult) -> dict[str, int]:
    """Transactions, one for each partition they wrote to, by fate."""
    numbers: Counter[str] = Counter()
    for tally in result.tallies:
        numbers[tally.fate] += tally.parts
    return dict(sorted(numbers.items(), key=lambda item: -item[1]))


def over_time(result: AuditResult) -> dict[str, Any]:
    """Numbers of transactions by fate in stretches of equal length, those without any left out."""
    start, width = result.buckets
    stretches = [{"time": time_text(start + number * width), **column} for number, column in fates_by_stretch(result)]
    return {"from": time_text(start), "stretch_ms": width, "stretches": BUCKETS, "transactions": stretches}


def fates_by_stretch(result: AuditResult) -> list[tuple[int, dict[str, int]]]:
    """Number of each stretch of time that has transactions, and how many it has by fate."""
    columns: dict[int, dict[str, int]] = {}
    for tally in result.tallies:
        column = columns.setdefault(min(BUCKETS - 1, max(0, tally.bucket)), {})
        column[tally.fate] = column.get(tally.fate, 0) + tally.parts
    return sorted(columns.items())


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as plain values; fields without a value are left out."""
    found = {name: value for name, value in finding._asdict().items() if value not in ("", NONE)}
    if "time" in found:
        found["time"] = time_text(finding.time)
    return found


def meaning(kind: str) -> str:
    """A kind of finding, in words."""
    return KINDS.get(kind, kind)


def time_text(milliseconds: int) -> str:
    """ISO 8601 in UTC; a number that is no time as it is."""
    if not 0 <= milliseconds <= _YEAR_9999_MS:
        return str(milliseconds)
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size_text(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def headline(result: AuditResult) -> str:
    """One line with the totals read, and the speed."""
    read = totals(result)
    busy = sum(one.read_seconds for one in result.stats)
    speed = (
        f", {read['size_bytes'] / busy / 1e6:,.0f} MB/s a core" if read["size_bytes"] > _WORTH_A_SPEED and busy else ""
    )
    return (
        f"{counted(read['partitions'], 'partition')}, {counted(read['segments'], 'segment')}, "
        f"{size_text(read['size_bytes'])}, {counted(read['batches'], 'batch', 'batches')}, "
        f"{counted(read['records'], 'record')} in {result.seconds:.1f} s{speed}"
    )
