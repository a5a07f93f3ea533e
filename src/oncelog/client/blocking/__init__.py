"""The client over blocking sockets: one thread, several requests in flight.

``Client`` is one connection pool and what it knows of the cluster; ``Fetcher``, ``Producer`` and ``GroupConsumer``
build on it. None of them may be shared between threads.
"""

from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.config import ClientConfig
from oncelog.client.machine.positions import Fetched, FetchSettings

__all__ = ["Client", "ClientConfig", "FetchSettings", "Fetched", "Fetcher"]
