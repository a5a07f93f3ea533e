"""A transactional producer's programs: records of several partitions and a group's offsets, together or not at all.

``commit`` flushes first, and raises delivery failures. After TransactionFailed the transaction has to be aborted, and
the producer can continue; after ProducerUnusable (and ProducerFenced) a new one is needed. A RequestTimedOut or
ConnectionLost from ``commit`` leaves the outcome open: repeat ``commit`` until it is known. A failed batch fails the
transaction instead of the next call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError, ConfigError, RequestTimedOut, UnsupportedRequest
from oncelog.client.machine.first_batch_delay import FirstBatchDelay
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.pending_batch import BatchOutcome, Failed
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_requests import BUMP_VERSION
from oncelog.client.machine.transaction_states import State, Verdict
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.client.machine.transactions import TransactionMachine
from oncelog.client.programs.cluster import GROUP_KEY, TRANSACTION_KEY
from oncelog.client.programs.delivery import Delivery
from oncelog.client.programs.steps import Program, Sleep, Wait, call
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest

BUSY_PAUSE_MS: Final = 20
"""The pause before a retry while the previous transaction completes; the same as in Apache Kafka's client."""


def transactional_settings(settings: ProducerSettings | None) -> ProducerSettings:
    """The settings of a transactional producer, or the defaults. Raises ConfigError unless acks=all."""
    settings = settings or ProducerSettings()
    if settings.acks != -1:
        raise ConfigError("a transactional producer needs acks=all")
    return settings


class TransactionalDelivery(Delivery):
    """Delivery within transactions: a base beside a producer, whose constructor calls ``_open_transactions``."""

    transactions: TransactionMachine
    _first_batch_delay: FirstBatchDelay

    def _open_transactions(self, transaction: TransactionSettings) -> None:
        self.transactions = TransactionMachine(transaction)
        self._first_batch_delay = FirstBatchDelay()

    @property
    def state(self) -> State:
        """The producer's state; see ``machine.transaction_states``."""
        return self.transactions.state

    @property
    def prepared(self) -> StoredTransaction | None:
        """The prepared transaction: by ``prepare``, or found by ``initialize(keep_prepared=True)``."""
        return self.transactions.prepared

    def begin(self) -> None:
        """Begin a transaction. Raises OutOfTurn."""
        self.transactions.begin()

    def _initializing(self, keep_prepared: bool) -> Program[StoredTransaction | None]:
        self.transactions.initialize(keep_prepared=keep_prepared)
        try:
            yield from self._carry_out("initialize")
        except UnsupportedRequest as error:
            if self.transactions.settings.two_phase or keep_prepared:
                raise UnsupportedRequest(f"two-phase commit needs InitProducerId 6: {error}") from None
            raise
        return self.transactions.prepared

    def _sending_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> Program[None]:
        self.transactions.add_offsets(offsets, group)
        yield from self._carry_out("commit offsets")

    def _flushing(self) -> Program[None]:
        self._raise_failure()
        yield from super()._flushing()

    def _committing(self) -> Program[None]:
        if self.transactions.state is State.IN_TRANSACTION:
            yield from self._settle("commit")
        self.transactions.commit()
        yield from self._carry_out("commit")
        self._first_batch_delay.ended(self._now_us())

    def _aborting(self) -> Program[None]:
        self.transactions.abort()
        # Records sent after the marker would begin another transaction.
        yield from self._drop_records()
        yield from self._carry_out("abort")
        self._first_batch_delay.ended(self._now_us())

    def _preparing(self) -> Program[StoredTransaction]:
        yield from self._settle("prepare")
        return self.transactions.prepare()

    def _completing(self, stored: StoredTransaction | None) -> Program[Ended]:
        ended = self.transactions.complete(stored)
        yield from self._carry_out("complete")
        return ended

    def _require_sendable(self) -> None:
        self.transactions.require_open("send records")

    def _keep_identity(self) -> Program[None]:
        self._raise_failure()
        yield from ()

    def _admit(self, partitions: list[TopicPartition]) -> Program[None]:
        if partitions and self.transactions.is_first:
            # See ``first_batch_delay``.
            if (wait_us := self._first_batch_delay.wait_us(self._now_us())) > 0:
                yield Sleep(wait_us / 1000)
            self._first_batch_delay.sent(self._now_us())
        self.transactions.register(partitions)
        yield from self._carry_out("send records")

    def _version_limit(self, partitions: Iterable[TopicPartition]) -> int | None:
        by_name, by_transaction = super()._version_limit(partitions), self.transactions.produce_version_limit
        return by_name if by_transaction is None else by_transaction

    def _note(self, outcome: BatchOutcome | None) -> None:
        if outcome is None:
            return
        if self.on_outcome is not None:
            self.on_outcome(outcome)
        self._first_batch_delay.answered(self._now_us())
        if isinstance(outcome, Failed):
            subject = f"records of the transaction for {outcome.partition}"
            self.transactions.batch_failed(outcome.error_code, outcome.message, subject)

    def _raise_failure(self) -> None:
        self.transactions.raise_failure("the transaction")

    def _now_us(self) -> int:
        return int(self._cluster.environment.now_us())

    def _settle(self, subject: str) -> Program[None]:
        """Flush, and finish every request begun in the transaction. Raises their failures."""
        self.transactions.require_open(subject)
        yield from self._flushing()
        yield from self._carry_out(subject)

    def _drop_records(self) -> Program[None]:
        """Wait for responses in flight, up to a request's time-out, then drop the transaction's remaining records."""
        deadline = self._cluster.now_ms() + self._cluster.config.request_timeout_ms
        while self._in_flight() and (left_ms := deadline - self._cluster.now_ms()) > 0:
            yield Wait(self._first_in_flight(), left_ms)
            with contextlib.suppress(ClientError):
                self._collect()
        self._abandon()
        if self.machine.discard():
            self.transactions.sequences_lost()

    def _carry_out(self, subject: str) -> Program[None]:
        """Send the machine's requests until none is left. Raises failures; those that may pass are retried for a
        time."""
        machine, cluster = self.transactions, self._cluster
        deadline = cluster.now_ms() + cluster.config.retry_timeout_ms
        attempt = 0
        while machine.has_request:
            if cluster.now_ms() >= deadline:
                allowed = cluster.config.retry_timeout_ms
                raise RequestTimedOut(f"{subject}: no coordinator carried it out within {allowed} ms")
            try:
                verdict, code = yield from self._exchange()
            except ClientError as error:
                if not cluster.may_pass(error):
                    machine.refused_by(error)
                    raise
                verdict, code = Verdict.FIND_COORDINATOR, int(ErrorCode.NETWORK_EXCEPTION)
            attempt = yield from self._pause(verdict, code, attempt)
            machine.raise_failure(subject)
        if machine.producer_id >= 0:
            self.machine.identify(machine.producer_id, machine.producer_epoch)

    def _pause(self, verdict: Verdict, code: int, attempt: int) -> Program[int]:
        if verdict not in (Verdict.RETRY, Verdict.FIND_COORDINATOR):
            return 0
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            yield Sleep(BUSY_PAUSE_MS)
        else:
            yield from self._cluster.pause(attempt)
        return attempt + 1

    def _exchange(self) -> Program[tuple[Verdict, int]]:
        """Send the machine's next request to its coordinator. Returns the verdict on the response, and its error
        code."""
        machine, cluster = self.transactions, self._cluster
        key, kind = machine.settings.transactional_id, TRANSACTION_KEY
        try:
            broker = yield from cluster.coordinator(key, kind)
            link = yield from cluster.link(broker)
            bumps = link.versions.supports(InitProducerIdRequest, BUMP_VERSION)
            machine.observe(link.versions.features, can_bump=bumps)
            request = machine.next_request()
            if request is None:
                return Verdict.DONE, int(ErrorCode.NONE)
            if request.group is not None:
                key, kind = request.group, GROUP_KEY
                broker = yield from cluster.coordinator(key, kind)
                link = yield from cluster.link(broker)
            response = yield from call(link, request.message, request.version(link.versions))
        except ClientError:
            cluster.forget_coordinator(key, kind)
            raise
        verdict = machine.answered(response)
        if verdict is Verdict.FIND_COORDINATOR:
            cluster.forget_coordinator(key, kind)
        return verdict, int(getattr(response, "error_code", 0))
