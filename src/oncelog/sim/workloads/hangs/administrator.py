"""Administrators with the production tool (``oncelog.admin.transactions``), while everything goes wrong.

They believe the tool: what it says hangs they end. What it may not say: that something hangs which was not injected.
Each works on the blocking client, in virtual time (``sim.blocking``); what fails is tried again the next time round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from oncelog.admin.transactions import abort, explain_topic, find_one, force_terminate, scan
from oncelog.admin.transactions.abort_marker import write_abort_marker
from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.base.errors import ErrorCode
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.sim.blocking import with_client
from oncelog.sim.checkers.hanging_verdicts import false_hanging_verdicts
from oncelog.sim.checkers.history import Completion
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.hangs.ground_truth import GroundTruth
from oncelog.sim.workloads.kit.workload import WorkloadContext
from oncelog.sim.workloads.two_phase_committers import Committers, LoggedTransaction
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

MIN_AGES_MS: Final = (None, 0, 0, 5_000)
INSISTS: Final = 300
"""Attempts at a marker whose connection is lost."""
_MAY_REFUSE: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors that a leader may answer to a marker with a start offset."""


class Administrator:
    """One of them; each round another command."""

    def __init__(
        self,
        context: WorkloadContext,
        truth: GroundTruth,
        name: str,
        topics: Sequence[str],
        committers: Committers | None,
    ) -> None:
        self.context = context
        self.truth = truth
        self.name = name
        self.topics = topics
        self.committers = committers
        self.entropy = context.entropy(name)
        self.commands: tuple[Callable[[Client], object], ...] = (
            self.look,
            self.abort_all,
            self.abort_all,
            self.abort_one,
            self.explain,
            self.mark_unchecked,
            self.mark_as_apache_kafka_does,
        )

    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            await host.sleep(self.entropy.randint(200, 5_000))
            if host.world.stopping:
                return
            if self.committers is not None and self.entropy.random() < 0.15:
                await self.terminate(host, self.committers)
            else:
                breaks_after = self.entropy.randint(2, 12) if self.entropy.random() < 0.2 else None
                await with_client(host, self.entropy.choice(self.commands), breaks_after=breaks_after)

    # Commands, each on a thread of the simulator's

    def look(self, client: Client) -> list[OpenTransaction]:
        """``find-hanging --all``; what is called hanging."""
        found = scan(client, min_age_ms=self.entropy.choice(MIN_AGES_MS))
        for wrong in false_hanging_verdicts(found.transactions, self.truth.injected):
            self.context.violated(wrong)
        return found.of(Verdict.HANGING)

    def abort_all(self, client: Client) -> None:
        for one in self.look(client):
            abort(client, one, min_age_ms=self.entropy.choice(MIN_AGES_MS))

    def abort_one(self, client: Client) -> None:
        """``abort --topic --partition --start-offset``, whatever begins there: the tool has to refuse."""
        one = self.any_open(client)
        if one is not None:
            abort(client, find_one(client, one.where, one.start_offset))

    def explain(self, client: Client) -> None:
        explain_topic(client, self.entropy.choice(self.topics))

    def mark_unchecked(self, client: Client) -> None:
        """The marker of ``abort`` without any of its checks: the leader has to refuse what does not hang."""
        one = self.any_open(client)
        if one is None:
            return
        if self.entropy.random() < 0.3:  # as one that comes late
            client.system.sleep(self.entropy.randint(0, 3_000))
        for _ in range(INSISTS):  # when the broker is back its coordinators have not read their logs yet
            try:
                write_abort_marker(client, one)
            except BrokerRefused as refused:
                if refused.code not in _MAY_REFUSE:
                    self.context.object(f"a marker for {one.where}, {one.producer}: answered {refused.code}")
            except ClientError:
                client.system.sleep(self.entropy.randint(1, 20))
                continue
            break

    def mark_as_apache_kafka_does(self, client: Client) -> None:
        """``kafka-transactions.sh abort``: no start offset, nothing looked at again. It ends whatever the producer has
        open by then, so only where a producer that is dead for good has left something hanging."""
        one = self.any_open(client)
        if one is None:
            return
        injected = self.truth.injected.get((one.where, one.producer.producer_id))
        if injected is None or not injected.certain:
            return
        where, producer = one.where, one.producer
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            coordinator_epoch=max(0, producer.coordinator_epoch),
            topics=[WritableTxnMarkerTopic(name=where.topic, partition_indexes=[where.partition])],
        )
        client.request(WriteTxnMarkersRequest(markers=[marker]), broker=producer.leader)

    def any_open(self, client: Client) -> OpenTransaction | None:
        found = scan(client, min_age_ms=0).transactions
        return self.entropy.choice(found) if found else None

    async def terminate(self, host: ClientHost, committers: Committers) -> None:
        """``force-terminate`` of something prepared; nobody can tell which transaction of the id it will meet."""
        waiting = [one for one in committers.log if one.stored is not None and not one.is_over]
        if waiting:
            decided = self.entropy.choice(waiting)
            decided.completions.append(Completion(commit=False, asked_at=self.context.world.kernel.now_us, agreed=None))
            await with_client(host, lambda client: _terminate(client, decided))


def _terminate(client: Client, decided: LoggedTransaction) -> None:
    assert decided.stored is not None
    force_terminate(client, decided.stored.transactional_id)
