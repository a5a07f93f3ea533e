"""After the faults: everything planted is found, nothing excused is, and administrators set every partition free.

When all who write have ended and no coordinator has anything left to end, each open transaction must be called what it
is (A1, A2), and as old as its first record (A7). Where the broker ends orphans itself it has had the time (A3), and did
not take it too early (A6). Then ``abort --all-hanging``: nothing hangs any more, which the last stable offset has to
show (L3).
"""

from __future__ import annotations

from typing import Final

from oncelog.admin.transactions import Scan, Scope, abort, scan
from oncelog.admin.transactions.hanging import OpenTransaction
from oncelog.admin.transactions.judging import Standing, Verdict
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.core.transactions.hanging import Verdict as BrokersVerdict
from oncelog.sim.aftermath import transactions_of
from oncelog.sim.blocking import with_client
from oncelog.sim.checkers.disk.administrative import ORPHAN_ABORT, TOO_EARLY, ends_of
from oncelog.sim.workloads.base import Stage
from oncelog.sim.workloads.hangs.ground import CountedStage, Ground
from oncelog.sim.world import ClientHost

BROKERS_TIME_MS: Final = 45_000
"""First look, time-out, grace and some passes: by then a broker that ends orphans has ended what it knows to be one."""
ATTEMPTS: Final = 10
SET_BACK_MS: Final = 4_000
"""The broker's clock may be, between planting and ending."""
_AT_REST: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class Closing:
    """See the module."""

    def __init__(self, stage: Stage, counted: CountedStage, ground: Ground, topics: tuple[str, ...]) -> None:
        self.stage = stage
        self.counted = counted
        self.ground = ground
        self.scope = Scope(topics=topics)

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping or self.counted.running:
            await host.sleep(500)
        await self.coordinators_at_rest(host)
        if self.ground.orphan_action == "abort":
            await host.sleep(BROKERS_TIME_MS)
        await with_client(host, self.judge_and_end)
        self.judge_broker()
        self.ground.judged = True

    async def coordinators_at_rest(self, host: ClientHost) -> None:
        """Wait until what was left open is over by its time-out."""
        async with host.client() as client:
            while any(one.state not in _AT_REST and not one.two_phase for one in await transactions_of(client)):
                await host.sleep(1_000)

    def judge_and_end(self, client: Client) -> None:
        """Look, say what is wrong with what was said, and end what hangs."""
        found = self.look(client)
        for one in found.transactions:
            self.judge(one, found.now_ms)
        for one in found.of(Verdict.HANGING):
            error = abort(client, one, min_age_ms=0).error
            if error is not None:
                raise ClientError(error)  # and once more from the start
        left = self.look(client).of(Verdict.HANGING)
        if left:
            raise ClientError(f"{left[0].where} hangs still")

    def look(self, client: Client) -> Scan:
        """All that is open, seen by everybody who has to be asked."""
        for attempt in range(ATTEMPTS):
            found = scan(client, self.scope, min_age_ms=0)
            if not found.unanswered:
                return found
            client.pause(attempt)
        raise ClientError(str(found.unanswered[0]))

    def judge(self, one: OpenTransaction, now_ms: int) -> None:
        """One verdict, given at ``now_ms``, beside the truth."""
        planted = self.ground.planted.get((one.where, one.producer.producer_id))
        what = f"{one.where} from {one.start_offset}, {one.transactional_id}: {one.verdict.value}: {one.reason}"
        if planted is None:
            if one.verdict is Verdict.HANGING:
                self.stage.object(f"A1 said to hang, and it does not: {what}")
            return
        if one.verdict is not Verdict.HANGING:
            self.stage.object(f"A2 it hangs ({planted.kind}), and that is not said: {what}")
        elif self.ground.orphan_action == "abort" and self.broker_had_time(one):
            self.stage.object(f"A3 the broker has not ended its orphan: {what}")

        if planted.start_offset == one.start_offset and one.age_ms != now_ms - planted.first_ms:
            self.stage.object(f"A7 not the age since its first record: {one.age_ms}, {planted}")

    def judge_broker(self) -> None:
        """The orphans that it has ended itself: not before their time-out and its grace were over."""
        for end in ends_of(self.stage.world.broker.audits):
            planted = self.ground.planted.get((end.partition, end.producer_id))
            if end.action != ORPHAN_ABORT or planted is None:
                continue
            least_ms = planted.timeout_ms + self.ground.orphan_grace_ms - SET_BACK_MS
            if end.at_ms - planted.planted_ms < least_ms:
                self.stage.object(f"{TOO_EARLY}: {end}, planted at {planted.planted_ms}")

    def broker_had_time(self, one: OpenTransaction) -> bool:
        """Whether the broker knows that it is orphaned, and since when that is: a coordinator has told the time-out."""
        knows = one.producer.found == BrokersVerdict.ORPHANED and one.standing is not Standing.FORGOTTEN
        return knows and one.row is not None
