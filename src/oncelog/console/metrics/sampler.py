"""The sampler: a thread that periodically samples the cluster and the brokers' metrics ports.

It has its own client, so that no page waits for it. After a slow sample it pauses longer: sampling takes at most a
twentieth of the time. A failed sample leaves a gap and a reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.units import MIB
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.metrics.history import History, Key

if TYPE_CHECKING:
    from oncelog.console.metrics.broker_ports import Reading
    from oncelog.console.metrics.cluster_counts import ClusterCounts

KEPT_S: Final = 3600
SHARE: Final = 20  # A sample takes at most one part in SHARE of the time; the pause takes the rest.
MAX_PROBLEMS: Final = 20
GROUPS_BYTES: Final = 12 * MIB  # The lags of 2,000 groups with a sample every ten seconds; of fewer with more samples.
FIRST_AFTER_S: Final = 1.0  # The first page is served before the first sample, which covers every partition.
_PATIENCE_S: Final = 0.5


class Sampler:
    """Fills two histories, ``groups`` with lags. ``problems`` has the reasons for what the last sample lacks."""

    def __init__(self, connect: Callable[[], Client], urls: Sequence[str], every_s: float) -> None:
        self.every_s = every_s
        self.urls = tuple(urls)
        self.history = History(max(2, int(KEPT_S / every_s)))
        self.groups = History(self.history.capacity, GROUPS_BYTES // (8 * self.history.capacity))
        self.problems: list[str] = []
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
        """Stop sampling; a sample in progress gets a short time to end."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._drop_client()

    def _run(self) -> None:
        self._ended.wait(FIRST_AFTER_S)
        while not self._ended.is_set():
            self.sample()
            self._ended.wait(self.pause_s)

    def sample(self) -> None:
        began = time.monotonic()
        problems: list[str] = []
        values = {**self._sample_ports(began, problems), **self._sample_cluster(began, problems)}
        now_ms = int(time.time() * 1000)
        self.history.add(now_ms, values)
        self.groups.add(now_ms, {} if self._counts is None else self._counts.groups)
        self.problems = problems[:MAX_PROBLEMS]
        self.took_s = time.monotonic() - began
        self.pause_s = max(self.every_s - self.took_s, self.took_s * (SHARE - 1))

    def _sample_cluster(self, clock_s: float, problems: list[str]) -> dict[Key, float]:
        # Imported late: with its dependencies it is half of the console.
        from oncelog.console.metrics import cluster_counts

        try:
            if self._client is None:
                self._client = self._connect()
            now = cluster_counts.sample(self._client, clock_s)
        except ClientError as error:
            problems.append(str(error))
            self._counts = None
            self._drop_client()
            return {}
        except Exception as error:  # noqa: BLE001  # The thread continues whatever one sample meets.
            problems.append(f"the sample failed: {type(error).__name__}: {error}")
            self._counts = None
            self._drop_client()  # Its connections may hold unread answers.
            return {}
        before, self._counts = self._counts, now
        problems += dict.fromkeys(now.unanswered)
        return now.values | (cluster_counts.rates(before, now) if before is not None else {})

    def _sample_ports(self, clock_s: float, problems: list[str]) -> dict[Key, float]:
        if not self.urls:
            return {}
        from oncelog.console.metrics import broker_ports

        values: dict[Key, float] = {}
        readings = {}
        for broker, reading in broker_ports.read_all(self.urls, clock_s).items():
            if isinstance(reading, str):
                problems.append(f"metrics of {broker}: {reading}")
                continue
            readings[broker] = reading
            values |= broker_ports.values_of(broker, self._readings.get(broker), reading)
        self._readings = readings
        return values

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
