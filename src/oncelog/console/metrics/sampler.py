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
from oncelog.console.cluster.rates import Rate, Rates
from oncelog.console.metrics.history import History, Key

if TYPE_CHECKING:
    from oncelog.console.cluster.topic_figures import TopicFigures
    from oncelog.console.metrics.broker_ports import Reading
    from oncelog.console.metrics.cluster_counts import ClusterCounts

KEPT_S: Final = 3600
SHARE: Final = 20  # A sample takes at most one part in SHARE of the time; the pause takes the rest.
MAX_PROBLEMS: Final = 20
GROUPS_BYTES: Final = 12 * MIB  # The lags of 2,000 groups with a sample every ten seconds; of fewer with more samples.
FIGURES_KEPT_S: Final = 600.0  # Figures of all topics are read for so long after a page needed them.
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
        self.topic_rates: Mapping[str, float] = {}  # Offsets a second of all topics, between the last two samples.
        self.window_s = 0.0
        self._figures: Mapping[str, TopicFigures] | None = None
        self._figures_at_s = self._figures_until_s = 0.0
        self.took_s = 0.0
        self.pause_s = every_s
        self._connect = connect
        self._client: Client | None = None
        self._counts: ClusterCounts | None = None
        self._readings: Mapping[str, Reading] = {}
        self._ended = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oncelog-console-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop sampling; a sample in progress gets a short time to end."""
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._drop_client()

    def _run(self) -> None:
        self._ended.wait(FIRST_AFTER_S)
        while not self._ended.is_set():
            self._wake.clear()
            self.sample()
            if not self._ended.is_set():
                self._wake.wait(self.pause_s)

    def rate_of(self, topic: str, observed: Rate) -> Rate:
        """A topic's rate between the last two samples if there are two; else the observed one."""
        rate = self.topic_rates.get(topic)
        return observed if rate is None else Rate(rate, observed.bytes_per_s, self.window_s)

    def figures(self) -> tuple[Mapping[str, TopicFigures] | None, float]:
        """The figures of all topics at the last sample, and their age in seconds. They are read from the first call on,
        while there are calls; until then None."""
        is_first = self._figures_until_s < time.monotonic()
        self._figures_until_s = time.monotonic() + FIGURES_KEPT_S
        if is_first:
            self._wake.set()
        return self._figures, time.monotonic() - self._figures_at_s

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
            self._figures = self._read_figures(self._client)
        except ClientError as error:
            problems.append(str(error))
            self._forget()
            return {}
        except Exception as error:  # noqa: BLE001  # The thread continues whatever one sample meets.
            problems.append(f"the sample failed: {type(error).__name__}: {error}")
            self._forget()  # Its connections may hold unread answers.
            return {}
        before, self._counts = self._counts, now
        problems += dict.fromkeys(now.unanswered)
        if before is None:
            return now.values
        self.topic_rates, self.window_s = cluster_counts.topic_rates(before, now), now.at_s - before.at_s
        return now.values | cluster_counts.rates(self.topic_rates)

    def _read_figures(self, client: Client) -> Mapping[str, TopicFigures] | None:
        from oncelog.console.cluster.topic_figures import read_all_figures

        if time.monotonic() > self._figures_until_s:
            return None
        self._figures_at_s = time.monotonic()
        return read_all_figures(client, Rates())

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

    def _forget(self) -> None:
        self._counts, self.topic_rates = None, {}
        self._drop_client()

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
