"""Opens the sink's client, for tasks and for driver processes, which must not import numpy and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.client.blocking import Client

if TYPE_CHECKING:
    from oncelog.spark.sink.options import SinkOptions


def open_client(options: SinkOptions) -> Client:
    return Client(options.bootstrap_servers, config=options.client)
