"""Two-phase committers (KIP-939): a transaction is prepared here, decided elsewhere, and completed by any process.

The prepared transaction and the decision are in a log of the workload, which survives deaths between any two steps; the
next life completes it as decided. Sometimes another process ends it: an outside coordinator with the stored id and
epoch, or an operator who terminates it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import TRANSACTION_KEY, AsyncClient
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import ProducerUnusable, TransactionFailed
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.sim.checkers.history import Completion, Transaction, Write, outcome_of
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.group_members import CountingClient, counting_client
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.sender import SETTINGS, send_write
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest

# Bumps the epoch (KIP-890).
END_TXN_VERSION = 5


@dataclass(slots=True)
class LoggedTransaction:
    """A transaction in the workload's log; ``stored`` once it is prepared and logged."""

    name: str
    process: str
    writes: Writes
    commit: bool
    prepared: bool = False
    stored: StoredTransaction | None = None
    completions: list[Completion] = field(default_factory=list)
    is_over: bool = False

    def as_transaction(self) -> Transaction:
        return Transaction(
            self.name,
            self.process,
            self.writes.all(),
            outcome_of(self.completions),
            min((completion.requested_at for completion in self.completions if completion.commit), default=None),
            prepared=self.prepared,
            completions=tuple(self.completions),
        )


@dataclass(frozen=True, slots=True)
class Committers(Workload):
    name: str
    committers: int
    partitions: int
    pause_ms: int
    # Probability that a life ends between two steps.
    deadly: float
    # Other processes also end prepared transactions.
    outsiders: bool
    log: list[LoggedTransaction] = field(default_factory=list, repr=False)

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> Committers:
        return cls(
            name,
            entropy.randint(2, 4),
            entropy.randint(1, 3),
            entropy.choice((20, 50, 100)),
            entropy.choice((0.0, 0.02, 0.1)),
            entropy.random() < 0.5,
        )

    def topics(self) -> list[Topic]:
        return [Topic(self.name, self.partitions)]

    def start(self, context: WorkloadContext) -> None:
        for index in range(self.committers):
            context.launch(f"{self.name}-{index}", self, Committer)
        if self.outsiders:
            context.launch(f"{self.name}-outside", self, _Outsider)

    def open_of(self, transactional_id: str) -> LoggedTransaction | None:
        """The open transaction of an id in the log, or None."""
        ours = (
            transaction
            for transaction in self.log
            if not transaction.is_over and transaction.name.startswith(f"{transactional_id}.")
        )
        return next(ours, None)

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        context.recorder.transactions.extend(transaction.as_transaction() for transaction in self.log)


class Committer(WorkloadProgram[Committers]):
    """Recovers the transaction of an earlier life, continues, and dies."""

    async def __call__(self, host: ClientHost) -> None:
        settings = TransactionSettings(self.name, two_phase=True)
        async with counting_client(host) as client:
            producer = AsyncTransactionalProducer(client, settings, SETTINGS)
            try:
                prepared = await producer.initialize(keep_prepared=True)
                await self.recover(client, producer, prepared)
                while not host.stopping:
                    await self.run_transaction(host, client, producer)
                    await host.pause(self.entropy, 2 * self.workload.pause_ms)
            finally:
                await producer.close()

    async def recover(
        self, client: CountingClient, producer: AsyncTransactionalProducer, prepared: StoredTransaction | None
    ) -> None:
        # Complete the open transaction as decided, or abort it without a decision.
        open_transaction = self.workload.open_of(self.name)
        decision = open_transaction.stored if open_transaction is not None and open_transaction.commit else None
        if prepared is None:
            if open_transaction is not None:
                open_transaction.is_over = True  # it was ended by us without a response, or by another process
            return
        if open_transaction is None:
            await producer.complete(None)
            self.context.report_unexpected(f"{self.name}: {prepared} is prepared, and none was begun")
        elif decision is not None and decision != prepared:
            self.context.report_unexpected(f"{self.name}: {decision} was prepared and {prepared} is")
        else:
            await self.complete(client, producer, open_transaction, decision)

    async def run_transaction(
        self, host: ClientHost, client: CountingClient, producer: AsyncTransactionalProducer
    ) -> None:
        entropy, now = self.entropy, self.context.world.kernel.now_us
        writes = Writes(self.context.world.kernel)
        producer.on_outcome = writes.add_outcome
        logged = LoggedTransaction(f"{host.name}@{now}", host.name, writes, commit=entropy.random() < 0.8)
        self.workload.log.append(logged)
        try:
            producer.begin()
            await self.send_records(producer, writes)
            await self.maybe_die(host)
            stored = await producer.prepare()
            await self.maybe_die(host)
            logged.prepared, logged.stored = True, stored
            await self.maybe_die(host)
            await self.hold(host)
            await self.complete(client, producer, logged, stored if logged.commit else None)
        except TransactionFailed:
            logged.commit = False
            await producer.abort()
            logged.is_over = True

    async def hold(self, host: ClientHost) -> None:
        # Sometimes wait between the decision and its completion.
        if self.entropy.random() < 0.05:
            await host.sleep(self.entropy.randint(0, 10_000))

    async def send_records(self, producer: AsyncTransactionalProducer, writes: Writes) -> None:
        for _ in range(self.entropy.randint(1, 3)):
            value = self.next_value()
            partition = TopicPartition(TopicName(self.workload.name), self.entropy.randrange(self.workload.partitions))
            await send_write(producer, writes, Write(partition, value))

    async def complete(
        self,
        client: CountingClient,
        producer: AsyncTransactionalProducer,
        logged: LoggedTransaction,
        stored: StoredTransaction | None,
    ) -> None:
        requested_at, commit = self.context.world.kernel.now_us, stored is not None
        index = len(logged.completions)
        logged.completions.append(Completion(commit, requested_at, None))
        unanswered = client.unanswered
        try:
            ended = await producer.complete(stored)
        except ProducerUnusable:
            if client.unanswered == unanswered and not self.workload.outsiders:
                logged.completions[index] = Completion(commit, requested_at, False)
            raise  # an outsider or an attempt without a response may have ended it
        if (ended is Ended.COMMITTED) != commit:
            self.context.report_unexpected(f"{self.name}: {ended} where {stored} was decided")
        logged.completions[index] = Completion(commit, requested_at, True)
        logged.is_over = True

    async def maybe_die(self, host: ClientHost) -> None:
        if self.entropy.random() < self.workload.deadly and not host.stopping:
            host.kill(silent=self.entropy.random() < 0.5)
            await host.sleep(1)


class _Outsider(WorkloadProgram[Committers]):
    async def __call__(self, host: ClientHost) -> None:
        while not host.stopping:
            async with host.client() as client:
                for _ in range(self.entropy.randint(1, 5)):
                    await host.pause(self.entropy, 8_000)
                    if host.world.stopping:
                        return
                    await self.interfere(client)

    async def interfere(self, client: AsyncClient) -> None:
        undecided = [
            transaction
            for transaction in self.workload.log
            if transaction.stored is not None and not transaction.is_over
        ]
        if not undecided:
            return
        logged = self.entropy.choice(undecided)
        assert logged.stored is not None
        terminate = self.entropy.random() < 0.3
        requested_at = self.context.world.kernel.now_us
        commit = logged.commit and not terminate
        index = len(logged.completions)
        logged.completions.append(Completion(commit, requested_at, None))
        error_code = await (self.terminate if terminate else self.end)(client, logged, logged.stored)
        # A termination may have ended this transaction, the next one, or none.
        is_agreed = None if terminate or error_code else True
        logged.completions[index] = Completion(commit, requested_at, is_agreed)

    async def end(self, client: AsyncClient, decided: LoggedTransaction, stored: StoredTransaction) -> int:
        link = await client.link(await client.coordinator(stored.transactional_id, TRANSACTION_KEY))
        request = EndTxnRequest(
            transactional_id=stored.transactional_id,
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            committed=decided.commit,
        )
        return self.check((await link.call(request, END_TXN_VERSION)).error_code, "EndTxn")

    async def terminate(self, client: AsyncClient, decided: LoggedTransaction, stored: StoredTransaction) -> int:
        # Terminate by InitProducerId, as `kafka-transactions.sh --force-terminate` does.
        link = await client.link(await client.coordinator(stored.transactional_id, TRANSACTION_KEY))
        request = InitProducerIdRequest(transactional_id=stored.transactional_id, transaction_timeout_ms=10_000)
        return self.check((await link.call(request)).error_code, "InitProducerId")

    def check(self, code: int, operation: str) -> int:
        allowed = {
            ErrorCode.NONE,
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        }
        if code not in allowed:
            self.context.report_unexpected(f"{operation} of a prepared transaction: {code}")
        return code
