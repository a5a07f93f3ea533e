"""Transactional copies of numbered records, each by another client, that say where in a transaction they are.

A copier owns one partition of the source and the same one of the copy. At each point of a transaction it lets the drill
strike (`tests.cluster.cuts`), and goes on as its client says: abort, or take over as another instance.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from confluent_kafka import Producer

from tests.cluster.committed import Servers
from tests.interop.consistency.copier import CLIENTS
from tests.interop.consistency.copying_client import SOURCE, Abortable, CopyingClient, GiveUp, Role
from tests.load import QUICK
from tests.waiting import HANG_S

POINTS: Final = ("begun", "written", "offsets-sent", "ending", "ended")
"""Before anything is sent; when AddPartitionsToTxn and Produce are answered; when TxnOffsetCommit is; while EndTxn is
under way; when it is answered, and its markers may not be written."""
_MOST: Final = 20
_TIMEOUT_MS: Final = 60_000

AtPoint = Callable[["Copier", str], None]


class Copier(threading.Thread):
    """Copies its partition until it is told to stop, and the transaction under way is over."""

    def __init__(self, servers: Servers, client: str, partition: int, count: int, seed: int, at: AtPoint) -> None:
        super().__init__(name=client, daemon=True)
        self.client = client
        self.partition = partition
        self.transactional_id = f"cut-{client}"
        self.copied = 0
        """Offsets committed, as far as was answered."""
        self.instances = 0
        self.aborted: Counter[str] = Counter()
        self.gave_up: Counter[str] = Counter()
        """The reasons for which another instance took over."""
        """Why, and how often."""
        self.broken: list[str] = []
        self._servers = servers
        self._count = count
        self._at = at
        self._chance = random.Random(f"{seed}/{client}")
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Stop after the transaction under way."""
        self._stopping.set()

    def run(self) -> None:
        """See the class."""
        try:
            while not self._stopping.is_set():
                self._instance()
        except Exception as failure:  # noqa: BLE001  # whatever it is, the drill has failed by it
            self.broken.append(f"{self.client}: {failure!r}")

    def _instance(self) -> None:
        self.instances += 1
        role = Role(
            self._servers.bootstrap,
            self.transactional_id,
            self.partition,
            self.partition + 1,
            _TIMEOUT_MS,
            self._servers.security,
        )
        module, name = CLIENTS[self.client]
        client: CopyingClient | None = None
        try:
            client = getattr(importlib.import_module(f"tests.interop.consistency.{module}"), name)(
                role, lambda _value, _offset: None
            )
            assert client is not None
            client.start()
            self._copy(client)
        except (GiveUp, Abortable) as failure:
            self.gave_up[str(failure)] += 1
            time.sleep(0.05)
        finally:
            if client is not None:
                _close(client)

    def _copy(self, client: CopyingClient) -> None:
        while not self._stopping.is_set():
            taken = client.take(self._chance.randint(1, _MOST))
            if not taken:
                continue
            try:
                client.begin()
                self._at(self, "begun")
                for item in taken:
                    client.write(self.partition, item.value)
                client.flush()
                self._at(self, "written")
                following = taken[-1].offset + 1
                client.send_offsets({self.partition: following})
                self._at(self, "offsets-sent")
                self._at(self, "ending")
                client.commit()
                self.copied = following
                self._at(self, "ended")
            except Abortable as failure:
                self.aborted[str(failure)] += 1
                client.abort()
                client.rewind()


def _close(client: CopyingClient) -> None:
    with contextlib.suppress(Exception):  # a client that gave up may not even close
        client.close()


def fill(servers: Servers, partitions: int, item: int) -> None:
    """Number 0 to ``each`` in every partition of the source."""
    settings = {"enable.idempotence": True, "queue.buffering.max.messages": partitions * item}
    producer = Producer({"bootstrap.servers": servers.bootstrap, **settings, **servers.security, **QUICK})
    for number in range(item):
        for partition in range(partitions):
            producer.produce(SOURCE, str(number), partition=partition)
        producer.poll(0)
    if producer.flush(HANG_S):
        raise TimeoutError("the source could not be filled")
