"""A hanging transaction, created as in practice: a late write after the marker (the motivation of KIP-890).

The late write is appended past the verification that would reject it today.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.handlers.broker.ports import LeaderLog, Marker
from oncelog.node.kernel.events import DeadlineReached
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.storage.log.append import append_batch
from oncelog.testing.faults.fault import Fault
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from oncelog.node.node import Node
    from oncelog.runtime.server import Server

_TRANSACTION_KEY: Final = 1
_TIMEOUT_MS: Final = 60_000
_AT_REST: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})
_BEING_ENDED: Final = frozenset({"PrepareCommit", "PrepareAbort"})
_MARKERS_S: Final = 30.0
_PAUSE_S: Final = 0.002


class _Host(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    def on_loop(self, work: Callable[[Server], None]) -> bool: ...


class HangingTransaction(Fault):
    """A fault that is also in the log, with its producer and first offset."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    partition: TopicPartition

    def abort(self, server: Server) -> None:
        """End the transaction as an administrator would, if it is still open; on the loop."""
        leader = _leader(server.node, self.partition)
        entry = None if leader is None else leader.log.producers.entries.get(self.producer_id)
        if leader is None or entry is None or entry.transaction_first_offset != self.first_offset:
            return
        marker = Marker(
            ProducerId(self.producer_id),
            ProducerEpoch(self.producer_epoch),
            coordinator_epoch=entry.coordinator_epoch,
            committed=False,
            start_offset=Offset(self.first_offset),
        )
        server.node.transactions.write_marker(leader, marker)
        server.effect_runner.dispatch(DeadlineReached())


def leave_hanging(
    fault: HangingTransaction, host: _Host, partition: TopicPartition, transactional_id: str, value: bytes
) -> None:
    fault.partition = partition
    identity = _identity_at_rest(host, transactional_id)
    fault.producer_id, fault.producer_epoch = identity or _initialise(host, transactional_id)

    def write(server: Server) -> None:
        if _leader(server.node, partition) is None:
            raise RuntimeError(f"partition {partition} does not exist")
        _write(server.node, fault, value)
        server.effect_runner.dispatch(DeadlineReached())  # starts syncs and wakes readers

    host.on_loop(write)


def _leader(node: Node, partition: TopicPartition) -> LeaderLog | None:
    leader = node.partitions.leader_log(partition)
    return None if isinstance(leader, ErrorCode) else leader


def _identity_at_rest(host: _Host, transactional_id: str) -> tuple[int, int] | None:
    """The coordinator's producer id and epoch, once acknowledged markers are written; None for an unknown transactional
    id.

    Raises RuntimeError if the transaction is open, or the broker not running.
    """
    deadline_s = time.monotonic() + _MARKERS_S
    while True:
        descriptions: list[tuple[str, int, int]] = []
        if not host.on_loop(lambda server: descriptions.extend(_describe(server.node, transactional_id))):  # noqa: B023
            raise RuntimeError("the broker is not running")
        if not descriptions:
            return None
        state, producer_id, epoch = descriptions[0]
        if state in _AT_REST:
            return producer_id, epoch
        if state not in _BEING_ENDED or time.monotonic() > deadline_s:
            raise RuntimeError(f"{transactional_id} has a transaction open ({state}); end it first")
        time.sleep(_PAUSE_S)


def _describe(node: Node, transactional_id: str) -> list[tuple[str, int, int]]:
    # State, producer id and epoch of an id; empty if no coordinator knows it.
    for shard in node.transactions.shards():
        description = shard.describe(TransactionalId(transactional_id))
        if description is not None:
            return [(description.state, description.identity.producer_id, description.identity.producer_epoch)]
    return []


def _initialise(host: _Host, transactional_id: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
    with Client(host.bootstrap_servers) as client:

        def ask() -> tuple[int, int]:
            coordinator = client.coordinator(transactional_id, _TRANSACTION_KEY)
            response = client.request(request, broker=coordinator)
            if response.error_code:
                raise BrokerRefused(response.error_code, "InitProducerId")
            return response.producer_id, response.producer_epoch

        return client.retrying(ask)


def _write(node: Node, fault: HangingTransaction, value: bytes) -> None:
    # Append the late write, after a whole transaction if the producer is new on the partition.
    leader = _leader(node, fault.partition)
    assert leader is not None
    log = leader.log
    if fault.producer_id not in log.producers.entries:
        _append(node, fault, b"in time", 0)
        producer_id, epoch = ProducerId(fault.producer_id), ProducerEpoch(fault.producer_epoch)
        node.transactions.write_marker(leader, Marker(producer_id, epoch, coordinator_epoch=0, committed=False))
    entry = log.producers.entries[fault.producer_id]
    next_sequence = entry.last_sequence + 1 if entry.epoch == fault.producer_epoch else 0
    fault.first_offset = _append(node, fault, value, next_sequence)


def _append(node: Node, fault: HangingTransaction, value: bytes, sequence: int) -> int:
    leader = _leader(node, fault.partition)
    assert leader is not None
    batch = build_batch(
        [Record(0, node.now_ms, None, value, ())],
        producer_id=fault.producer_id,
        producer_epoch=fault.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )
    epoch = leader.leader_epoch
    appended = append_batch(leader.log, memoryview(batch), now_ms=node.now_ms, leader_epoch=epoch, verified=True)
    node.partitions.appended(leader, appended.record_count, appended.size_bytes)
    return appended.base_offset
