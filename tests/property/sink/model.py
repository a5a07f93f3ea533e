"""A cluster, a Spark and its processes as plain data: the commit protocol runs on them step by step, in any order.

A step is one operation of one process, carried out whole. Any process may be killed before or after any step of it,
drivers believed dead go on as zombies, tasks have twins that finish late. What may not happen is looked at after every
step.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.sink.two_phase import protocol
from oncelog.spark.sink.two_phase.errors import FencedDriver, NotOpen, Superseded
from oncelog.spark.sink.two_phase.operations import (
    CheckAborted,
    Claim,
    Describe,
    End,
    Ended,
    Fence,
    FindLedger,
    FindRemoved,
    Identity,
    ListOpen,
    Publish,
    Read,
    ReadLedger,
    Stage,
    Ticket,
    Write,
)
from oncelog.spark.sink.two_phase.protocol import TaskAction
from oncelog.spark.sink.two_phase.register import NEXT, Attempt, Listed, Register, RegisterState

QUERY = "q"


@dataclass
class Transaction:
    """A transactional id at its coordinator."""

    producer_id: int
    epoch: int = 0
    last_epoch: int = -1
    rows: list[str] | None = None
    claimed: bool = False
    """Given out and not used since."""
    committed: bool | None = None


@dataclass
class Append:
    """A produce request of a task."""

    stored: StoredTransaction
    row: str


@dataclass
class Model:
    """The cluster."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    visible: list[str] = field(default_factory=list)
    register: Register | None = None
    staged: tuple[int, Register] | None = None
    holder: int = -1
    """The process that fenced last."""
    decisions: dict[int, tuple[Listed, ...]] = field(default_factory=dict)
    aborted: list[Listed] = field(default_factory=list)
    """Of transactions that are not known any more."""
    tickets: dict[str, int] = field(default_factory=dict)
    writers: dict[StoredTransaction, int] = field(default_factory=dict)
    """Identity → the process that writes with it: no other ever does."""

    def answer(self, process: int, operation: Any) -> Any:
        match operation:
            case Fence():
                self.holder, self.staged = process, None
            case Read():
                return self.register
            case Write(register):
                return self._write(process, register)
            case Stage(register):
                if self.holder != process:
                    return False
                self.staged = (process, register)
                return True
            case Publish():
                if self.staged is None or self.staged[0] != process:
                    return False
                register, self.staged = self.staged[1], None
                return self._write(process, register)
            case Describe(names):
                return {name: self._found(name) for name in names if name in self.transactions}
            case ListOpen(prefix):
                return [
                    StoredTransaction(name, one.producer_id, one.epoch)
                    for name, one in self.transactions.items()
                    if name.startswith(prefix) and (one.rows is not None or one.claimed)
                ]
            case Ticket(name):
                self.tickets[name] = self.tickets.get(name, -1) + 1
                return self.tickets[name]
            case ReadLedger():
                return None
            case FindRemoved():
                return []
            case FindLedger():
                return False
            case CheckAborted(listed):
                return listed in self.aborted
            case Claim(name, found):
                return self._claim(name, found)
            case End(stored, commit):
                return self._end(stored, commit)
            case Append(stored, row):
                assert self.writers.setdefault(stored, process) == process, "an identity of two processes"
                return self._append(stored, row)
        return None

    def _found(self, name: str) -> Identity:
        transaction = self.transactions[name]
        return Identity(transaction.producer_id, transaction.epoch, transaction.rows is not None)

    def _write(self, process: int, register: Register) -> bool:
        if self.holder != process:
            return False
        before = self.register
        assert register.state in NEXT[before and before.state], f"{before} → {register}"
        assert before is None or register.epoch >= before.epoch, "R3"
        if register.state is RegisterState.DECIDED:
            assert register.epoch not in self.decisions, "R1"
            self.decisions[register.epoch] = register.listed
        self.register = register
        return True

    def _claim(self, name: str, identity: Identity | None) -> StoredTransaction | None:
        value = self.transactions.get(name)
        if value is None:
            value = self.transactions[name] = Transaction(len(self.transactions), claimed=True)
            return StoredTransaction(name, value.producer_id, value.epoch)
        if identity is None or identity.producer_id != value.producer_id:
            return None
        if identity.producer_epoch == value.epoch:
            self._over(value, False)
            value.last_epoch, value.claimed = identity.producer_epoch, True
        elif identity.producer_epoch != value.last_epoch or value.rows is not None:
            return None  # what equals the last is answered as its retry, as a coordinator does
        return StoredTransaction(name, value.producer_id, value.epoch)

    def _over(self, transaction: Transaction, commit: bool) -> None:
        if commit:
            self.visible += transaction.rows or ()
        transaction.rows, transaction.committed, transaction.last_epoch, transaction.claimed = None, commit, -1, False
        transaction.epoch += 1

    def _end(self, stored: StoredTransaction, commit: bool) -> Ended:
        value = self.transactions.get(stored.transactional_id)
        if value is None:
            return Ended.UNKNOWN
        if value.producer_id == stored.producer_id and value.epoch == stored.producer_epoch:
            if value.rows is None and commit:
                return Ended.OTHER
            self._over(value, commit)
            return Ended.DONE
        is_retry = value.rows is None and value.epoch == stored.producer_epoch + 1 and value.committed is commit
        return Ended.DONE if is_retry else Ended.OTHER

    def _append(self, stored: StoredTransaction, row: str) -> bool:
        transaction = self.transactions[stored.transactional_id]
        if (transaction.producer_id, transaction.epoch) != (stored.producer_id, stored.producer_epoch):
            return False
        transaction.rows = [*(transaction.rows or ()), row]
        transaction.last_epoch, transaction.claimed = -1, False
        return True


Process = Generator[Any, Any, Any]


@dataclass
class Message:
    """A task's."""

    listed: Listed | None
    rows: int = 0


class Fenced(Exception):
    """A task's produce was refused."""


def rows_of(epoch: int, partition: int) -> list[str]:
    """The input; some partitions are empty."""
    return [f"{epoch}/{partition}/{number}" for number in range((epoch + partition) % 3)]


def task(attempt: Attempt, partition: int) -> Process:
    rows = rows_of(attempt.epoch, partition)
    if not rows:
        return Message(None)
    while True:
        try:
            action = yield from protocol.begin(attempt)
            break
        except FencedDriver:
            continue
    if action is TaskAction.DRAIN:
        return Message(None, len(rows))
    stored = yield from protocol.claim(attempt, partition)
    if isinstance(stored, TaskAction):
        return Message(None, len(rows))
    for row in rows:
        if not (yield Append(stored, row)):
            raise Fenced
    if not (yield from protocol.confirm(attempt, stored)):
        return Message(None, len(rows))
    return Message(Listed(stored, len(rows)), len(rows))


class Spark:
    """A query: drivers, one believed alive at a time, and what is in its checkpoint."""

    def __init__(self, seed: int, *, epochs: int = 3) -> None:
        self.entropy = random.Random(seed)
        self.model = Model()
        self.epochs = epochs
        self.checkpoint = 0
        self.numbers = 0
        self.zombies: list[Running] = []
        self.haste = 0.1
        """Share of steps that a zombie takes instead of a live process: the smaller, the later it strikes."""

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def run(self) -> None:
        """Lives of drivers until the query is through; the last one undisturbed."""
        for _ in range(self.entropy.randint(0, 9)):
            self.haste = self.entropy.choice((0.02, 0.1, 0.3, 0.6))
            self.life(deadly=self.entropy.choice((0.03, 0.12, 0.3)))
        self.life(deadly=0)
        assert self.checkpoint == self.epochs
        for zombie in self.zombies:  # whatever they still do, nobody comes after them to sweep
            while zombie.alive:
                zombie.step(self.model)
                assert all(transaction.rows is None for transaction in self.model.transactions.values()), (
                    "opened behind the sweep"
                )

    def life(self, deadly: float) -> None:
        while self.checkpoint < self.epochs:
            if not self.epoch(deadly):
                return
            self.checkpoint += 1
            if deadly and self.entropy.random() < 0.1:
                return

    def epoch(self, deadly: float) -> bool:
        """One epoch by one driver; False when the driver died, after the commit or before."""
        attempt = Attempt(QUERY, self.checkpoint, f"run{self.number()}")
        before = self.expected(self.checkpoint)
        tasks: dict[int, list[Running]] = {}
        for partition in range(4):
            # Twins of speculation, and of stage attempts.
            count = 1 + (self.entropy.random() < 0.3) + (self.entropy.random() < 0.1)
            tasks[partition] = [Running(self.number(), task(attempt, partition)) for _ in range(count)]
        messages: dict[int, Message] = {}
        everything = [twin for twins in tasks.values() for twin in twins]
        while len(messages) < len(tasks):
            running = [broker for broker in everything if broker.alive]
            if deadly and self.entropy.random() < deadly / 8:
                self.leave([*running])
                return False
            step = self.step(running, deadly / 4)
            for partition, twins in tasks.items():
                if partition not in messages and step in twins and step.result is not None:
                    messages[partition] = step.result
                elif partition not in messages and not any(twin.alive for twin in twins):
                    self.fail(attempt, everything, deadly)
                    return self.retry(deadly)
        left = [broker for broker in everything if broker.alive]
        if self.entropy.random() < 0.5:
            self.zombies += left
        listed = [message.listed for message in messages.values() if message.listed is not None]
        driver = Running(
            self.number(), protocol.commit(attempt, listed, rows=sum(message.rows for message in messages.values()))
        )
        while driver.alive:
            self.step([driver], 0)
            if driver.alive and deadly and self.entropy.random() < deadly:
                self.leave([driver])
                return False
        if driver.error is not None:
            return self.retry(deadly)
        visible = sorted(self.model.visible)
        assert visible == sorted([*before, *self.expected_of(self.checkpoint)]), "rows of the epoch, each once"
        return not (deadly and self.entropy.random() < deadly)

    def retry(self, deadly: float) -> bool:
        """The query failed; whoever watches it starts it anew."""
        return False if deadly else self.epoch(deadly)

    def fail(self, attempt: Attempt, everything: list[Running], deadly: float) -> None:
        if self.entropy.random() < 0.5:
            self.leave([running for running in everything if running.alive])
        if self.entropy.random() < 0.5:
            abort = Running(self.number(), protocol.abort(attempt))
            while abort.alive:
                self.step([abort], 0)

    def leave(self, running: list[Running]) -> None:
        """Processes that nobody waits for: dead, or going on as zombies."""
        self.zombies += [item for item in running if self.entropy.random() < 0.8]

    def step(self, running: list[Running], deadly: float) -> Running:
        late = self.zombies and self.entropy.random() < self.haste
        choice = self.entropy.choice(self.zombies if late else running)
        choice.step(self.model, twice=self.entropy.random() < 0.05)
        if deadly and self.entropy.random() < deadly:
            choice.alive = False
        self.zombies = [zombie for zombie in self.zombies if zombie.alive]
        return choice

    def expected(self, epochs: int) -> list[str]:
        return [row for epoch in range(epochs) for row in self.expected_of(epoch)]

    def expected_of(self, epoch: int) -> list[str]:
        return [row for partition in range(4) for row in rows_of(epoch, partition)]


class Running:
    """A process: what it asks next is answered by ``step``."""

    def __init__(self, number: int, process: Process) -> None:
        self.number = number
        self.process = process
        self.alive = True
        self.result: Any = None
        self.error: Exception | None = None
        self.answer: Any = None

    def step(self, model: Model, *, twice: bool = False) -> None:
        try:
            operation = self.process.send(self.answer)
        except StopIteration as stop:
            self.alive, self.result = False, stop.value
        except (Superseded, FencedDriver, NotOpen, Fenced) as error:
            self.alive, self.error = False, error
        else:
            self.answer = model.answer(self.number, operation)
            if twice and isinstance(operation, End):
                self.answer = model.answer(self.number, operation)
