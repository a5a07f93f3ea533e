"""One run: clients at work, faults by the plan, then healing, a bound for coming to rest, a drain, the checkers."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from oncelog.sim.checkers.anomalies import check
from oncelog.sim.checkers.history import History
from tests.interop.faults.host import Host
from tests.interop.faults.plan import FAULTS, Plan
from tests.interop.faults.workload import (
    PARTITIONS,
    PLAIN,
    QUICK,
    TRANSACTIONAL,
    Follower,
    IdempotentWriter,
    TransactionalWriter,
    Workload,
    all_partitions,
    drain,
)
from tests.waiting import HANG_S, wait_until

REST_S: Final = HANG_S
"""How long clients may take to come to rest once all is healed; the checker's bound for liveness."""


@dataclass
class Report:
    """The events and the findings of a run."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    anomalies: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """Clients that did not come to rest, and a broker that ended by itself."""
    steps: dict[str, int] = field(default_factory=dict)
    transactions: Counter[str] = field(default_factory=Counter)
    records: int = 0
    elapsed_s: float = 0.0

    @property
    def clean(self) -> bool:
        """True if nothing was found."""
        return not self.anomalies and not self.failures

    def row(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seed": self.seed,
            "clean": self.clean,
            "faults": dict(self.faults),
            "violations": sum(map(len, self.anomalies.values())),
            "anomalies": self.anomalies,
            "failures": self.failures,
            "steps": self.steps,
            "transactions": dict(self.transactions),
            "records": self.records,
            "elapsed_s": round(self.elapsed_s, 1),
        }


def run(
    plan: Plan,
    directory: Path,
    *,
    seconds: float = math.inf,
    most_faults: float = math.inf,
    tmpfs: bool = False,
    log: bool = False,
) -> Report:
    """The whole of it, in an empty directory: faults for so long, or so many."""
    report = Report(plan.seed)
    started_s = time.monotonic()
    with Host(directory, tmpfs=tmpfs) as host:
        admin = AdminClient({"bootstrap.servers": host.bootstrap_servers, **QUICK})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (TRANSACTIONAL, PLAIN)]
        for created in admin.create_topics(topics).values():
            created.result(HANG_S)
        workload = Workload(host.bootstrap_servers, plan.seed)
        for worker in workload.workers:
            worker.start()
        _harass(plan, host, report, started_s + seconds, most_faults, log=log)
        _await_progress(workload, report)
        for worker in workload.workers:
            worker.stop(REST_S)
            report.failures += worker.failures
        report.failures += host.broken
        history = _history(workload, host, report)
    report.anomalies = check(history)
    report.steps = {worker.name: worker.steps for worker in workload.workers}
    report.transactions = Counter(transaction.outcome.value for transaction in history.transactions)
    report.elapsed_s = time.monotonic() - started_s
    return report


def _harass(plan: Plan, host: Host, report: Report, until_s: float, most_faults: float, *, log: bool) -> None:
    for name, seconds, quiet_s, chance in plan.steps():
        if log:
            print(f"{name} for {seconds:.1f} s", flush=True)
        FAULTS[name](host, chance, seconds)
        report.faults[name] += 1
        host.look()
        time.sleep(quiet_s)
        if time.monotonic() > until_s or report.faults.total() >= most_faults:
            break
    host.proxy.change()


def _await_progress(workload: Workload, report: Report) -> None:
    """Return when every client has come on once more after all is healed, or has failed."""
    before = {worker.name: worker.steps for worker in workload.workers}
    try:
        wait_until(
            lambda: all(worker.steps > before[worker.name] or worker.failures for worker in workload.workers),
            lambda: f"a step of every client: {before} before, and now {[w.steps for w in workload.workers]}",
        )
    except AssertionError as failure:
        report.failures.append(str(failure))


def _history(workload: Workload, host: Host, report: Report) -> History:
    drained = {}
    for partition in all_partitions():
        try:
            drained[partition] = drain(host.bootstrap_servers, partition, REST_S)
        except TimeoutError as late:
            report.failures.append(str(late))
    report.records = sum(map(len, drained.values()))
    workers = workload.workers
    return History(
        transactions=[
            item for worker in workers if isinstance(worker, TransactionalWriter) for item in worker.history()
        ],
        streams=[worker.history() for worker in workers if isinstance(worker, IdempotentWriter)],
        polls=[poll for worker in workers if isinstance(worker, Follower) for poll in worker.polls],
        drained=drained,
    )
