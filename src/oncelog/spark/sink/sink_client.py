"""The sink's client of a cluster, for tasks and for the driver's processes, which do without numpy and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.client.blocking import Client

if TYPE_CHECKING:
    from oncelog.spark.sink.options import SinkOptions


def open_client(options: SinkOptions) -> Client:
    """A client with the options' servers and settings."""
    return Client(options.bootstrap_servers, config=options.client)
