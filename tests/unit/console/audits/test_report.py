"""Reports of anybody: read with bounds, refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncelog.console.audits.report import MAX_ROWS, MAX_TEXT_LENGTH, BadReport, read_report

SMALL: dict[str, Any] = {
    "directories": ["/data"],
    "as_of": "2026-01-01T00:00:00.000Z",
    "checksums_checked": True,
    "caveats": [],
    "seconds": 1.5,
    "read": {"records": 3},
    "transactions": {"committed": 1, "hanging": 1},
    "findings": {"hanging": 1},
    "meanings": {"hanging": "nobody will end it"},
    "over_time": {
        "from": "2026-01-01T00:00:00.000Z",
        "stretch_ms": 1000,
        "stretches": 120,
        "transactions": [{"time": "2026-01-01T00:00:05.000Z", "committed": 1, "hanging": 1}],
    },
    "listed": [{"kind": "hanging", "topic": "t", "partition": 0, "offset": 3, "text": "<b>"}],
    "not_ended": [{"fate": "hanging", "topic": "t", "partition": 0, "first_offset": 3, "producer_id": 9}],
}


def document(**changed: Any) -> bytes:
    return json.dumps(SMALL | changed).encode()


def test_a_report_is_read() -> None:
    report = read_report(document())
    assert (report.finding_count, report.directories, report.fates["hanging"]) == (1, ("/data",), 1)
    assert report.findings[0]["offset"] == 3
    assert report.findings[0]["producer_id"] is None
    assert report.over_time is not None
    assert report.over_time.columns == (("2026-01-01T00:00:05.000Z", {"committed": 1, "hanging": 1}),)
    older = {name: value for name, value in SMALL.items() if name not in ("meanings", "over_time")}
    assert read_report(json.dumps(older).encode()).over_time is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"read": 1}',
        document(read=[1]),
        document(findings={"x": "many"}),
        document(findings={"x": 2**64}),
        document(findings={"x": True}),
        document(listed={"a": 1}),
        document(listed=[1]),
        document(listed=[{"kind": 1}]),
        document(not_ended=[{"epoch": 1e400}]),
        document(seconds=[]),
        document(over_time={"transactions": 1}),
        document(over_time=[]),
        document(meanings={str(number): "x" for number in range(1000)}),
        document(directories="x"),
    ],
)
def test_what_is_no_report_is_refused(text: bytes) -> None:
    with pytest.raises(BadReport):
        read_report(text)


def test_what_is_too_much_is_cut() -> None:
    report = read_report(document(listed=[{"kind": "x" * 9000}] + [{}] * (MAX_ROWS + 5)))
    assert len(report.findings) == MAX_ROWS
    assert len(str(report.findings[0]["kind"])) == MAX_TEXT_LENGTH + 1
