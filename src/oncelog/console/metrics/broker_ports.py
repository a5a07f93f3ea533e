"""Metrics of oncelog's brokers, read from the ports that ``oncelog serve --http`` opens: Prometheus text, with bounds.

Rates and latencies come from two readings. A counter that went down means that the broker was restarted; it gives no
value once. The HTTP client and the parser are imported when needed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from oncelog.client.errors import ConfigError
from oncelog.console.metrics.history import Key

MAX_ANSWER_BYTES: Final = 16 << 20
MAX_SAMPLES: Final = 5000
PATIENCE_S: Final = 3.0
RATES: Final = {
    "oncelog_requests_total": "requests",
    "oncelog_record_bytes_in_total": "bytes in",
    "oncelog_record_bytes_out_total": "bytes out",
}
GAUGES: Final = {
    "oncelog_loop_delay_seconds": "loop delay",
    "oncelog_replica_max_lag_records": "replication lag",
    "oncelog_connections": "connections",
    "oncelog_under_replicated_partitions": "under-replicated",
}
LATENCIES: Final = {"Produce": "produce", "EndTxn": "commit"}  # Not Fetch: its latency includes waiting for records.
QUANTILES: Final = {"p50": 0.5, "p99": 0.99}
_BUCKETS: Final = "oncelog_request_latency_seconds_bucket"
_OPEN: Final = "oncelog_open_transactions"
_HANGING: Final = ("hanging", "orphaned")  # The label today, and the label of brokers before 0.1.
PARSED_METRICS: Final = (*RATES, *GAUGES, _BUCKETS, _OPEN)

Buckets = dict[float, float]
"""Upper bound in seconds → number of requests up to it."""


@dataclass(slots=True)
class Reading:
    at_s: float
    counters: dict[str, float]
    gauges: dict[str, float]
    latencies: dict[str, Buckets]


def checked_address(url: str) -> str:
    """Complete and validate a metrics address; HOST:PORT is allowed. Raises ConfigError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is not a number, or an unclosed bracket.
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is not a metrics address such as http://127.0.0.1:9100/metrics")
    return parts.geturl() if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/metrics"


def name_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def read_all(urls: Sequence[str], clock_s: float) -> dict[str, Reading | str]:
    """Readings by broker name; a text with the reason for a broker that did not answer."""
    if not urls:
        return {}
    with ThreadPoolExecutor(min(8, len(urls)), thread_name_prefix="oncelog-console-metrics") as pool:
        return dict(zip(map(name_of, urls), pool.map(lambda url: _read(url, clock_s), urls), strict=True))


def _read(url: str, clock_s: float) -> Reading | str:
    import http.client
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with contextlib.closing(opener.open(url, timeout=PATIENCE_S)) as answer:
            text = answer.read(MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        return f"HTTP status {error.code}"
    except http.client.HTTPException as error:
        return f"the answer is not HTTP: {str(error).strip()[:100] or type(error).__name__}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or reason).lower() or type(error).__name__
    if len(text) > MAX_ANSWER_BYTES:
        return f"the metrics are larger than {MAX_ANSWER_BYTES} bytes"
    try:
        reading = parsed(text.decode(), clock_s)
    except (ValueError, KeyError, IndexError) as error:
        return f"the answer is not Prometheus text: {str(error)[:100]}"
    if not (reading.counters or reading.gauges or reading.latencies):
        return "no oncelog metrics in the answer; is this the port of oncelog serve --http?"
    return reading


def parsed(text: str, clock_s: float) -> Reading:
    """Parse Prometheus text. Raises ValueError, KeyError and IndexError for other text."""
    from prometheus_client.parser import text_string_to_metric_families

    reading = Reading(clock_s, {}, {}, {})
    lines = [part for part in text.split("\n") if part.startswith(PARSED_METRICS)]
    if len(lines) > MAX_SAMPLES:
        raise ValueError(f"{len(lines)} relevant samples; the maximum is {MAX_SAMPLES}")
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            if sample.name in RATES:
                reading.counters[RATES[sample.name]] = reading.counters.get(RATES[sample.name], 0) + sample.value
            elif sample.name in GAUGES:
                reading.gauges[GAUGES[sample.name]] = sample.value
            elif sample.name == _OPEN and sample.labels.get("verdict") in _HANGING:
                reading.gauges["hanging"] = sample.value
            elif sample.name == _BUCKETS and sample.labels.get("api") in LATENCIES:
                reading.latencies.setdefault(LATENCIES[sample.labels["api"]], {})[float(sample.labels["le"])] = (
                    sample.value
                )
    return reading


def values_of(broker: str, before: Reading | None, now: Reading) -> dict[Key, float]:
    values: dict[Key, float] = {(name, broker): value for name, value in now.gauges.items()}
    if before is None or now.at_s <= before.at_s:
        return values
    seconds = now.at_s - before.at_s
    for name, value in now.counters.items():
        added = value - before.counters.get(name, math.inf)
        if added >= 0:
            values[name, broker] = added / seconds
    for api, buckets in now.latencies.items():
        added_to = _added(before.latencies.get(api, {}), buckets)
        for quantile, share in QUANTILES.items():
            within_s = quantile_of(added_to, share)
            if within_s is not None:
                values[f"{api} {quantile}", broker] = within_s
    return values


def _added(before: Mapping[float, float], now: Mapping[float, float]) -> Buckets:
    """The growth of each bucket; empty if the broker was restarted."""
    added = {bound: number - before.get(bound, 0) for bound, number in now.items()}
    return added if _never_less(added.values()) else {}


def _never_less(numbers: Iterable[float]) -> bool:
    return all(number >= 0 for number in numbers)


def quantile_of(buckets: Mapping[float, float], share: float) -> float | None:
    """The quantile as Prometheus's histogram_quantile computes it; None without requests."""
    ordered = sorted(buckets.items())
    total = ordered[-1][1] if ordered else 0
    if total <= 0:
        return None
    rank, lower, below = share * total, 0.0, 0.0
    for bound, number in ordered:
        if number >= rank:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / max(number - below, 1e-9)
        lower, below = bound, number
    return lower
