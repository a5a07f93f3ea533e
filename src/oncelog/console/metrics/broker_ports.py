"""Metrics of oncelog's brokers, from the ports that ``oncelog serve --http`` opens: Prometheus text, read with bounds.

Of all that a broker tells, only ``WANTED`` is parsed. Rates and latencies come from two readings; a counter that went
back is a broker that was started again, and says nothing for one moment. What parses and asks is imported when needed.
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

LARGEST_ANSWER: Final = 16 << 20
MOST_SAMPLES: Final = 5000
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
LATENCIES: Final = {"Produce": "produce", "EndTxn": "commit"}
"""APIs whose latency is kept: those that do not wait for something to happen, as Fetch does."""
QUANTILES: Final = {"p50": 0.5, "p99": 0.99}
_BUCKETS: Final = "oncelog_request_latency_seconds_bucket"
_OPEN: Final = "oncelog_open_transactions"
_HANGING: Final = ("hanging", "orphaned")
"""Labels of hanging transactions: today's, and that of brokers before 0.1."""
WANTED: Final = (*RATES, *GAUGES, _BUCKETS, _OPEN)

Buckets = dict[float, float]
"""Upper bound in seconds → number of requests that took no longer."""


@dataclass(slots=True)
class Reading:
    at_s: float
    counters: dict[str, float]
    gauges: dict[str, float]
    latencies: dict[str, Buckets]


def checked_address(url: str) -> str:
    """An address of metrics; HOST:PORT is one, too. Raises ConfigError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is no address of metrics, such as http://127.0.0.1:9100/metrics")
    return parts.geturl() if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/metrics"


def name_of(url: str) -> str:
    """A broker's name on plots: host and port."""
    return urlsplit(url).netloc.rpartition("@")[2]


def read_all(urls: Sequence[str], clock_s: float) -> dict[str, Reading | str]:
    """Readings by the brokers' names; a text for one that did not answer, with the reason."""
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
            text = answer.read(LARGEST_ANSWER + 1)
    except urllib.error.HTTPError as error:
        return f"it answered {error.code}"
    except http.client.HTTPException as error:
        return f"its answer is no HTTP: {str(error).strip()[:100] or type(error).__name__}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or reason).lower() or type(error).__name__
    if len(text) > LARGEST_ANSWER:
        return f"its metrics have more than {LARGEST_ANSWER} bytes"
    try:
        found = parsed(text.decode(), clock_s)
    except (ValueError, KeyError, IndexError) as error:
        return f"its answer is no Prometheus text: {str(error)[:100]}"
    if not (found.counters or found.gauges or found.latencies):
        return "it has none of oncelog's metrics; is it the port of oncelog serve --http?"
    return found


def parsed(text: str, clock_s: float) -> Reading:
    """A reading of Prometheus text. Raises ValueError, KeyError and IndexError for what is none."""
    from prometheus_client.parser import text_string_to_metric_families

    found = Reading(clock_s, {}, {}, {})
    lines = [part for part in text.split("\n") if part.startswith(WANTED)]
    if len(lines) > MOST_SAMPLES:
        raise ValueError(f"{len(lines)} samples of what is wanted; {MOST_SAMPLES} are the most")
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            if sample.name in RATES:
                found.counters[RATES[sample.name]] = found.counters.get(RATES[sample.name], 0) + sample.value
            elif sample.name in GAUGES:
                found.gauges[GAUGES[sample.name]] = sample.value
            elif sample.name == _OPEN and sample.labels.get("verdict") in _HANGING:
                found.gauges["hanging"] = sample.value
            elif sample.name == _BUCKETS and sample.labels.get("api") in LATENCIES:
                found.latencies.setdefault(LATENCIES[sample.labels["api"]], {})[float(sample.labels["le"])] = (
                    sample.value
                )
    return found


def values_of(broker: str, before: Reading | None, now: Reading) -> dict[Key, float]:
    """The values of a broker at the later of two readings."""
    found: dict[Key, float] = {(name, broker): value for name, value in now.gauges.items()}
    if before is None or now.at_s <= before.at_s:
        return found
    seconds = now.at_s - before.at_s
    for name, value in now.counters.items():
        added = value - before.counters.get(name, math.inf)
        if added >= 0:
            found[name, broker] = added / seconds
    for api, buckets in now.latencies.items():
        added_to = _added(before.latencies.get(api, {}), buckets)
        for quantile, share in QUANTILES.items():
            within_s = quantile_of(added_to, share)
            if within_s is not None:
                found[f"{api} {quantile}", broker] = within_s
    return found


def _added(before: Mapping[float, float], now: Mapping[float, float]) -> Buckets:
    """The counts by which buckets have grown; none if the broker was started again."""
    added = {bound: number - before.get(bound, 0) for bound, number in now.items()}
    return added if _never_less(added.values()) else {}


def _never_less(numbers: Iterable[float]) -> bool:
    return all(number >= 0 for number in numbers)


def quantile_of(buckets: Mapping[float, float], share: float) -> float | None:
    """The value that a share of all does not exceed, as Prometheus's histogram_quantile has it; None without any."""
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
