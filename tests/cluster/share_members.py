"""Members of one share group at work in a drill, and the ledger that judges their deliveries and answers.

S1. An acknowledgement that ends a record (accept or reject) succeeds once.
S2. A record that has ended is not acquired again. A client may still hold it from before: what it returns counts only
    if the client's buffer was empty after the end.
S3. A delivery count is at least 1 and at most the group's limit.
S4. Each stored record ends, or its acknowledgement was sent without an answer, or it is a dead letter.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.peers.clients.share_member import Delivered, ShareFailure, ShareMember

_POLL_MS: Final = 200
_ON_THE_WAY_S: Final = 1.0
"""Longer than an answer takes from a broker to the client's buffer."""
_MOST: Final = 50
_WORK_S: Final = (0.0, 0.0, 0.02, 0.1)
_KINDS: Final = {"accept": 0.86, "release": 0.12, "reject": 0.02}
_ENDS: Final = ("accept", "reject")


class Place(NamedTuple):
    """A record of the topic."""

    partition: int
    offset: int


class End(NamedTuple):
    """How and when the acknowledgement of a record was answered."""

    kind: str
    member: str
    at_s: float
    deliveries: int


@dataclass
class Ledger:
    """What all members know together. Its methods may be called from any thread."""

    limit: int
    """Deliveries of a record, at most."""
    ended: dict[Place, End] = field(default_factory=dict)
    unanswered: set[Place] = field(default_factory=set)
    last_deliveries: set[Place] = field(default_factory=set)
    """Records whose delivery count has reached the limit: the broker archives them unless they are accepted."""
    deliveries: Counter[int] = field(default_factory=Counter)
    """Delivery count → how often it was seen."""
    late: int = 0
    """Deliveries of ended records out of clients' buffers."""
    refused: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def deliver(self, member: str, records: Iterable[Delivered], buffer_empty_s: float) -> None:
        """Judge what a poll returned; ``buffer_empty_s``: when the member's buffer was last known to be empty."""
        with self._lock:
            for record in records:
                place = Place(record.partition, record.offset)
                self.deliveries[record.deliveries] += 1
                if not 1 <= record.deliveries <= self.limit:
                    self.broken.append(f"S3: {place} is delivered to {member} for the time {record.deliveries}")
                if record.deliveries >= self.limit:
                    self.last_deliveries.add(place)
                end = self.ended.get(place)
                if end is None:
                    continue
                if end.at_s + _ON_THE_WAY_S < buffer_empty_s:
                    self.broken.append(f"S2: {record} is delivered to {member} after {end}")
                else:
                    self.late += 1

    def answer(self, member: str, kind: str, records: Iterable[Delivered], error: str | None) -> None:
        """Take the answer to an acknowledgement."""
        with self._lock:
            if error is not None:
                self.refused[error.partition(":")[0][:60]] += 1
            for record in records:
                place = Place(record.partition, record.offset)
                if error is not None:
                    self.unanswered.add(place)
                elif place in self.ended:
                    self.broken.append(f"S1: {kind} of {record} by {member} succeeds after {self.ended[place]}")
                else:
                    self.ended[place] = End(kind, member, time.monotonic(), record.deliveries)

    def lose_answers(self, records: Iterable[Delivered]) -> None:
        """An acknowledgement was or may have been sent, and its answer is not known."""
        with self._lock:
            self.unanswered.update(Place(record.partition, record.offset) for record in records)

    def open(self, stored: Iterable[Place]) -> list[Place]:
        """The records that have not ended by an answer."""
        with self._lock:
            return [place for place in stored if place not in self.ended]

    def lost(self, stored: Iterable[Place], dead_letters: set[Place]) -> Iterator[str]:
        """S4."""
        settled = self.unanswered | self.last_deliveries | dead_letters
        for place in self.open(stored):
            if place not in settled:
                yield f"S4: {place} is lost"


class Member(threading.Thread):
    """Polls, works, acknowledges and commits until stopped. It ends by itself when its process is killed."""

    def __init__(self, name: str, kind: str, bootstrap: str, group: str, topic: str, ledger: Ledger, seed: str) -> None:
        super().__init__(name=name, daemon=True)
        self.kind = kind
        self.client = ShareMember(kind, bootstrap, group, topic, most=_MOST)
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._buffer_empty_s = time.monotonic()
        self.was_killed = False
        self.taken = 0
        self.is_quiet = threading.Event()
        """Set while its polls return nothing."""

    def run(self) -> None:
        """See the class."""
        held: list[Delivered] = []
        try:
            while not self._stopping.is_set():
                held = self._poll()
                if held:
                    self._stopping.wait(self._chance.choice(_WORK_S))
                    self._acknowledge(held)
                held = []
            self.client.leave()
        except ShareFailure as failure:
            self._ledger.lose_answers(held)
            self._ledger.broken.append(f"{self.name}: {failure}")
        except RuntimeError as failure:
            self._ledger.lose_answers(held)
            if not self.was_killed:
                self._ledger.broken.append(f"{self.name}: {failure}")
        finally:
            self.client.kill()

    def _poll(self) -> list[Delivered]:
        began_s = time.monotonic()
        records = self.client.poll(_POLL_MS)
        self.taken += len(records)
        self._ledger.deliver(self.name, records, self._buffer_empty_s)
        if records:
            self.is_quiet.clear()
        else:
            self._buffer_empty_s = began_s
            self.is_quiet.set()
        return records

    def _acknowledge(self, records: list[Delivered]) -> None:
        chosen: dict[str, list[Delivered]] = {kind: [] for kind in _KINDS}
        for record in records:
            (kind,) = self._chance.choices(list(_KINDS), list(_KINDS.values()))
            chosen[kind].append(record)
            self.client.acknowledge(kind, record)
        try:
            results = self.client.commit()
        except ShareFailure as failure:
            results = {record.partition: f"commit: {failure}" for record in records}
        for kind in _ENDS:
            for record in chosen[kind]:
                error = results.get(record.partition, "no result")
                self._ledger.answer(self.name, kind, [record], error)

    def strike(self) -> None:
        """SIGKILL."""
        self.was_killed = True
        self.client.strike()

    def stop(self) -> None:
        """Leave after the poll that is under way."""
        self._stopping.set()
