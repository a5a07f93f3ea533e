"""Administrators that run the production tool (``oncelog.admin.transactions``) during the faults.

They trust the tool, and end the transactions that it reports as hanging. It must never report a transaction that was
not injected. Each runs on the blocking client in virtual time (``sim.blocking``), and retries failures in its next
round.
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
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

MIN_AGES_MS: Final = (None, 0, 0, 5_000)
# Attempts to send a marker when connections are lost.
MARKER_ATTEMPTS: Final = 300
# Errors that a leader may return for a marker with a start offset.
_MAY_REFUSE: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Administrator:
    """One administrator; each round runs another command."""

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
            self.find_hanging,
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
                # A command blocks, and runs on a thread of the simulator.
                breaks_after = self.entropy.randint(2, 12) if self.entropy.random() < 0.2 else None
                await with_client(host, self.entropy.choice(self.commands), breaks_after=breaks_after)

    def find_hanging(self, client: Client) -> list[OpenTransaction]:
        """``find-hanging --all``: returns the transactions reported as hanging."""
        transactions_found = scan(client, min_age_ms=self.entropy.choice(MIN_AGES_MS))
        for violation in false_hanging_verdicts(transactions_found.transactions, self.truth.injected):
            self.context.report_violation(violation)
        return transactions_found.of(Verdict.HANGING)

    def abort_all(self, client: Client) -> None:
        for transaction in self.find_hanging(client):
            abort(client, transaction, min_age_ms=self.entropy.choice(MIN_AGES_MS))

    def abort_one(self, client: Client) -> None:
        """``abort --topic --partition --start-offset`` for any transaction: the tool has to refuse live ones."""
        transaction = self.any_open(client)
        if transaction is not None:
            abort(client, find_one(client, transaction.topic_partition, transaction.start_offset))

    def explain(self, client: Client) -> None:
        explain_topic(client, self.entropy.choice(self.topics), min_age_ms=0)

    def mark_unchecked(self, client: Client) -> None:
        """Send the marker of ``abort`` without its checks: the leader has to refuse it for live transactions."""
        transaction = self.any_open(client)
        if transaction is None:
            return
        if self.entropy.random() < 0.3:  # as a late one
            client.system.sleep(self.entropy.randint(0, 3_000))
        for _ in range(MARKER_ATTEMPTS):  # a returning broker's coordinators have not read their logs yet
            try:
                write_abort_marker(client, transaction)
            except BrokerRefused as error:
                if error.code not in _MAY_REFUSE:
                    self.context.report_unexpected(
                        f"a marker for {transaction.topic_partition}, {transaction.producer}: answered {error.code}"
                    )
            except ClientError:
                client.system.sleep(self.entropy.randint(1, 20))
                continue
            break

    def mark_as_apache_kafka_does(self, client: Client) -> None:
        """``kafka-transactions.sh abort``: without start offset or second check."""
        transaction = self.any_open(client)
        if transaction is None:
            return
        # It ends any open transaction of the producer: use it only if the producer is dead for good and its transaction
        # hangs.
        injected = self.truth.injected.get((transaction.topic_partition, transaction.producer.producer_id))
        if injected is None or not injected.certain:
            return
        partition, producer = transaction.topic_partition, transaction.producer
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            coordinator_epoch=max(0, producer.coordinator_epoch),
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        )
        client.request(WriteTxnMarkersRequest(markers=[marker]), broker=producer.leader)

    def any_open(self, client: Client) -> OpenTransaction | None:
        open_transactions = scan(client, min_age_ms=0).transactions
        return self.entropy.choice(open_transactions) if open_transactions else None

    async def terminate(self, host: ClientHost, committers: Committers) -> None:
        """``force-terminate`` for a prepared transaction. It may hit any later transaction of the id."""
        undecided = [logged for logged in committers.log if logged.stored is not None and not logged.is_over]
        if undecided:
            decided = self.entropy.choice(undecided)
            decided.completions.append(
                Completion(commit=False, requested_at=self.context.world.kernel.now_us, agreed=None)
            )
            await with_client(host, lambda client: _terminate(client, decided))


def _terminate(client: Client, decided: LoggedTransaction) -> None:
    assert decided.stored is not None
    force_terminate(client, decided.stored.transactional_id)
