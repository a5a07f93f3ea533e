"""One transactional copier as a process that may be killed: consumes, transforms, produces, with offsets inside.

It says what it does before it does it, line by line in its journal, which outlives a kill. Every value it writes names
the record it was made from and the attempt: ``partition:number/instance.attempt``. Now and then it aborts, or sleeps
until its transaction has timed out.

`python -m tests.interop.consistency.copier ORDER` runs one, ORDER being an :class:`Order` as JSON; exit code 0: all
copied, 3: fenced or failed, start me again.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.interop.consistency.copying_client import COPY_PARTITIONS, Abortable, CopyingClient, GiveUp, Role, Taken

START_AGAIN: Final = 3
CLIENTS: Final = {
    "confluent": ("with_confluent", "ConfluentCopier"),
    "aiokafka": ("with_aiokafka", "AiokafkaCopier"),
    "oncelog": ("with_oncelog", "OncelogCopier"),
    "oncelog-aio": ("with_oncelog_aio", "OncelogAioCopier"),
    "java": ("with_foreign", "JavaCopier"),
    "franz-go": ("with_foreign", "FranzGoCopier"),
}
"""Name → module and class; a process imports only its own."""
_LARGEST: Final = 100
_ABORT_SHARE: Final = 0.1
_IDLE_S: Final = 0.5


@dataclass(frozen=True)
class Order:
    """The orders of one instance."""

    client: str
    bootstrap: str
    slot: int
    instance: int
    journal: str
    seed: int
    assigned: bool
    """To the source partition of its slot; else it subscribes."""
    sources: int
    count: int
    """Records in a source partition."""
    transaction_timeout_ms: int
    stall_share: float
    stall_s: float

    def command(self) -> list[str]:
        """How to run it."""
        return [sys.executable, "-m", "tests.interop.consistency.copier", json.dumps(asdict(self))]


class Journal:
    """Lines of JSON, each written at once: a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, **entry: object) -> None:
        """Write one line, with the time."""
        os.write(self._file, json.dumps({"at": time.monotonic_ns(), **entry}).encode() + b"\n")

    def wrote(self, value: str, offset: int) -> None:
        """A record was acknowledged."""
        self.note(wrote=value, offset=offset)


class Copier:
    """One instance: from where the group stands to the end of the source."""

    def __init__(self, order: Order, client: CopyingClient, journal: Journal) -> None:
        self._order = order
        self._client = client
        self._journal = journal
        self._chance = random.Random(f"{order.seed}/{order.slot}/{order.instance}")
        self._attempt = 0
        self._to_copy = [order.slot] if order.assigned else range(order.sources)

    def run(self) -> None:
        """Copy until the group has committed all of it."""
        self._client.start()
        seen = time.monotonic()
        while True:
            taken = self._client.take(self._chance.randint(1, _LARGEST))
            if taken:
                self._copy(taken)
                seen = time.monotonic()
            elif time.monotonic() - seen > _IDLE_S:
                if self._is_done():
                    break
                seen = time.monotonic()
        self._client.close()

    def _is_done(self) -> bool:
        committed = self._client.committed()
        return all(committed.get(partition, 0) >= self._order.count for partition in self._to_copy)

    def _copy(self, taken: Sequence[Taken]) -> None:
        self._attempt += 1
        name = f"{self._order.slot}-{self._order.instance}.{self._attempt}"
        following = {record.partition: record.offset + 1 for record in taken}
        writes = [(self._chance.randrange(COPY_PARTITIONS), f"{item.value}/{name}") for item in taken]
        self._journal.note(begin=name, writes=writes, following=list(following.items()))
        try:
            self._transact(name, writes, following)
        except Abortable as failure:
            self._journal.note(abortable=str(failure))
            self._abort(name)

    def _transact(self, name: str, writes: Sequence[tuple[int, str]], following: dict[int, int]) -> None:
        self._stall()
        self._client.begin()
        for partition, value in writes:
            self._client.write(partition, value)
        self._stall()
        self._client.send_offsets(following)
        self._client.flush()  # the offsets of all records are in the journal before its end
        self._stall()
        if self._chance.random() < _ABORT_SHARE:
            self._abort(name)
            return
        self._journal.note(ending=name, commit=True)
        self._client.commit()
        self._journal.note(ended=name, commit=True)

    def _stall(self) -> None:
        """Now and then, for longer than is allowed."""
        if self._chance.random() < self._order.stall_share:
            self._journal.note(stalled=True)
            time.sleep(self._order.stall_s)

    def _abort(self, name: str) -> None:
        self._journal.note(ending=name, commit=False)
        try:
            self._client.abort()
        except Abortable as failure:
            raise GiveUp(str(failure)) from failure
        self._journal.note(ended=name, commit=False)
        self._client.rewind()


def main() -> int:
    """One instance."""
    order = Order(**json.loads(sys.argv[1]))
    module, name = CLIENTS[order.client]
    kind = getattr(importlib.import_module(f"tests.interop.consistency.{module}"), name)
    journal = Journal(Path(order.journal))
    partition = order.slot if order.assigned else None
    role = Role(order.bootstrap, f"copier-{order.slot}", partition, order.sources, order.transaction_timeout_ms)
    try:
        Copier(order, kind(role, journal.wrote), journal).run()
    except (Abortable, GiveUp) as failure:
        journal.note(failed=str(failure))
        os._exit(START_AGAIN)  # no destructor of a client may wait for what does not come
    return 0


if __name__ == "__main__":
    sys.exit(main())
