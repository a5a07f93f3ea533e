"""A report of ``oncelog audit --json``, read with bounds: it may come from anybody.

The rule: what is shown has been checked here. A document that is no such report raises BadReport; rows that are too
many and texts that are too long are cut, and fields that nobody knows are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.console.query import BadQuery

LARGEST: Final = 8 << 20
MOST_ROWS: Final = 5_000
MOST_KEYS: Final = 200
LONGEST_TEXT: Final = 2_000
MOST_STRETCHES: Final = 1_000
FINDING_TEXTS: Final = ("kind", "topic", "transactional_id", "time", "path", "text")
FINDING_NUMBERS: Final = ("partition", "offset", "last_offset", "producer_id", "epoch")
TRANSACTION_TEXTS: Final = ("topic", "fate", "transactional_id")
TRANSACTION_NUMBERS: Final = (
    *("partition", "producer_id", "epoch", "first_offset", "last_offset", "batches", "records", "size_bytes"),
    *("marker_offset", "started", "written", "ended"),
)
Row = Mapping[str, str | int | None]


class BadReport(BadQuery):
    """A document that is no report of an audit."""


@dataclass(frozen=True, slots=True)
class OverTime:
    """Transactions by fate in stretches of time: (number of the stretch, fate → number of transactions)."""

    begin: str
    stretch_ms: int
    stretches: int
    columns: tuple[tuple[str, Mapping[str, int]], ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """A report. ``findings`` are the gravest first, at most those that were listed; ``kinds`` counts all."""

    directories: tuple[str, ...]
    as_of: str
    checksums_checked: bool
    caveats: tuple[str, ...]
    seconds: float
    read: Mapping[str, int]
    fates: Mapping[str, int]
    kinds: Mapping[str, int]
    meanings: Mapping[str, str]
    findings: tuple[Row, ...]
    not_ended: tuple[Row, ...]
    over_time: OverTime | None

    @property
    def found(self) -> int:
        return sum(self.kinds.values())


def read_report(text: bytes) -> AuditReport:
    """The report of a document. Raises BadReport."""
    if len(text) > LARGEST:
        raise BadReport(f"it has {len(text)} bytes; {LARGEST} are the most")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"it is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict) or not {"read", "transactions", "findings", "listed"} <= found.keys():
        raise BadReport("it is not what oncelog audit --json writes")
    try:
        return AuditReport(
            directories=_texts(found.get("directories", [])),
            as_of=_text(found.get("as_of", "")),
            checksums_checked=bool(found.get("checksums_checked", False)),
            caveats=_texts(found.get("caveats", [])),
            seconds=float(found.get("seconds", 0)),
            read=_numbers(found["read"]),
            fates=_numbers(found["transactions"]),
            kinds=_numbers(found["findings"]),
            meanings={_text(key): _text(value) for key, value in _few(found.get("meanings", {})).items()},
            findings=_rows(found["listed"], FINDING_TEXTS, FINDING_NUMBERS),
            not_ended=_rows(found.get("not_ended", []), TRANSACTION_TEXTS, TRANSACTION_NUMBERS),
            over_time=_over_time(found.get("over_time")),
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise BadReport(f"it is not what oncelog audit --json writes: {str(error)[:200]}") from None


def _over_time(found: Any) -> OverTime | None:
    if found is None:
        return None
    columns = []
    for one in found["transactions"][:MOST_STRETCHES]:
        numbers = {key: value for key, value in one.items() if key != "time"}
        columns.append((_text(one["time"]), _numbers(numbers)))
    return OverTime(
        _text(found["from"]), max(1, _number(found["stretch_ms"])), _number(found["stretches"]), tuple(columns)
    )


def _few(values: Any) -> dict[Any, Any]:
    if not isinstance(values, dict) or len(values) > MOST_KEYS:
        raise ValueError(f"an object of at most {MOST_KEYS} fields was expected")
    return values


def _numbers(values: Any) -> dict[str, int]:
    return {_text(key): _number(value) for key, value in _few(values).items()}


def _number(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(f"{str(value)[:40]!r} is no whole number of 64 bits")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} is no text")
    return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}…"


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError("a list of texts was expected")
    return tuple(_text(value) for value in values[:MOST_KEYS])


def _rows(values: Any, texts: tuple[str, ...], numbers: tuple[str, ...]) -> tuple[Row, ...]:
    """Rows with every field of the two kinds; None where the report has none."""
    if not isinstance(values, list):
        raise ValueError("a list of rows was expected")
    rows: list[Row] = []
    for value in values[:MOST_ROWS]:
        row: dict[str, str | int | None] = {name: _text(value[name]) if name in value else None for name in texts}
        rows.append(row | {name: _number(value[name]) if name in value else None for name in numbers})
    return tuple(rows)
