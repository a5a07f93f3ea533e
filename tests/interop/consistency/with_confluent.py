"""Copying with confluent-kafka: transactions of V1 (EndTxn 1), partitions assigned or subscribed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.interop.consistency.copying_client import (
    COPY,
    GROUP,
    HEARTBEAT_MS,
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    SOURCE,
    Abortable,
    GiveUp,
    Role,
    Taken,
    Wrote,
)

QUICK: Final[dict[str, Any]] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    # librdkafka 2.16 may hang when its only broker dies during a transaction and it bootstraps anew: the handle of the
    # broker never terminates, and the request for the coordinator that waits for it is never retried.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class ConfluentCopier:
    """See :class:`~tests.interop.consistency.copying_client.CopyingClient`."""

    def __init__(self, role: Role, wrote: Wrote) -> None:
        self._role = role
        self._wrote = wrote
        self._held: list[int] = []
        self._taken: list[Taken] = []
        self._group: Any = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": role.bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                **role.security,
                **QUICK,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": role.bootstrap,
                "transactional.id": role.transactional_id,
                "transaction.timeout.ms": role.transaction_timeout_ms,
                "message.timeout.ms": role.transaction_timeout_ms,
                "linger.ms": 1,
                **role.security,
                **QUICK,
            }
        )

    def start(self) -> None:
        """Fence; assign or subscribe."""
        _retried(lambda: self._producer.init_transactions(PATIENCE_S))
        if self._role.partition is None:
            self._consumer.subscribe([SOURCE], on_assign=self._changed, on_revoke=self._changed, on_lost=self._changed)
        else:
            self._held = [self._role.partition]
            self.rewind()

    def _changed(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Whatever was taken under the assignment before is not ours to copy."""
        self._taken.clear()

    def take(self, most: int) -> Sequence[Taken]:
        """One by one: a batch may contain what was fetched before a rebalance."""
        self._taken.clear()
        message = self._consumer.poll(0.05)
        while message is not None and message.error() is None:
            self._taken.append(
                Taken(message.partition() or 0, message.offset() or 0, (message.value() or b"").decode())
            )
            message = self._consumer.poll(0) if len(self._taken) < most else None
        self._group = self._consumer.consumer_group_metadata()
        return list(self._taken)

    def rewind(self) -> None:
        """By assigning the same partitions again."""
        if self._role.partition is None:
            self._held = [batch.partition for batch in self._consumer.assignment()]
        positions = self.committed()
        self._consumer.assign([TopicPartition(SOURCE, item, positions.get(item, 0)) for item in self._held])

    def committed(self) -> Mapping[int, int]:
        """Raises GiveUp."""
        partitions = [TopicPartition(SOURCE, number) for number in range(self._role.sources)]
        retried = _retried(lambda: self._consumer.committed(partitions, PATIENCE_S))
        failed = [item.error for item in retried if item.error is not None]
        if failed:
            raise GiveUp(str(failed[0]))
        return {record.partition: record.offset for record in retried if record.offset >= 0}

    def begin(self) -> None:
        """Local."""
        _retried(self._producer.begin_transaction)

    def write(self, partition: int, value: str) -> None:
        """Into the queue."""
        try:
            self._producer.produce(COPY, value, partition=partition, on_delivery=self._delivered)
        except KafkaException as failure:
            raise _meaning(failure) from failure
        self._producer.poll(0)

    def send_offsets(self, following: Mapping[int, int]) -> None:
        """As the member that took them."""
        offsets = [TopicPartition(SOURCE, partition, offset) for partition, offset in following.items()]
        _retried(lambda: self._producer.send_offsets_to_transaction(offsets, self._group, PATIENCE_S))

    def flush(self) -> None:
        """Delivery reports are served meanwhile."""
        _retried(lambda: self._producer.flush(PATIENCE_S))

    def commit(self) -> None:
        """EndTxn."""
        _retried(lambda: self._producer.commit_transaction(PATIENCE_S))

    def abort(self) -> None:
        """EndTxn."""
        _retried(lambda: self._producer.abort_transaction(PATIENCE_S))

    def close(self) -> None:
        """The producer has nothing to close."""
        self._consumer.close()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:  # it may be told only that the record is stored
            self._wrote((message.value() or b"").decode(), offset)


def _retried(call: Callable[[], Any]) -> Any:
    """Call until it does not fail retriably."""
    deadline = time.monotonic() + 2 * PATIENCE_S
    while True:
        try:
            return call()
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise _meaning(failure) from failure
            time.sleep(0.01)


def _meaning(failure: KafkaException) -> Abortable | GiveUp:
    return Abortable(str(failure)) if failure.args[0].txn_requires_abort() else GiveUp(str(failure))
