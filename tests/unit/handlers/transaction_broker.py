"""A broker for the handlers of transactions: real shards and real logs, driven as the node does, all at once durable.

Markers of a decision are written at once too, unless ``holds_markers``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, cast

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    CoordinatorEpoch,
    Offset,
    ProducerId,
    TopicPartition,
    TransactionalId,
)
from oncelog.core.transactions.model import AddRequest, MarkersToWrite, TransactionDecision
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.shard import TransactionShard
from oncelog.core.transactions.store import record_of
from oncelog.core.transactions.transitions import Transaction
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.broker.ports import LeaderLog, Marker
from oncelog.handlers.broker.waits import (
    AddToTransaction,
    AskCoordinator,
    FindTransactionalId,
    Offload,
    Transact,
    TransactEach,
    UntilConfirmed,
    UntilDurable,
    UntilProducerId,
)
from oncelog.handlers.registry import BY_KEY
from oncelog.handlers.transactions.coordinator_verdict import finding_of, ids_of
from oncelog.node.coordinators.markers import append_marker
from tests.unit.handlers.log_broker import NOW_MS, LogBroker, context_of

SHARDS = 2


def _result_of(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class TransactionBroker(LogBroker):
    """Has ``__transaction_state``, with ``transactions`` in it, and ``__consumer_offsets`` from the start."""

    def __init__(self, *transactions: Transaction, **settings: Any) -> None:
        super().__init__()
        self.add_topic(TRANSACTION_STATE, SHARDS)
        self.add_topic(CONSUMER_OFFSETS, 4)
        values = TransactionSettings(**settings)
        self.all_shards = [TransactionShard(index, CoordinatorEpoch(0), values) for index in range(SHARDS)]
        for transaction in transactions:
            self._shard(transaction.transactional_id).apply(*record_of(transaction, values))
        for shard in self.all_shards:
            shard.loaded(NOW_MS)
        self.refused = ErrorCode.NONE
        self.next_producer_id: int | None = 1000
        self.late: set[TopicPartition] = set()
        self.holds_markers = False
        self.markers: list[tuple[TransactionShard, MarkersToWrite]] = []
        self._tokens = 0
        self._replies: dict[int, Any] = {}

    def shards(self) -> Iterable[TransactionShard]:
        return [] if self.refused is not ErrorCode.NONE else self.all_shards

    def shard_of(self, transactional_id: TransactionalId) -> TransactionShard | None:
        return None if self.refused is not ErrorCode.NONE else self._shard(transactional_id)

    def refusal(self, transactional_id: TransactionalId) -> ErrorCode:
        return self.refused

    def partition_of(self, transactional_id: TransactionalId) -> TopicPartition | None:
        return TopicPartition(TRANSACTION_STATE, coordinator_partition(transactional_id, SHARDS))

    def offsets_until_durable(self, ids: Iterable[TransactionalId]) -> Mapping[TopicPartition, Offset]:
        return {}

    def take_part(self, request: AddRequest) -> bool:
        shard = self.shard_of(request.transactional_id)
        return shard is not None and shard.take_part(request)

    def write_marker(self, leader_log: LeaderLog, marker: Marker) -> Offset:
        log = leader_log.log
        end = append_marker(log, marker, leader_log.leader_epoch, NOW_MS)
        log.set_high_watermark(end)
        return end

    def call(self, request: Any, version: int, *denied: tuple[Operation, str]) -> Any:
        """Decide a request as the node would: the response decoded from its bytes in ``version``."""
        api = BY_KEY[request.API_KEY]
        decoded = type(request).decode(b"".join(bytes(c) for c in request.encode(version)), version)
        answer = api.load_handler()(decoded, context_of(self, api.key, version, *denied))
        if isinstance(answer, Generator):
            answer = self._drive(answer)
        return request.response_class().decode(b"".join(bytes(c) for c in answer.encode(version)), version)

    def write_markers(self) -> None:
        """Write what the decisions asked for."""
        while self.markers:
            shard, each = self.markers.pop(0)
            for partition in each.partitions:
                leader_log = self.leader_log(partition)
                assert isinstance(leader_log, LeaderLog)
                self.write_marker(
                    leader_log,
                    Marker(
                        each.identity.producer_id,
                        each.identity.producer_epoch,
                        each.coordinator_epoch,
                        each.committed,
                        each.client_version,
                    ),
                )
            self._carry_out(shard, shard.markers_written(each, each.partitions, NOW_MS))

    def _shard(self, transactional_id: str) -> TransactionShard:
        return self.all_shards[coordinator_partition(transactional_id, SHARDS)]

    def _drive(self, steps: Generator[Any, Any, Any]) -> Any:
        outcome: Any = None
        error: CoordinatorRefusal | None = None
        while True:
            try:
                wait = steps.send(outcome) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            outcome, error = None, None
            if isinstance(wait, UntilProducerId):
                outcome = self._take_producer_id()
            elif isinstance(wait, UntilDurable):
                outcome = self.late & set(wait.offsets)
            elif isinstance(wait, UntilConfirmed):
                outcome = {}
            elif isinstance(wait, Offload):
                outcome = _result_of(wait.steps)
            elif isinstance(wait, FindTransactionalId):
                outcome = ids_of(self, (wait.producer_id,)).get(wait.producer_id)
            elif isinstance(wait, AskCoordinator):
                outcome = finding_of(self, self, wait.transactional_id, wait.identity, wait.partition)
            elif isinstance(wait, TransactEach):
                refused = CoordinatorRefusal(self.refused)
                outcome = [
                    refused if self.refused is not ErrorCode.NONE else self._transact(request)
                    for request in wait.requests
                ]
            elif isinstance(wait, AddToTransaction):
                if self.refused is not ErrorCode.NONE:
                    error = CoordinatorRefusal(self.refused)
                else:
                    outcome = self._add(wait)
            elif isinstance(wait, Transact):
                if self.refused is not ErrorCode.NONE:
                    error = CoordinatorRefusal(self.refused)
                else:
                    outcome = self._transact(wait)
            else:
                raise TypeError(wait)

    def _take_producer_id(self) -> ProducerId | None:
        taken = self.next_producer_id
        if taken is None:
            return None
        self.next_producer_id = taken + 1
        return ProducerId(taken)

    def _add(self, wait: AddToTransaction) -> Any:
        return self._transact(Transact(wait.request))

    def _transact(self, wait: Transact) -> Any:
        self._tokens += 1
        token, shard = self._tokens, self._shard(wait.request.transactional_id)
        decision = shard.decide(wait.request, token, NOW_MS, producer_id=wait.producer_id)
        self._carry_out(shard, decision)
        if decision.reply is not None:
            return decision.reply
        if not self.holds_markers:
            self.write_markers()
        while token not in self._replies:  # until it is released, or refused when its time is over
            deadline_ms = shard.deadline_ms()
            assert deadline_ms is not None
            self._carry_out(shard, shard.tick(max(NOW_MS, deadline_ms)))
        return self._replies.pop(token)

    def _carry_out(self, shard: TransactionShard, decision: TransactionDecision) -> None:
        for key, value in decision.records:
            shard.apply(key, value)
        self._replies.update(decision.released)
        self.markers.extend((shard, marker) for marker in decision.markers)
        if decision.reply is not None and not self.holds_markers:
            self.write_markers()


def partition(name: str, index: int = 0) -> TopicPartition:
    """A partition by its name."""
    return TopicPartition(cast("Any", name), index)
