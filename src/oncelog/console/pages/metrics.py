"""The metrics page: plots of the last hour's samples. It does not query the cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oncelog.console.metrics.history import Key
from oncelog.console.page import PageRequest
from oncelog.console.rendering import shown
from oncelog.plotting.axes import Unit
from oncelog.plotting.lines import Line, LinePlot, line_plot

if TYPE_CHECKING:
    from oncelog.console.metrics.sampler import Sampler

MINUTES: Final = ("60", "15", "5")
RATE_OF_ALL: Final[Key] = ("records", "")
MAX_GROUPS: Final = 30
# The shortest time axis: a console that has run for less than the requested time draws only what it has.
LEAST_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class _PlotSpec:
    """A plot: its measures, and the name of a series without a subject."""

    key: str
    title: str
    unit: Unit
    measures: tuple[str, ...]
    about: str = ""
    of_all: str = "all"


CLUSTER: Final = (
    _PlotSpec(
        "records", "Records written", "per second", ("records",), "counted by offsets, including markers", "all topics"
    ),
    _PlotSpec(
        "held", "Not yet visible to read_committed consumers", "count", ("held",), "end offset minus last stable offset"
    ),
    _PlotSpec("lag", "Consumer group lag", "count", ("lag",), "from the committed offset to the end"),
    _PlotSpec("transactions", "Transactions under way", "count", ("transactions",)),
    _PlotSpec("partitions", "Partitions with problems", "count", ("partitions",)),
    _PlotSpec(
        "answer",
        "Response time",
        "seconds",
        ("answer",),
        "Metadata of all topics, measured by this console",
        "the cluster",
    ),
)
BROKERS: Final = (
    _PlotSpec("requests", "Requests", "per second", ("requests",)),
    _PlotSpec("bytes", "Record bytes", "bytes per second", ("bytes in", "bytes out")),
    _PlotSpec("produce", "Latency of Produce", "seconds", ("produce p50", "produce p99")),
    _PlotSpec("commit", "Latency of EndTxn", "seconds", ("commit p50", "commit p99")),
    _PlotSpec("loop", "Loop delay", "seconds", ("loop delay",)),
    _PlotSpec(
        "replication",
        "Replication lag",
        "count",
        ("replication lag",),
        "records missing from the replica furthest behind",
    ),
    _PlotSpec("hanging", "Hanging transactions", "count", ("hanging",), "no producer or coordinator will end them"),
    _PlotSpec("connections", "Connections", "count", ("connections",)),
)


def read(page_request: PageRequest) -> Mapping[str, Any]:
    """The plots, of everything or of one topic, group or broker; as JSON their values."""
    query = page_request.query
    minutes, name = query.choice("minutes", MINUTES), query.text("name").strip()
    sampler = page_request.sampler
    if sampler is None:
        return {"sampling": None, "filter": {"minutes": minutes, "name": name}, "minutes": MINUTES}
    now_ms = int(time.time() * 1000)
    span = now_ms - int(minutes) * 60_000, now_ms
    times, series = sampler.history.since(span[0])
    series |= _lags_of(sampler, times, name)
    if times:
        span = max(span[0], min(times[0], now_ms - LEAST_MS)), now_ms
    plots = (*CLUSTER, *(BROKERS if sampler.urls else ()))
    lines = {plot.key: lines_of(series, plot, name) for plot in plots}
    rows: dict[str, Any] = {
        "sampling": {
            "every_s": sampler.every_s,
            "pause_s": sampler.pause_s,
            "took_s": sampler.took_s,
            "moments": len(times),
            "left_out": sampler.history.left_out,
            "ports": len(sampler.urls),
        },
        "unanswered": list(sampler.problems),
        "filter": {"minutes": minutes, "name": name},
        "minutes": MINUTES,
    }
    if page_request.as_json:
        return rows | {"times_ms": times, "plots": [_plain(plot, lines[plot.key]) for plot in plots]}
    return rows | {
        "protocol": [_drawn(plot, times, lines[plot.key], span) for plot in CLUSTER],
        "brokers": [_drawn(broker, times, lines[broker.key], span) for broker in BROKERS] if sampler.urls else [],
    }


def _lags_of(sampler: Sampler, times: Sequence[int], name: str) -> dict[Key, list[float]]:
    # Of the groups that are most behind now; all groups would be megabytes.
    lags = {
        key: lag for key, lag in sampler.groups.latest().items() if key[0] == "lag" and name.lower() in key[1].lower()
    }
    chosen = set(sorted(lags, key=lambda key: (-lags[key], key))[:MAX_GROUPS])
    own_times, series = sampler.groups.since(times[0] if times else 0, chosen.__contains__)
    places = {time_ms: place for place, time_ms in enumerate(own_times)}
    return {
        key: [values[places[time_ms]] if time_ms in places else math.nan for time_ms in times]
        for key, values in series.items()
    }


def lines_of(series: Mapping[Key, Sequence[float]], plot: _PlotSpec, name: str) -> list[Line]:
    """The lines of a plot that have values: the whole cluster's first, then by maximum."""
    ranked = []
    for (measure, subject), sampled in series.items():
        values = _quiet_as_zero(sampled, series.get(RATE_OF_ALL, ())) if measure == "records" else sampled
        seen = [value for value in values if math.isfinite(value)]
        if measure not in plot.measures or not seen or (name and subject and name.lower() not in subject.lower()):
            continue
        title = subject or plot.of_all
        ranked.append(
            (bool(subject), -max(seen), Line(f"{title}, {measure}" if len(plot.measures) > 1 else title, values))
        )
    return [line for *_, line in sorted(ranked, key=lambda entry: (entry[0], entry[1], entry[2].name))]


def _quiet_as_zero(values: Sequence[float], of_all: Sequence[float]) -> list[float]:
    """The rates of a topic. Samples omit quiet topics, so a gap beside a total means zero."""
    return [
        0.0 if math.isnan(value) and math.isfinite(total) else value
        for value, total in zip(values, of_all, strict=True)
    ]


def _drawn(plot: _PlotSpec, times: Sequence[int], lines: Sequence[Line], span: tuple[int, int]) -> LinePlot:
    named = [Line(shown(line.name), line.values) for line in lines]
    return line_plot(plot.key, plot.title, times, named, span, plot.unit, plot.about)


def _plain(plot: _PlotSpec, lines: Sequence[Line]) -> dict[str, Any]:
    values = {line.name: [value if math.isfinite(value) else None for value in line.values] for line in lines}
    return {"key": plot.key, "title": plot.title, "unit": plot.unit, "lines": values}
