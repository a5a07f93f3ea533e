"""Pauses of acknowledgements: a librdkafka producer writes one record after the other while something is done.

Rules: a record every few milliseconds to one partition, acks=all, retries and reconnects after 20 ms. The pause is the
longest time without an acknowledgement that ends after the deed began; it counts from the deed where nothing was
acknowledged since. So the client's own discovery of the new leader is in it, on both sides alike.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

from tests.load import Load

from bench.peers import Served
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.blocking.producer import Producer
from oncelog.client.errors import ConnectionLost, NoBrokerReachable, RequestTimedOut

_EVERY_S: Final = 0.002
_AFTER_S: Final = 1.0
"""A pause is over when acknowledgements have come for so long."""
_OWN_AFTER_S: Final = 3.0
"""Long enough for the pauses of both our clients: one may have had an answer just after the deed."""
_LONGEST_S: Final = 60.0
IMPATIENT: Final = {
    "enable.idempotence": False,
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


_ASKING: Final = {"request.timeout.ms": "250", "retry.backoff.ms": "20", "retry.backoff.max.ms": "20"}
_ASK_AGAIN_S: Final = 0.02


def pause_s(cluster: Served, topic: str, deed: Callable[[], None]) -> float:
    """The longest pause of acknowledgements that ``deed`` makes, in seconds."""
    load = Load(cluster.bootstrap_servers, topic, "writer", 1, pause_s=_EVERY_S, settings=IMPATIENT)
    load.start()
    try:
        _wait(lambda: load.count > 100)
        began = time.monotonic()
        deed()
        _wait(lambda: _flows(load, began))
        time.sleep(_AFTER_S)
    finally:
        load.stop()
    if load.failed:
        raise RuntimeError(f"a record was given up: {load.failed[0]}")
    return _longest_pause_s([record.at_s for record in load.acknowledged[0]], began)


def own_pauses_s(cluster: Served, topic: str, deed: Callable[[], None]) -> tuple[float, float]:
    """The longest pauses, in seconds, of our own producer's acknowledgements and of our own consumer, both with their
    default settings."""
    ends = threading.Event()
    partition = TopicPartition(TopicName(topic), 0)
    acknowledged_s: list[float] = []
    read_s: list[float] = []

    def write() -> None:
        with Client(cluster.bootstrap_servers) as client, Producer(client) as producer:
            while not ends.wait(_EVERY_S):
                producer.send(topic, b"x", partition=0)
                producer.flush()
                acknowledged_s.append(time.monotonic())

    def read() -> None:
        with Client(cluster.bootstrap_servers) as client:
            for fetched in client.fetch({partition: 0}):
                if fetched.records:
                    read_s.append(time.monotonic())
                if ends.is_set():
                    return

    with ThreadPoolExecutor(2) as pool:
        work = [pool.submit(write), pool.submit(read)]
        try:
            _wait(lambda: len(acknowledged_s) > 100 and len(read_s) > 100)
            began = time.monotonic()
            deed()
            _wait(lambda: min(acknowledged_s[-1], read_s[-1]) > began and time.monotonic() - began > _OWN_AFTER_S)
        finally:
            ends.set()
        for done in work:
            done.result()
    return _longest_pause_s(acknowledged_s, began), _longest_pause_s(read_s, began)


def _longest_pause_s(times_s: Sequence[float], since_s: float) -> float:
    times = [since_s, *(at_s for at_s in times_s if at_s >= since_s)]
    return max(later - earlier for earlier, later in pairwise(times))


def led_by_another_at_s(cluster: Served, topic: str, broker_id: int) -> float:
    """Wait until metadata names another leader than ``broker_id``, asking every 20 ms. Returns the monotonic time."""
    deadline = time.monotonic() + _LONGEST_S
    with Client(cluster.bootstrap_servers, config=_ASKING) as client:
        while time.monotonic() < deadline:
            with contextlib.suppress(ConnectionLost, NoBrokerReachable, RequestTimedOut):
                if client.metadata([topic])[TopicName(topic)].partitions[0].leader not in (-1, broker_id):
                    return time.monotonic()
            time.sleep(_ASK_AGAIN_S)
    raise RuntimeError(f"broker {broker_id} still leads {topic}")


def _flows(load: Load, since_s: float) -> bool:
    """True if acknowledgements have come since, for a while."""
    return load.acknowledged[0][-1].at_s > since_s and time.monotonic() - since_s > _AFTER_S


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("acknowledgements do not come")
        time.sleep(0.005)
