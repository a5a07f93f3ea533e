"""Serving Prometheus's metrics from a command, in a thread of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from oncelog.client.errors import ClientError


class MetricsServer:
    """Serves what ``collector`` yields until ``close``. Raises ClientError for an address in use."""

    def __init__(self, collector: Collector, address: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, addr=address, registry=registry)
        except OSError as error:
            raise ClientError(f"cannot serve metrics on {address}:{port}: {error.strerror or error}") from None
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
