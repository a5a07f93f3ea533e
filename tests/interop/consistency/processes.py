"""The copiers as processes, what is done to them, and what their journals say."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.sim.checkers.history import GroupPartition, RecordedOutcome, Transaction, Write
from tests.interop.consistency.copier import START_AGAIN, Order
from tests.interop.consistency.copying_client import COPY, GROUP, SOURCE
from tests.peers.forked import ForkedProcess


@dataclass
class _Frozen:
    child: ForkedProcess
    seconds: float
    successor: Path | None
    """A frozen process, whose journal has to show a transaction before the time runs."""
    until: float | None = None

    def is_over(self) -> bool:
        """True if it may go on."""
        now = time.monotonic()
        if self.until is None and (
            self.successor is None or (self.successor.exists() and self.successor.stat().st_size)
        ):
            self.until = now + self.seconds
        return self.until is not None and self.until <= now


def _has_begun(journal: Path) -> bool:
    return journal.exists() and journal.stat().st_size > 0


class Copiers:
    """One process a slot, started again until everything is copied."""

    def __init__(self, slots: int, order: Callable[[int, int, Path], Order], directory: Path) -> None:
        self._order = order
        self._directory = directory
        self._log = directory / "copiers.log"
        self._slots = slots
        self._instances: Counter[int] = Counter()
        self._children: dict[int, ForkedProcess] = {}
        self._frozen: list[_Frozen] = []
        self._replaced: list[ForkedProcess] = []
        self.failures: list[str] = []

    def start(self) -> None:
        """Start all processes."""
        for slot in range(self._slots):
            self._start(slot)

    def _start(self, slot: int) -> None:
        self._instances[slot] += 1
        order = self._order(slot, self._instances[slot], self._journal(slot))
        self._children[slot] = ForkedProcess(order.command(), self._log)

    def _journal(self, slot: int) -> Path:
        return self._directory / f"copier-{slot}-{self._instances[slot]:04}.jsonl"

    def kill(self, chance: random.Random) -> None:
        """SIGKILL one and start it again."""
        slot = chance.choice(sorted(self._children))
        _end(self._children[slot])
        self._start(slot)

    def freeze(self, chance: random.Random, *, seconds: float, replaced: bool) -> None:
        """Stop one for a while: the group, its transaction's time-out or its own successor takes its place."""
        slot = chance.choice(sorted(self._children))
        child = self._children[slot]
        if any(frozen.child is child for frozen in self._frozen):
            return
        child.send_signal(signal.SIGSTOP)
        if replaced:
            self._replaced.append(child)
            self._start(slot)
        self._frozen.append(_Frozen(child, seconds, self._journal(slot) if replaced else None))

    def look(self) -> bool:
        """Wake who has been frozen long enough, start again who gave up; whether anybody is still copying."""
        for frozen in [item for item in self._frozen if item.is_over()]:
            self._frozen.remove(frozen)
            if frozen.child.poll() is None:
                frozen.child.send_signal(signal.SIGCONT)
        for slot, child in list(self._children.items()):
            code = child.poll()
            if code == START_AGAIN:
                self._start(slot)
            elif code is not None:
                del self._children[slot]
                if code:
                    text = self._log.read_text(errors="replace")[-2000:]
                    self.failures.append(f"copier {slot} ended with {code}: {text}")
        return bool(self._children)

    def stop(self) -> None:
        """End who is left."""
        for child in [*self._children.values(), *self._replaced]:
            _end(child)

    @property
    def instances(self) -> int:
        """How many were started."""
        return self._instances.total()

    def transactions(self) -> Iterator[Transaction]:
        """The transactions in the journals."""
        for path in sorted(self._directory.glob("copier-*.jsonl")):
            yield from read_journal(path)

    def notes(self, key: str) -> int:
        """How many lines of the journals have a key."""
        lines = (line for path in self._directory.glob("copier-*.jsonl") for line in path.read_bytes().splitlines())
        return sum(key in json.loads(line) for line in lines)


def _end(child: ForkedProcess) -> None:
    child.kill()
    child.wait()


def of_copy(partition: int) -> TopicPartition:
    """The places at which records were written."""
    return TopicPartition(TopicName(COPY), partition)


def of_group(partition: int) -> GroupPartition:
    """Of what the copiers commit an offset."""
    return GroupPartition(GROUP, TopicPartition(TopicName(SOURCE), partition))


def read_journal(path: Path) -> Sequence[Transaction]:
    """The transactions of one instance, in order."""
    results: dict[str, Transaction] = {}
    offsets: dict[str, int] = {}
    for line in path.read_bytes().splitlines():
        entry: dict[str, Any] = json.loads(line)
        if "begin" in entry:
            name = entry["begin"]
            writes = [Write(of_copy(index), value) for index, value in entry["writes"]]
            following = {of_group(index): offset for index, offset in entry["following"]}
            results[name] = Transaction(name, path.stem, writes, RecordedOutcome.ABORTED, None, following)
        elif "ending" in entry and entry["commit"]:
            results[entry["ending"]] = replace(
                results[entry["ending"]], outcome=RecordedOutcome.UNKNOWN, ending_at=entry["at"]
            )
        elif "ended" in entry:
            outcome = RecordedOutcome.COMMITTED if entry["commit"] else RecordedOutcome.ABORTED
            results[entry["ended"]] = replace(results[entry["ended"]], outcome=outcome)
        elif "wrote" in entry:
            offsets[entry["wrote"]] = entry["offset"]
    return [
        replace(result, writes=[write._replace(offset=offsets.get(write.value)) for write in result.writes])
        for result in results.values()
    ]
