"""A shard with its log, leaders that write markers when told, a clock moved by hand: what the node does, in 150 lines.

After every step all invariants are checked, and a second shard that replays the log is compared with the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    NO_PRODUCER_ID,
    CoordinatorEpoch,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import (
    AddRequest,
    EndRequest,
    InitRequest,
    MarkersToWrite,
    NeedsProducerId,
    Record,
    TransactionDecision,
)
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.shard import TransactionShard
from oncelog.core.transactions.states import STATE_NAMES
from oncelog.core.transactions.store import record_of
from oncelog.core.transactions.transitions import Transaction
from oncelog.records.internal.transaction_records import encode_key
from tests.shard_time import ShardTime

ID = "copier"
EPOCH = CoordinatorEpoch(7)


def identity(producer_id: int, epoch: int) -> Identity:
    """A producer id with its epoch."""
    return Identity(ProducerId(producer_id), ProducerEpoch(epoch))


def partitions(*indexes: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    """Partitions of one topic."""
    return tuple(TopicPartition(TopicName(topic), index) for index in indexes)


@dataclass
class Driver(ShardTime):
    """Drives a loaded shard."""

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    now_ms: int = 1_000_000
    log: list[Record] = field(default_factory=list)
    """The log that the shard is loaded from, and that it writes."""
    next_producer_id: int = 1000
    writes_markers: bool = True
    """True if leaders write markers at once; else they are in ``markers`` until ``write_markers``."""

    def __post_init__(self) -> None:
        self.replies: dict[int, Any] = {}
        self.last_token = 0
        self.refuse_appends = 0
        self.markers: list[MarkersToWrite] = []
        self.sent: list[MarkersToWrite] = []
        self.shard = TransactionShard(0, EPOCH, self.settings)
        for key, value in self.log:
            self.shard.apply(key, value)
        self.carry_out(self.shard.loaded(self.now_ms))

    def carry_out(self, decision: TransactionDecision, token: int = 0) -> Any:
        """Append, apply and deliver, then whatever is due; returns what the caller was told, None if it is parked."""
        if decision.records and self.refuse_appends:
            self.refuse_appends -= 1
            if token:
                self.replies[token] = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.carry_out(self.shard.append_failed(decision, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms))
            return self.replies.get(token)
        self.log += decision.records
        for key, value in decision.records:
            self.shard.apply(key, value)
        told = decision.released if decision.reply is None else [*decision.released, (token, decision.reply)]
        for waiting, reply in told:
            assert waiting not in self.replies, "a token answered twice"
            self.replies[waiting] = reply
        self.sent += decision.markers
        self.markers += decision.markers
        self.check()
        if decision.needs_producer_id is not None:
            expected = decision.needs_producer_id
            self.carry_out(self.shard.abort_timed_out(expected, self.new_producer_id(), self.now_ms))
        if self.writes_markers:
            self.write_markers()
        self.run_due()
        return self.replies.get(token)

    def run_due(self) -> None:
        """Do what is due now."""
        while (deadline_ms := self.shard.deadline_ms()) is not None and deadline_ms <= self.now_ms:
            self.carry_out(self.shard.tick(self.now_ms))

    def write_markers(self) -> None:
        """The leaders write what they were sent."""
        while self.markers:
            markers = self.markers.pop(0)
            self.carry_out(self.shard.markers_written(markers, markers.partitions, self.now_ms))

    def check(self) -> None:
        """All invariants, and that the log says what the shard holds."""
        self.shard.check()
        again = TransactionShard(0, EPOCH, self.settings)
        for key, value in self.log:
            again.apply(key, value)
        assert again.persisted() == self.shard.persisted()

    def restarted(self) -> Driver:
        """Another broker loads the log."""
        return Driver(self.settings, self.now_ms, self.log, self.next_producer_id, self.writes_markers)

    def new_producer_id(self) -> ProducerId:
        """From the broker's block."""
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id - 1)

    def token(self) -> int:
        """A new caller."""
        self.last_token += 1
        return self.last_token

    # Requests: each returns the reply, None while it is parked under ``last_token``

    def init(
        self,
        expected: Identity | None = None,
        *,
        tid: str = ID,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Any:
        """InitProducerId; producer ids are fetched where they are needed."""
        request = InitRequest(TransactionalId(tid), timeout_ms, expected, two_phase, keep)
        producer_id = NO_PRODUCER_ID
        while True:
            token = self.token()
            decision = self.shard.decide(request, token, self.now_ms, producer_id=producer_id)
            reply = self.carry_out(decision, token)
            if not isinstance(reply, NeedsProducerId):
                return reply
            producer_id = self.new_producer_id()

    def add(self, who: Identity, *indexes: int, tid: str = ID, version: int = 2, topic: str = "t") -> Any:
        """AddPartitionsToTxn; the error code."""
        token = self.token()
        request = AddRequest(TransactionalId(tid), who, partitions(*indexes, topic=topic), version)
        reply = self.carry_out(self.shard.decide(request, token, self.now_ms), token)
        return getattr(reply, "error_code", reply)

    def verify(self, who: Identity, *indexes: int, tid: str = ID) -> Any:
        """A verify-only AddPartitionsToTxn: one error for all, or a list."""
        token = self.token()
        request = AddRequest(TransactionalId(tid), who, partitions(*indexes), 2)
        reply = self.carry_out(self.shard.verify_partitions(request), token)
        return [*reply.partitions.values()] if reply.error_code is ErrorCode.NONE else reply.error_code

    def end(self, who: Identity, *, commit: bool, tid: str = ID, version: int = 2) -> Any:
        """EndTxn; producer ids are fetched where they are needed."""
        request = EndRequest(TransactionalId(tid), who, commit, version)
        producer_id = NO_PRODUCER_ID
        while True:
            token = self.token()
            decision = self.shard.decide(request, token, self.now_ms, producer_id=producer_id)
            reply = self.carry_out(decision, token)
            if not isinstance(reply, NeedsProducerId):
                return reply
            producer_id = self.new_producer_id()

    def held(self, tid: str = ID) -> Transaction:
        """The shard's state of an id."""
        value = self.shard._transactions.get(TransactionalId(tid))
        assert value is not None
        return value

    def state(self, tid: str = ID) -> str:
        """The state's name, "Dead" when the id is not known."""
        description = self.shard.describe(TransactionalId(tid))
        return "Dead" if description is None else description.state

    def history(self, tid: str = ID) -> list[Transaction | None]:
        """Every record of an id in the log; None: a tombstone."""
        again = TransactionShard(0, EPOCH, self.settings)
        seen = []
        for key, value in self.log:
            again.apply(key, value)
            if key == encode_key(tid):
                seen.append(again.persisted().get(TransactionalId(tid)))
        return seen

    def states(self, tid: str = ID) -> list[str]:
        """Every state of an id in the log."""
        return ["Dead" if held is None else STATE_NAMES[held.state] for held in self.history(tid)]

    def at_epoch(self, epoch: int, *, tid: str = ID) -> Identity:
        """Give the id's producer an epoch without thirty thousand requests: as if the log had said so."""
        held = self.held(tid)
        raised = held._replace(identity=Identity(held.identity.producer_id, ProducerEpoch(epoch)))
        return self._install(raised)

    def _install(self, transaction: Transaction) -> Identity:
        self.log.append(record_of(transaction, self.settings))
        self.shard._transactions.put(transaction)
        self.check()
        return transaction.identity
