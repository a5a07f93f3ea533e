"""Counters of the requests and bytes that went through this node; ``runtime`` exports them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from oncelog.handlers.registry import BY_KEY

LATENCY_BOUNDS_MS: Final = (0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000)
"""Inclusive upper bounds of the latency histogram; a last bucket takes the rest."""


def api_name(api_key: int) -> str:
    return BY_KEY[api_key].name


class ApiTraffic:
    __slots__ = ("bytes_in", "latency_buckets", "latency_sum_ms", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes_in = 0
        self.latency_sum_ms = 0
        self.latency_buckets = [0] * (len(LATENCY_BOUNDS_MS) + 1)


class Traffic:
    def __init__(self) -> None:
        self.by_api: dict[int, ApiTraffic] = {}
        self.records_in = 0
        self.record_bytes_in = 0
        self.record_bytes_out = 0

    def received(self, api_key: int, size_bytes: int) -> None:
        traffic = self.by_api.get(api_key)
        if traffic is None:
            traffic = self.by_api[api_key] = ApiTraffic()
        traffic.requests += 1
        traffic.bytes_in += size_bytes

    def answered(self, api_key: int, latency_ms: int) -> None:
        traffic = self.by_api[api_key]
        traffic.latency_sum_ms += latency_ms
        traffic.latency_buckets[bisect_left(LATENCY_BOUNDS_MS, latency_ms)] += 1
