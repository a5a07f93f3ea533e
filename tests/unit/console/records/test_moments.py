"""Times as people write them, in the reader's zone or UTC."""

from __future__ import annotations

from datetime import datetime

import pytest

from oncelog.console.records.moments import local_text, milliseconds_of, zone_of


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


NOW = at("2026-11-27T14:30:00+00:00")


@pytest.mark.parametrize(
    ("text", "zone", "meaning"),
    [
        ("-1h", "", NOW - 3_600_000),
        ("-1h30m", "", NOW - 5_400_000),
        ("- 2 d 5 min", "", NOW - 2 * 86_400_000 - 300_000),
        ("-1500ms", "", NOW - 1500),
        ("14:00", "", at("2026-11-27T14:00:00+00:00")),
        ("15:00", "", at("2026-11-26T15:00:00+00:00")),
        ("15:00", "Europe/Berlin", at("2026-11-27T14:00:00+00:00")),
        ("15:00:07", "Europe/Berlin", at("2026-11-27T14:00:07+00:00")),
        ("2026-11-27 15:00", "Europe/Berlin", at("2026-11-27T14:00:00+00:00")),
        ("2026-07-01 15:00", "Europe/Berlin", at("2026-07-01T13:00:00+00:00")),
        ("2026-11-27", "", at("2026-11-27T00:00:00+00:00")),
        ("2026-11-27T15:00+05:30", "Europe/Berlin", at("2026-11-27T09:30:00+00:00")),
        ("1764255600123", "Europe/Berlin", 1_764_255_600_123),
        ("25:00", "", None),
        ("-", "", None),
        ("-1", "", None),
        ("soon", "", None),
        ("0001-01-01 00:00+09:00", "", -62_135_629_200_000),
    ],
)
def test_times(text: str, zone: str, meaning: int | None) -> None:
    assert milliseconds_of(text, NOW, zone_of(zone)) == meaning


def test_zones() -> None:
    for name in ("", "UTC", "Nowhere/City", "../../etc/passwd", "/etc/localtime", "x" * 100, "Europe"):
        assert zone_of(name) is None
    zone = zone_of("Europe/Berlin")
    assert zone is not None
    assert local_text(NOW, zone) == "2026-11-27 15:30:00 CET"
    assert local_text(10**18, zone) == "1000000000000000000 ms after 1970"
