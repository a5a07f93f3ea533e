"""Parser for the reports of ``oncelog audit --json``, with bounds: a report is untrusted input.

A document that is not a report raises BadReport; excess rows and text are cut, and unknown fields dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.console.query import BadQuery

FORMAT: Final = 1
"""The format of ``oncelog audit --json``; the first reports had no number."""
MAX_REPORT_BYTES: Final = 8 << 20
MAX_ROWS: Final = 5_000
MAX_KEYS: Final = 200
MAX_TEXT_LENGTH: Final = 2_000
MAX_STRETCHES: Final = 1_000
FINDING_TEXTS: Final = ("kind", "topic", "transactional_id", "time", "path", "text")
FINDING_NUMBERS: Final = ("partition", "offset", "last_offset", "producer_id", "epoch")
TRANSACTION_TEXTS: Final = ("topic", "fate", "transactional_id")
TRANSACTION_NUMBERS: Final = (
    *("partition", "producer_id", "epoch", "first_offset", "last_offset", "batches", "records", "size_bytes"),
    *("marker_offset", "started", "written", "ended"),
)
Row = Mapping[str, str | int | None]


class BadReport(BadQuery):
    """A document that is not an audit report."""


@dataclass(frozen=True, slots=True)
class OverTime:
    """Transactions by fate per time bucket. ``columns`` holds (start of the bucket, fate → number of transactions)."""

    begin: str
    stretch_ms: int
    stretches: int
    columns: tuple[tuple[str, Mapping[str, int]], ...]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """A report. ``findings`` holds only the listed ones, most serious first; ``kinds`` counts all."""

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
    def finding_count(self) -> int:
        return sum(self.kinds.values())


def read_report(text: bytes) -> AuditReport:
    """The report of a document. Raises BadReport."""
    if len(text) > MAX_REPORT_BYTES:
        raise BadReport(f"it has {len(text)} bytes; the maximum is {MAX_REPORT_BYTES}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"it is not JSON: {str(error)[:200]}") from None
    if not isinstance(document, dict) or not {"read", "transactions", "findings", "listed"} <= document.keys():
        raise BadReport("it is not a report: use the output of oncelog audit --json")
    if (version := document.get("format", FORMAT)) != FORMAT:
        raise BadReport(
            f"it has format {str(version)[:40]}, and this version of oncelog reads {FORMAT}: open it with the version "
            "that wrote it"
        )
    try:
        return AuditReport(
            directories=_texts(document.get("directories", [])),
            as_of=_text(document.get("as_of", "")),
            checksums_checked=bool(document.get("checksums_checked", False)),
            caveats=_texts(document.get("caveats", [])),
            seconds=float(document.get("seconds", 0)),
            read=_numbers(document["read"]),
            fates=_numbers(document["transactions"]),
            kinds=_numbers(document["findings"]),
            meanings={_text(key): _text(value) for key, value in _few(document.get("meanings", {})).items()},
            findings=_rows(document["listed"], FINDING_TEXTS, FINDING_NUMBERS),
            not_ended=_rows(document.get("not_ended", []), TRANSACTION_TEXTS, TRANSACTION_NUMBERS),
            over_time=_over_time(document.get("over_time")),
        )
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise BadReport(f"it is not a report of oncelog audit --json: {str(error)[:200]}") from None


def _over_time(document: Any) -> OverTime | None:
    if document is None:
        return None
    columns = []
    for bucket in document["transactions"][:MAX_STRETCHES]:
        numbers = {key: value for key, value in bucket.items() if key != "time"}
        columns.append((_text(bucket["time"]), _numbers(numbers)))
    return OverTime(
        _text(document["from"]), max(1, _number(document["stretch_ms"])), _number(document["stretches"]), tuple(columns)
    )


def _few(values: Any) -> dict[Any, Any]:
    if not isinstance(values, dict) or len(values) > MAX_KEYS:
        raise ValueError(f"expected an object with at most {MAX_KEYS} fields")
    return values


def _numbers(values: Any) -> dict[str, int]:
    return {_text(key): _number(value) for key, value in _few(values).items()}


def _number(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(f"{str(value)[:40]!r} is not a 64-bit integer")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} is not a string")
    return value if len(value) <= MAX_TEXT_LENGTH else f"{value[:MAX_TEXT_LENGTH]}…"


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError("expected a list of strings")
    return tuple(_text(value) for value in values[:MAX_KEYS])


def _rows(values: Any, texts: tuple[str, ...], numbers: tuple[str, ...]) -> tuple[Row, ...]:
    if not isinstance(values, list):
        raise ValueError("expected a list of rows")
    rows: list[Row] = []
    for value in values[:MAX_ROWS]:
        row: dict[str, str | int | None] = {name: _text(value[name]) if name in value else None for name in texts}
        rows.append(row | {name: _number(value[name]) if name in value else None for name in numbers})
    return tuple(rows)
