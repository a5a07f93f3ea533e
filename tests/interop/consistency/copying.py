"""Transactional copy under fire: copiers and the broker are killed at random moments, then the history is checked.

A reader follows the copy at read_committed all the while; at the end everything is drained, and what was read, drained
and committed has to agree: every record of the source copied once, whole transactions, no aborted ones. Copiers have a
source partition each, or they subscribe to it as one group, whose generation fences who was thrown out of it (KIP-447).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from oncelog.sim.checkers.anomalies import check
from oncelog.sim.checkers.history import History
from tests.interop.consistency.copier import Order
from tests.interop.consistency.copying_client import COPY_PARTITIONS, SESSION_TIMEOUT_MS
from tests.interop.consistency.processes import Copiers, of_copy
from tests.interop.consistency.reading import Reader, committed_offsets, drain, fill
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import HANG_S

FAULTS: Final = ("broker", "client", "frozen", "replaced")
"""Killed: the broker, a copier. Frozen: a copier, which goes on later; with a second instance started meanwhile, or
without."""
_QUICK_BROKER: Final = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@dataclass(frozen=True)
class Plan:
    """How much, and how rough."""

    seed: int
    events: int
    client: str = "confluent"
    groups: bool = False
    """Copiers subscribe; else each has a source partition."""
    sources: int = 2
    """Partitions of the source."""
    pause_s: tuple[float, float] = (0.1, 0.6)
    """Between two faults."""
    frozen_s: tuple[float, float] = (0.5 * SESSION_TIMEOUT_MS / 1000, 3 * SESSION_TIMEOUT_MS / 1000)
    faults: Mapping[str, float] = field(default_factory=lambda: {"broker": 4, "client": 4, "frozen": 1, "replaced": 1})
    """Fault → how often, in proportion to the others."""
    transaction_timeout_ms: int = 3_000
    stall_share: float = 0.001
    """How often a copier sleeps for too long: before it begins, its offsets, its end."""
    stall_s: float | None = None
    """None: half as long again as a transaction may take."""
    most_faults: int | None = None
    """How many there are at most: on a slow machine a copy takes long, and has to come to its end all the same."""
    stuck_s: float = HANG_S
    """How long nothing may be copied until the run is given up; with a fault planted, until it is looked at."""
    pending_s: float = HANG_S
    """How long the group's offsets may be pending in the end until they count as pending for ever."""
    properties: Mapping[str, str] = field(default_factory=dict)
    broker_command: Sequence[str] | None = None
    """A broker with a fault planted in it: it may die by itself, and need not come to an end."""

    @property
    def each(self) -> int:
        """Events in a source partition."""
        return self.events // self.sources

    def order(self, bootstrap: str, slot: int, instance: int, journal: Path) -> Order:
        """The orders of an instance."""
        return Order(
            client=self.client,
            bootstrap=bootstrap,
            slot=slot,
            instance=instance,
            journal=str(journal),
            seed=self.seed,
            assigned=not self.groups,
            sources=self.sources,
            count=self.each,
            transaction_timeout_ms=self.transaction_timeout_ms,
            stall_share=self.stall_share,
            stall_s=1.5 * self.transaction_timeout_ms / 1000 if self.stall_s is None else self.stall_s,
        )


class Host(Protocol):
    """The part that runs the brokers."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that clients are given."""

    def strike(self) -> None:
        """The fault "broker"."""

    def look(self) -> int:
        """Start those again that have ended by themselves; their number. Raises RuntimeError where none should."""


class OneBroker:
    """A broker that is killed and started again."""

    def __init__(self, broker: OncelogServe, *, may_die: bool) -> None:
        self._broker = broker
        self._may_die = may_die

    @property
    def bootstrap_servers(self) -> str:
        """See ``Host``."""
        return self._broker.bootstrap_servers

    def strike(self) -> None:
        """See ``Host``."""
        self._broker.kill()
        self._broker.start()

    def look(self) -> int:
        """See ``Host``."""
        if self._broker.is_running:
            return 0
        if not self._may_die:
            raise RuntimeError(f"the broker ended by itself:\n{self._broker.process.log_tail()}")
        self.strike()  # lets go of its log, and starts it
        return 1


@dataclass
class Outcomes:
    """The findings of a run."""

    anomalies: dict[str, list[str]]
    faults: Counter[str]
    history: History
    elapsed_s: float
    instances: int
    failures: list[str]

    def summary(self) -> str:
        """One line."""
        ends = Counter(transaction.outcome.value for transaction in self.history.transactions)
        polled = sum(len(poll.records) for poll in self.history.polls)
        faults = f"faults {dict(self.faults)}, {self.instances} instances"
        return f"{faults}, transactions {dict(ends)}, {polled} records read meanwhile, {self.elapsed_s:.1f} s"


def run(plan: Plan, directory: Path) -> Outcomes:
    """The whole of it with one broker, in an empty directory."""
    properties = {**_QUICK_BROKER, **plan.properties}
    broker = OncelogServe(directory / "broker", properties=properties, command=plan.broker_command, forked=True)
    with broker:
        fill(broker.bootstrap_servers, plan.sources, plan.each)
        return copy(plan, OneBroker(broker, may_die=plan.broker_command is not None), directory)


def copy(plan: Plan, host: Host, directory: Path) -> Outcomes:
    """Copy a source that was filled, under fire, and look at what came of it."""
    started = time.monotonic()
    bootstrap = host.bootstrap_servers
    reader = Reader(bootstrap)
    copiers = Copiers(plan.sources, lambda *told: plan.order(bootstrap, *told), directory)
    reader.start()
    try:
        copiers.start()
        faults = _harass(plan, host, copiers, reader)
        copiers.stop()  # who was frozen and replaced says nothing after the end
        drained = {of_copy(index): list(drain(bootstrap, index)) for index in range(COPY_PARTITIONS)}
        committed = committed_offsets(bootstrap, plan.sources, plan.pending_s)
    finally:
        copiers.stop()
        reader.stop()
    faults["stalled"] = copiers.notes("stalled")
    history = History(list(copiers.transactions()), (), reader.polls, drained, committed_offsets=committed)
    anomalies = check(history) | _uneven_copies(history, plan)
    if committed is None:
        anomalies["offsets pending at the end"] = ["a transaction that has offsets never ends"]
    return Outcomes(anomalies, faults, history, time.monotonic() - started, copiers.instances, copiers.failures)


def _harass(plan: Plan, host: Host, copiers: Copiers, reader: Reader) -> Counter[str]:
    """Do harm until all is copied or there was enough of it. Never twice without progress, or nothing would be proved,
    and nothing copied."""
    done: Counter[str] = Counter()
    chance = random.Random(plan.seed)
    deadline = time.monotonic() + plan.stuck_s
    due, seen, before = time.monotonic(), 0, 0
    while copiers.look() and not reader.saw_twice:
        if len(reader.polls) > before:
            before, deadline = len(reader.polls), time.monotonic() + plan.stuck_s
        if time.monotonic() > deadline:
            if plan.broker_command is not None:
                copiers.stop()
                time.sleep(plan.transaction_timeout_ms / 1000 + 1)  # what they left open is aborted
                break
            raise TimeoutError(f"nothing copied for {plan.stuck_s} s, {dict(done)} faults")
        time.sleep(0.01)
        died = host.look()
        if died:
            done["died"] += died
        enough = not plan.faults or (plan.most_faults is not None and done.total() >= plan.most_faults)
        if enough or time.monotonic() < due or len(reader.polls) == seen:
            continue
        (fault,) = chance.choices(list(plan.faults), list(plan.faults.values()))
        if fault == "broker":
            host.strike()
        elif fault == "client":
            copiers.kill(chance)
        else:
            copiers.freeze(chance, seconds=chance.uniform(*plan.frozen_s), replaced=fault == "replaced")
        done[fault] += 1
        seen = len(reader.polls)
        due = time.monotonic() + chance.uniform(*plan.pause_s)
    return done


def _uneven_copies(history: History, plan: Plan) -> dict[str, list[str]]:
    """Input set = output set: every record of the source is in the copy, once."""
    copies = Counter(seen.value.partition("/")[0] for records in history.drained.values() for seen in records)
    source = {f"{partition}:{number}" for partition in range(plan.sources) for number in range(plan.each)}
    result = {
        "not copied": sorted(source - copies.keys()),
        "copied twice": sorted(value for value, count in copies.items() if count > 1),
        "copied from nowhere": sorted(copies.keys() - source),
    }
    return {name: values for name, values in result.items() if values}
