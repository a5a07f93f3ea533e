"""Copying with aiokafka: transactions of V0 (EndTxn 0), partitions assigned.

It has no KIP-447: its TxnOffsetCommit 0 names no generation, so a member that was thrown out of a group may still
commit offsets. One producer a source partition is what keeps it exact, and that is what the assigned copiers are.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.interop.consistency.copying_client import (
    COPY,
    GROUP,
    PATIENCE_S,
    SOURCE,
    Abortable,
    GiveUp,
    Role,
    Taken,
    Wrote,
)

T = TypeVar("T")


class AiokafkaCopier:
    """See :class:`~tests.interop.consistency.copying_client.CopyingClient`."""

    def __init__(self, role: Role, wrote: Wrote) -> None:
        if role.partition is None:
            raise ValueError("aiokafka's transactions know no group members (KIP-447): assigned partitions only")
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self._bootstrap = role.bootstrap
        self._security = role.security
        self._transactional_id = role.transactional_id
        self._timeout_ms = role.transaction_timeout_ms
        self._source = TopicPartition(SOURCE, role.partition)
        self._wrote = wrote
        self._pending: list[tuple[str, asyncio.Future[Any]]] = []
        self._runner = asyncio.Runner()
        self._consumer: Any = None
        self._producer: Any = None

    def start(self) -> None:
        """Both clients connect as they are started."""
        self._run(self._start())
        self.rewind()

    async def _start(self) -> None:
        common = {"bootstrap_servers": self._bootstrap, "retry_backoff_ms": 10, "request_timeout_ms": 5_000}
        common |= _security(self._security)
        self._consumer = AIOKafkaConsumer(
            **common,
            group_id=GROUP,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
        )
        self._producer = AIOKafkaProducer(
            **common, transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms, linger_ms=1
        )
        await self._consumer.start()
        self._consumer.assign([self._source])
        await self._producer.start()

    def take(self, most: int) -> Sequence[Taken]:
        """The records that are there."""
        result = self._run(self._consumer.getmany(self._source, timeout_ms=50, max_records=most))
        return [
            Taken(record.partition, record.offset, record.value.decode()) for record in result.get(self._source, ())
        ]

    def rewind(self) -> None:
        """A seek."""
        self._consumer.seek(self._source, self.committed().get(self._source.partition, 0))

    def committed(self) -> Mapping[int, int]:
        """Of the partition that is copied. It asks an old version, so it is asked only while nothing is open."""
        result = self._run(self._consumer.committed(self._source))
        return {} if result is None else {self._source.partition: result}

    def begin(self) -> None:
        """Local."""
        self._pending.clear()
        self._run(self._producer.begin_transaction())

    def write(self, partition: int, value: str) -> None:
        """Into the queue."""
        self._pending.append((value, self._run(self._producer.send(COPY, value.encode(), partition=partition))))

    def send_offsets(self, following: Mapping[int, int]) -> None:
        """By the group's name alone."""
        offsets = {TopicPartition(SOURCE, partition): offset for partition, offset in following.items()}
        self._run(self._producer.send_offsets_to_transaction(offsets, GROUP))

    def flush(self) -> None:
        """Wait for every record's place."""
        for value, sent in self._pending:
            self._wrote(value, self._run(_awaited(sent)).offset)

    def commit(self) -> None:
        """An answer that does not come leaves the end unknown."""
        try:
            self._run(self._producer.commit_transaction())
        except Abortable as failure:
            raise GiveUp(str(failure)) from failure

    def abort(self) -> None:
        """Its records fail, which nobody waits for."""
        for _, sent in self._pending:
            sent.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            self._run(self._producer.abort_transaction())
        except Abortable as failure:
            raise GiveUp(str(failure)) from failure

    def close(self) -> None:
        """Both, and the loop."""
        self._run(self._consumer.stop())
        self._run(self._producer.stop())
        self._runner.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        """Its errors do not say what may be done: try to abort, which fails when nothing may."""
        try:
            return self._runner.run(asyncio.wait_for(call, PATIENCE_S))
        except KafkaError as failure:
            raise Abortable(repr(failure)) from failure
        except (TimeoutError, AssertionError) as failure:  # it asserts that its own state allows what is asked for
            raise GiveUp(repr(failure)) from failure


def _security(settings: Mapping[str, str]) -> dict[str, Any]:
    if not settings:
        return {}
    return {
        "security_protocol": settings["security.protocol"],
        "ssl_context": ssl.create_default_context(cafile=settings["ssl.ca.location"]),
        "sasl_mechanism": settings["sasl.mechanism"],
        "sasl_plain_username": settings["sasl.username"],
        "sasl_plain_password": settings["sasl.password"],
    }


async def _awaited(sent: asyncio.Future[T]) -> T:
    return await sent
