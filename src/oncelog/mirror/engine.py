"""Mirrors one source to one target with one instance, and restarts after failures that may pass.

A run (``_live``): the producer is initialized, which ends a transaction that an earlier run left open; slots are
assigned and their positions read; then records are copied until the assignment changes, something fails, or the engine
stops. After a failure that may pass (a broker that is down, a failed transaction) the next run starts from the
positions topic. Others are raised, in one line that says what to do.

``run_engines`` runs one engine for each source; the first final failure ends all. An engine that could not copy
everything does not end the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence, Set
from typing import Final

from oncelog.admin.topics import NewTopic, ensure_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient, wall_ms
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import (
    BrokerRefused,
    ClientError,
    ProducerFenced,
    ProducerUnusable,
    TransactionFailed,
    UnknownTopic,
)
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.retry import Backoff
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.mirror.errors import MirrorIncomplete, SameCluster, at_target
from oncelog.mirror.positions_topic import SLOTS, Positions, positions_topic
from oncelog.mirror.progress import Progress, RefusalRow
from oncelog.mirror.schema_sync import NewSchemaCopy, SchemaSync
from oncelog.mirror.settings import Cluster, MirrorSettings, Naming
from oncelog.mirror.stored_positions import read_positions
from oncelog.mirror.work_assignment import Share
from oncelog.mirror.worker import POLL_MS, Worker

LOG: Final = logging.getLogger("oncelog.mirror")


class Engine:
    def __init__(
        self,
        settings: MirrorSettings,
        *,
        until_caught_up: bool = False,
        now_ms: Callable[[], int] = wall_ms,
        entropy: random.Random | None = None,
        schemas: NewSchemaCopy | None = None,
    ) -> None:
        """``now_ms`` is wall time; ``entropy`` gives the jitter of pauses between attempts; ``schemas`` copies schemas,
        if the settings say so."""
        self.settings = settings
        self._new_schema_copy = schemas
        self.schemas: SchemaSync | None = None
        self._entropy = entropy or random.Random()
        self.progress = Progress(settings.source.alias)
        self._topic = positions_topic(settings.source.alias)
        self._until_caught_up = until_caught_up
        self._now_ms = now_ms
        self._stopping = asyncio.Event()
        self._slots = SLOTS
        self._goal: dict[TopicPartition, int] | None = None
        self._missing: list[RefusalRow] = []

    def stop(self) -> None:
        """Finish the open transaction, then return from ``run``."""
        self._stopping.set()

    async def run(self) -> None:
        """Mirror. Raises ClientError for failures that do not pass, MirrorIncomplete if ``until_caught_up`` was not
        reached.
        """
        source_to, target_to = self.settings.source, self.settings.target
        backoff, attempt = Backoff(200, 5000), 0
        async with self._client(source_to) as source, self._client(target_to) as target, self._schemas(source, target):
            while not self._stopping.is_set():
                copied = self.progress.transactions
                try:
                    await self._live(source, target)
                except ClientError as error:
                    if not _may_pass(error, source, target):
                        raise
                    attempt = 0 if self.progress.transactions > copied else attempt + 1
                    self.progress.failed(error)
                    LOG.warning("mirror of %s: %s; continuing from the committed positions", source_to.alias, error)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(backoff.delay_ms(attempt) / 1000):
                            await self._stopping.wait()
        if self._missing:
            raise MirrorIncomplete(self._missing)

    @contextlib.asynccontextmanager
    async def _schemas(self, source: AsyncClient, target: AsyncClient) -> AsyncIterator[None]:
        if not self.settings.sync_schemas or self._new_schema_copy is None:
            yield
            return
        self.schemas = SchemaSync(self._new_schema_copy(source, target), self.progress)
        try:
            yield
        finally:
            await self.schemas.close()

    def _client(self, to: Cluster) -> AsyncClient:
        return AsyncClient(to.bootstrap_servers, config=to.config, entropy=self._entropy, now_ms=self._now_ms)

    async def _live(self, source: AsyncClient, target: AsyncClient) -> None:
        settings = self.settings
        if settings.naming is Naming.identity:
            await self._refuse_same_cluster(source, target)
        await self._ensure_positions(target)
        transaction = TransactionSettings(settings.transactional_id, settings.transaction_timeout_ms)
        producer = AsyncTransactionalProducer(
            target,
            transaction,
            # A batch is given up before its transaction times out, so that the refusal is known.
            ProducerSettings(batch_bytes=16 * 1024, delivery_timeout_ms=settings.transaction_timeout_ms * 2 // 3),
            buffer_bytes=settings.buffer_bytes,
        )
        share = Share(target, settings, self._topic)
        ended = False
        try:
            async with producer:
                await producer.initialize()
                while not self._stopping.is_set():
                    owned = await share.settle(POLL_MS)
                    if owned is None:
                        continue
                    positions = await read_positions(target, self._topic, owned, self._slots)
                    worker = Worker(self, source, target, producer, share, positions, owned)
                    try:
                        await worker.work()
                    finally:
                        await worker.close()
                    share.release()
            ended = True
        finally:
            await (share.leave() if ended else share.close())

    async def _refuse_same_cluster(self, source: AsyncClient, target: AsyncClient) -> None:
        """Raise SameCluster before anything is created at the target. Clusters without an id (Kafka 0.10.0) pass."""
        for client in (source, target):
            await client.retrying(client.refresh)
        if source.view.cluster_id is not None and source.view.cluster_id == target.view.cluster_id:
            raise SameCluster(self.settings.source.alias, source.view.cluster_id)

    async def _ensure_positions(self, target: AsyncClient) -> None:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(64 * 1024 * 1024)}
        with at_target():
            await ensure_topic(target, NewTopic(self._topic, SLOTS, self.settings.replication_factor, configs))
        self._slots = len((await target.topic(self._topic)).partitions)

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def caught_up(self, positions: Positions, goal: dict[TopicPartition, int], standing: Set[TopicPartition]) -> None:
        if not self._until_caught_up:
            return
        if self._goal is None:
            self._goal = goal
        at = {partition: copied.offsets.position for partition, copied in positions.partitions.items()}
        behind = {partition for partition, end in self._goal.items() if at.get(partition, end) < end}
        if behind <= standing:
            refused = [row for partition, row in sorted(self.progress.refusals.items()) if partition in behind]
            self._missing = [
                *self.progress.schema_refusals,
                *(row for row in self.progress.topic_refusals.values() if row.stands),
                *refused,
            ]
            self.stop()

    @property
    def needs_goal(self) -> bool:
        return self._until_caught_up and self._goal is None

    def now_ms(self) -> int:
        return self._now_ms()


def _may_pass(error: ClientError, source: AsyncClient, target: AsyncClient) -> bool:
    if isinstance(error, ProducerFenced) or (
        isinstance(error, BrokerRefused) and error.code == ErrorCode.FENCED_INSTANCE_ID
    ):
        return False
    if isinstance(error, UnknownTopic):
        return True  # deleted a moment ago at either side: the next refresh of the topics shows it
    if isinstance(error, TransactionFailed | ProducerUnusable):
        return error.code not in _FINAL
    return source.may_pass(error) and target.may_pass(error)  # a cluster that was never reached is a wrong address


_FINAL: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_VERSION,
)


async def run_engines(engines: Sequence[Engine]) -> None:
    tasks = [
        asyncio.create_task(_incomplete(engine), name=f"mirror of {engine.settings.source.alias}") for engine in engines
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for engine in engines:
            engine.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    refusals = [row for task in tasks for row in task.result()]
    if refusals:
        raise MirrorIncomplete(refusals)


async def _incomplete(engine: Engine) -> Sequence[RefusalRow]:
    """Returns the refusals that kept the engine from copying everything."""
    try:
        await engine.run()
    except MirrorIncomplete as error:
        return error.refusals
    return ()
