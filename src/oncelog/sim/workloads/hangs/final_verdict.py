"""After the faults: all injected hangs are reported, no live transaction is, and administrators free every partition.

Once writers have stopped and coordinators have ended all they can, each open transaction must get the right verdict
(A1, A2) and age (A7). A broker that ends hanging transactions has had the time (A3), and was not too early (A6). After
``abort --all-hanging`` none is left, which the last stable offset shows (L3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from oncelog.admin.transactions import Scan, abort, scan
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.sim.blocking import with_client
from oncelog.sim.checkers.disk.admin_aborts import ends_of
from oncelog.sim.checkers.hanging_verdicts import ended_too_early, verdicts_at_rest
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.hangs.ground_truth import CountedContext, GroundTruth
from oncelog.sim.workloads.kit.final_state import transactions_of
from oncelog.sim.workloads.kit.workload import WorkloadContext

# Enough for the broker's first scan, the timeout, the grace period and some more scans.
BROKERS_TIME_MS: Final = 45_000
ATTEMPTS: Final = 10
_AT_REST: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class FinalVerdict:
    def __init__(self, context: WorkloadContext, counted: CountedContext, truth: GroundTruth) -> None:
        self.context = context
        self.counted = counted
        self.truth = truth

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping or self.counted.running:
            await host.sleep(500)
        await self.coordinators_at_rest(host)
        if self.truth.orphan_action == "abort":
            await host.sleep(BROKERS_TIME_MS)
        await with_client(host, self.judge_and_end)
        for broker in self.context.world.brokers:
            ends = ends_of(broker.audits)
            self.violated(ended_too_early(broker.broker_id, ends, self.truth.injected, self.truth.orphan_grace_ms))
        self.truth.judged = True

    async def coordinators_at_rest(self, host: ClientHost) -> None:
        async with host.client() as client:
            while any(
                transaction.state not in _AT_REST and not transaction.two_phase
                for transaction in await transactions_of(client)
            ):
                await host.sleep(1_000)

    def judge_and_end(self, client: Client) -> None:
        scan_result = self.scan(client)
        broker_ends_orphans = self.truth.orphan_action == "abort"
        self.violated(
            verdicts_at_rest(
                scan_result.transactions,
                self.truth.injected,
                now_ms=scan_result.now_ms,
                broker_ends_orphans=broker_ends_orphans,
            )
        )
        for transaction in scan_result.of(Verdict.HANGING):
            error = abort(client, transaction, min_age_ms=0).error
            if error is not None:
                raise ClientError(error)  # the program is restarted
        remaining = self.scan(client).of(Verdict.HANGING)
        if remaining:
            raise ClientError(f"{remaining[0].topic_partition} still hangs")

    def scan(self, client: Client) -> Scan:
        for attempt in range(ATTEMPTS):
            result = scan(client, min_age_ms=0)
            if not result.unanswered:
                return result
            client.pause(attempt)
        raise ClientError(str(result.unanswered[0]))

    def violated(self, violations: Iterable[str]) -> None:
        for violation in violations:
            self.context.report_violation(violation)
