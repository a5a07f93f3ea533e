"""Pauses of acknowledgements: a librdkafka producer writes one record after the other while something is done.

Rules: a record every few milliseconds to one partition, acks=all, retries and reconnects after 20 ms. The pause is the
longest time without an acknowledgement that ends after the deed began; it counts from the deed where nothing was
acknowledged since. So the client's own discovery of the new leader is in it, on both sides alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Producer

from bench.peers import Served

_EVERY_S: Final = 0.002
_AFTER_S: Final = 1.0
"""A pause is over when acknowledgements have come for so long."""
_LONGEST_S: Final = 60.0
IMPATIENT: Final = {
    "acks": "all",
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "socket.timeout.ms": 250,
    "request.timeout.ms": 250,
    "message.timeout.ms": 120_000,
    "log_level": 0,
}
"""Settings of a producer that looks for the new leader every 20 ms, and gives a request up after a quarter of a second:
one that a frozen broker has would else be waited for a minute, whoever leads by then."""


class _Writer:
    """One thread that produces, and the times of its acknowledgements."""

    def __init__(self, cluster: Served, topic: str) -> None:
        self.acknowledged: list[float] = []
        self.failed: list[Any] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **IMPATIENT})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        payload = b"x" * 100
        while not self._ends.is_set():
            self._producer.produce(self._topic, payload, partition=0, on_delivery=self._told)
            self._producer.poll(_EVERY_S)
        self._producer.flush(_LONGEST_S)

    def _told(self, error: Any, _message: object) -> None:
        if error is None:
            self.acknowledged.append(time.perf_counter())
        else:
            self.failed.append(error)

    def flows(self, since_s: float) -> bool:
        """True if acknowledgements have come since, for a while."""
        last = self.acknowledged[-1] if self.acknowledged else 0.0
        return last > since_s and time.perf_counter() - since_s > _AFTER_S


def pause_s(cluster: Served, topic: str, deed: Callable[[], None]) -> float:
    """The longest pause of acknowledgements that ``deed`` makes, in seconds."""
    with _Writer(cluster, topic) as writer:
        _wait(lambda: len(writer.acknowledged) > 100)
        began = time.perf_counter()
        deed()
        _wait(lambda: writer.flows(began))
        time.sleep(_AFTER_S)
    if writer.failed:
        raise RuntimeError(f"a record was given up: {writer.failed[0]}")
    times = [began, *(each for each in writer.acknowledged if each >= began)]
    return max(later - earlier for earlier, later in pairwise(times))


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + _LONGEST_S
    while not holds():
        if time.perf_counter() > deadline:
            raise RuntimeError("acknowledgements do not come")
        time.sleep(0.005)
