"""Metrics of the last hour, as plots: what was sampled while this console ran. Asks the cluster nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oncelog.console.metrics.history import Key
from oncelog.console.page import Asked
from oncelog.console.rendering import shown
from oncelog.plotting.axes import Unit
from oncelog.plotting.lines import Line, LinePlot, line_plot

MINUTES: Final = ("60", "15", "5")
RATE_OF_ALL: Final[Key] = ("records", "")
LEAST_MS: Final = 60_000
"""The least time drawn; a console that has not run for as long as is asked for draws what it has."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A plot: the measures whose series it draws, and how a series without a name is called."""

    key: str
    title: str
    unit: Unit
    measures: tuple[str, ...]
    about: str = ""
    of_all: str = "all"


CLUSTER: Final = (
    _Wanted("records", "Records written", "per second", ("records",), "by offsets, markers too", "all topics"),
    _Wanted("held", "Held back from readers of committed records", "count", ("held",), "end less last stable offset"),
    _Wanted("lag", "Lag of groups", "count", ("lag",), "from what is committed to the end"),
    _Wanted("transactions", "Transactions under way", "count", ("transactions",)),
    _Wanted("partitions", "Partitions that lack something", "count", ("partitions",)),
    _Wanted(
        "answer",
        "Time to answer",
        "seconds",
        ("answer",),
        "Metadata of all topics, as this console asks",
        "the cluster",
    ),
)
BROKERS: Final = (
    _Wanted("requests", "Requests", "per second", ("requests",)),
    _Wanted("bytes", "Record bytes", "bytes per second", ("bytes in", "bytes out")),
    _Wanted("produce", "Latency of Produce", "seconds", ("produce p50", "produce p99")),
    _Wanted("commit", "Latency of EndTxn", "seconds", ("commit p50", "commit p99")),
    _Wanted("loop", "Loop delay", "seconds", ("loop delay",)),
    _Wanted("replication", "Replication lag", "count", ("replication lag",), "records of the copy furthest behind"),
    _Wanted("hanging", "Hanging transactions", "count", ("hanging",), "no producer or coordinator will end them"),
    _Wanted("connections", "Connections", "count", ("connections",)),
)


def read(asked: Asked) -> Mapping[str, Any]:
    """The plots, of all or of a topic, group or broker; as JSON the values behind them."""
    query = asked.query
    minutes, name = query.choice("minutes", MINUTES), query.text("name").strip()
    sampler = asked.sampler
    if sampler is None:
        return {"sampling": None, "filter": {"minutes": minutes, "name": name}, "minutes": MINUTES}
    now_ms = int(time.time() * 1000)
    span = now_ms - int(minutes) * 60_000, now_ms
    times, series = sampler.history.since(span[0])
    if times:
        span = max(span[0], min(times[0], now_ms - LEAST_MS)), now_ms
    wanted = (*CLUSTER, *(BROKERS if sampler.urls else ()))
    lines = {one.key: lines_of(series, one, name) for one in wanted}
    rows: dict[str, Any] = {
        "sampling": {
            "every_s": sampler.every_s,
            "pause_s": sampler.pause_s,
            "took_s": sampler.took_s,
            "moments": len(times),
            "left_out": sampler.history.left_out,
            "ports": len(sampler.urls),
        },
        "unanswered": list(sampler.said),
        "filter": {"minutes": minutes, "name": name},
        "minutes": MINUTES,
    }
    if asked.as_json:
        return rows | {"times_ms": times, "plots": [_plain(one, lines[one.key]) for one in wanted]}
    return rows | {
        "cluster": [_drawn(one, times, lines[one.key], span) for one in CLUSTER],
        "brokers": [_drawn(broker, times, lines[broker.key], span) for broker in BROKERS] if sampler.urls else [],
    }


def lines_of(series: Mapping[Key, Sequence[float]], wanted: _Wanted, name: str) -> list[Line]:
    """The lines of a plot that have any value, that of the whole cluster first, then the highest."""
    found = []
    for (measure, of), sampled in series.items():
        values = _quiet_as_zero(sampled, series.get(RATE_OF_ALL, ())) if measure == "records" else sampled
        seen = [value for value in values if math.isfinite(value)]
        if measure not in wanted.measures or not seen or (name and of and name.lower() not in of.lower()):
            continue
        title = of or wanted.of_all
        found.append((bool(of), -max(seen), Line(f"{title}, {measure}" if len(wanted.measures) > 1 else title, values)))
    return [one for *_, one in sorted(found, key=lambda one: (one[0], one[1], one[2].name))]


def _quiet_as_zero(values: Sequence[float], of_all: Sequence[float]) -> list[float]:
    """The rates of a topic: samples have those of topics that are written to, so none beside a total is zero."""
    return [0.0 if math.isnan(one) and math.isfinite(total) else one for one, total in zip(values, of_all, strict=True)]


def _drawn(wanted: _Wanted, times: Sequence[int], lines: Sequence[Line], span: tuple[int, int]) -> LinePlot:
    named = [Line(shown(line.name), line.values) for line in lines]
    return line_plot(wanted.key, wanted.title, times, named, span, wanted.unit, wanted.about)


def _plain(wanted: _Wanted, lines: Sequence[Line]) -> dict[str, Any]:
    values = {line.name: [value if math.isfinite(value) else None for value in line.values] for line in lines}
    return {"key": wanted.key, "title": wanted.title, "unit": wanted.unit, "lines": values}
