"""Metrics of a command: served to those who ask for a name of this machine, until it is closed."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from oncelog.cli.support.metrics_server import MetricsServer
from oncelog.client.errors import ClientError


class Source:
    """One metric."""

    def collect(self) -> Iterator[Metric]:
        """The metric."""
        yield GaugeMetricFamily("one", "A number.", value=1)


def status_of(url: str, host: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host})) as response:
            assert b"\none 1.0" in response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_metrics_are_served_until_the_end() -> None:
    with closing(MetricsServer(Source(), "127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert [status_of(f"{url}{path}", "127.0.0.1") for path in ("/metrics", "/")] == [200, 200]
        assert status_of(f"{url}/metrics", "evil.example") == 421
        with pytest.raises(ClientError, match="cannot serve metrics on"):
            MetricsServer(Source(), "127.0.0.1", server.port)
    with pytest.raises(OSError, match="refused"):
        status_of(f"{url}/metrics", "127.0.0.1")


def test_a_command_that_runs_a_loop_serves_metrics() -> None:
    async def command() -> MetricsServer:
        return MetricsServer(Source(), "127.0.0.1", 0)

    with closing(asyncio.run(command())) as server:
        assert status_of(f"http://127.0.0.1:{server.port}/metrics", "127.0.0.1") == 200
