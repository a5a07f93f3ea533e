"""The sampler: a thread that looks at the cluster and at the brokers' metrics ports, again and again.

The rules: it has a client of its own, so that no page waits for it; after a look that took long it waits longer, so
that looking takes at most a twentieth of the time, whatever the cluster's size; a look that failed is a gap and a
reason, and the next one is tried all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.metrics.history import History, Key

if TYPE_CHECKING:
    from oncelog.console.metrics.broker_ports import Reading
    from oncelog.console.metrics.cluster_counts import ClusterCounts

KEPT_S: Final = 3600
SHARE: Final = 20
"""A look is followed by a pause at least so many times as long, less one."""
MOST_SAID: Final = 20
FIRST_AFTER_S: Final = 1.0
"""The first page comes before the first look, which asks about every partition."""
_PATIENCE_S: Final = 0.5


class Sampler:
    """Fills a history. ``said`` has the reasons for what the last look lacks."""

    def __init__(self, connect: Callable[[], Client], urls: Sequence[str], every_s: float) -> None:
        self.every_s = every_s
        self.urls = tuple(urls)
        self.history = History(max(2, int(KEPT_S / every_s)))
        self.said: list[str] = []
        self.took_s = 0.0
        self.pause_s = every_s
        self._connect = connect
        self._client: Client | None = None
        self._counts: ClusterCounts | None = None
        self._readings: Mapping[str, Reading] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oncelog-console-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Look no more; a look under way is waited for a little, and ends by itself."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._drop_client()

    def _run(self) -> None:
        self._ended.wait(FIRST_AFTER_S)
        while not self._ended.is_set():
            self.look()
            self._ended.wait(self.pause_s)

    def look(self) -> None:
        """One look, into the history."""
        began = time.monotonic()
        said: list[str] = []
        values = {**self._look_at_ports(began, said), **self._look_at_cluster(began, said)}
        self.history.add(int(time.time() * 1000), values)
        self.said = said[:MOST_SAID]
        self.took_s = time.monotonic() - began
        self.pause_s = max(self.every_s - self.took_s, self.took_s * (SHARE - 1))

    def _look_at_cluster(self, clock_s: float, said: list[str]) -> dict[Key, float]:
        from oncelog.console.metrics import cluster_counts  # With what it needs, half of all that a console imports.

        try:
            if self._client is None:
                self._client = self._connect()
            now = cluster_counts.sample(self._client, clock_s)
        except ClientError as error:
            said.append(str(error))
            self._counts = None
            self._drop_client()
            return {}
        except Exception as error:  # noqa: BLE001  # The thread goes on whatever one look meets.
            said.append(f"the look failed: {type(error).__name__}: {error}")
            self._counts = None
            self._drop_client()  # Nobody knows what is still on its connections.
            return {}
        before, self._counts = self._counts, now
        said += dict.fromkeys(now.unanswered)
        return now.values | (cluster_counts.rates(before, now) if before is not None else {})

    def _look_at_ports(self, clock_s: float, said: list[str]) -> dict[Key, float]:
        if not self.urls:
            return {}
        from oncelog.console.metrics import broker_ports

        values: dict[Key, float] = {}
        readings = {}
        for broker, found in broker_ports.read_all(self.urls, clock_s).items():
            if isinstance(found, str):
                said.append(f"metrics of {broker}: {found}")
                continue
            readings[broker] = found
            values |= broker_ports.values_of(broker, self._readings.get(broker), found)
        self._readings = readings
        return values

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
