"""After the faults: every injected hang is found, nothing live is, and administrators set every partition free.

When all who write have ended and no coordinator has anything left to end, each open transaction must be called what it
is (A1, A2), and as old as its first record (A7). Where the broker ends orphans itself it has had the time (A3), and did
not take it too early (A6). Then ``abort --all-hanging``: nothing hangs any more, which the last stable offset has to
show (L3).
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

BROKERS_TIME_MS: Final = 45_000
"""First look, time-out, grace and some passes: by then a broker that ends orphans has ended what it knows to be one."""
ATTEMPTS: Final = 10
_AT_REST: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class FinalVerdict:
    """The last program of the world of hangs, which judges and ends what is left open."""

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
        """Wait until what was left open is over by its time-out."""
        async with host.client() as client:
            while any(
                transaction.state not in _AT_REST and not transaction.two_phase
                for transaction in await transactions_of(client)
            ):
                await host.sleep(1_000)

    def judge_and_end(self, client: Client) -> None:
        """Look, say what is wrong with what was said, and end what hangs."""
        found = self.look(client)
        alone = self.truth.orphan_action == "abort"
        self.violated(
            verdicts_at_rest(found.transactions, self.truth.injected, now_ms=found.now_ms, broker_ends_orphans=alone)
        )
        for one in found.of(Verdict.HANGING):
            error = abort(client, one, min_age_ms=0).error
            if error is not None:
                raise ClientError(error)  # and once more from the start
        left = self.look(client).of(Verdict.HANGING)
        if left:
            raise ClientError(f"{left[0].where} hangs still")

    def look(self, client: Client) -> Scan:
        for attempt in range(ATTEMPTS):
            found = scan(client, min_age_ms=0)
            if not found.unanswered:
                return found
            client.pause(attempt)
        raise ClientError(str(found.unanswered[0]))

    def violated(self, wrong: Iterable[str]) -> None:
        for what in wrong:
            self.context.violated(what)
