"""A blocking consumer that shares topics with others through ZooKeeper, for one thread.

Delivery is at least once; only records reported to ``processed`` are committed. The application holds the records from
``poll`` until it has reported them all or polls again; when partitions must be released, it has ``release_wait_ms`` to
finish them. A thread maintains the membership, because the whole group waits for each of its consumers.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Self

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.units import SECOND_MS
from oncelog.client.blocking.client import EARLIEST, LATEST, Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.system import THIS_MACHINE
from oncelog.client.config import ClientConfig
from oncelog.client.errors import BrokerRefused, ClientError, UnknownTopic
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.legacy.zookeeper_groups.connection import client_of, open_session, protocol_of
from oncelog.legacy.zookeeper_groups.machine.member import ENDED, ZooKeeperMember
from oncelog.legacy.zookeeper_groups.machine.nodes import RegisteredBroker
from oncelog.legacy.zookeeper_groups.machine.settings import ZooKeeperGroupSettings
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription
from oncelog.legacy.zookeeper_groups.step_runner import StepRunner

_LOG: Final = logging.getLogger("oncelog.client.zookeeper")
_CLOSE_S: Final = 10.0  # Time for the last steps of a closing consumer; after that its session times out.
_IDLE_MS: Final = SECOND_MS
_HASTY_MS: Final = 2 * SECOND_MS
OnAssigned = Callable[[dict[TopicPartition, int]], None]


class ZooKeeperConsumer:
    """One consumer of a group; a context manager.

    ``zookeeper`` is ``host:port,host:port/chroot``. ``topics`` are names, or a Subscription with filters and numbers of
    streams. ``properties`` are the old consumer's keys, and a client's. ``poll`` calls ``on_assigned`` with the
    starting positions, or an empty dict when partitions are lost; any thread may call ``on_remark`` with warnings.
    Raises ConfigError, and ZooKeeperUnreachable.
    """

    def __init__(
        self,
        zookeeper: str,
        group: str,
        topics: Iterable[str] | Subscription,
        *,
        properties: Mapping[str, str] | None = None,
        fetch: FetchSettings | None = None,
        release_wait_ms: int = SECOND_MS,
        on_assigned: OnAssigned | None = None,
        on_remark: Callable[[str], None] = _LOG.warning,
    ) -> None:
        given = dict(properties or {})
        self.settings = ZooKeeperGroupSettings.from_properties(group, given)
        subscription = topics if isinstance(topics, Subscription) else Subscription.to_topics(topics)
        own_id = self.settings.consumer_id or _generated_id()
        self.consumer_id: Final = f"{group}_{own_id}"
        self._config = ClientConfig.from_properties({"client.id": group, **given})
        self._fetch = replace(fetch or FetchSettings(), old_formats=True)
        self._release_wait_ms = release_wait_ms
        self._on_assigned = on_assigned
        self._on_remark = on_remark
        self._member = ZooKeeperMember(self.consumer_id, subscription, self.settings, THIS_MACHINE.wall_ms())
        self._runner = StepRunner(
            partial(open_session, zookeeper, self.settings.session_timeout_ms, self.settings.connection_timeout_ms),
            self.consumer_id,
            subscription,
            self.settings,
            protocol=protocol_of(given),
            connecting=lambda brokers: self._connect(brokers, patient=False),
            changed=self._changed,
            stop_delivery=self._wait_for_application,
        )
        self._client: Client | None = None
        self._fetcher: Fetcher | None = None
        self._fetching = 0
        """The generation to which ``_positions`` belong."""
        self._interrupted = False
        """True if records of that generation were dropped for lack of a lease; they are fetched again."""
        self._positions: dict[TopicPartition, int] = {}
        self._held: dict[TopicPartition, int] = {}
        """Records held by the application and not reported yet: by partition, the offset after them."""
        self._broken: BaseException | None = None
        """The internal error that has ended the group's thread."""
        self._condition = threading.Condition()
        self._runner.open()
        self._thread = threading.Thread(target=self._run, name=f"oncelog-{self.consumer_id}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=kind is None or kind is KeyboardInterrupt)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        with self._condition:
            return tuple(self._member.positions) if self._member.may_deliver(now_ms()) else ()

    def new_client(self) -> Client:
        """A client of the cluster that belongs to the caller. Raises ConfigError while no broker is known."""
        return self._connect(self._runner.brokers)

    def owner_of(self, partition: TopicPartition) -> str | None:
        """The thread that owns a partition, as ``consumer-number``; None if this consumer does not."""
        with self._condition:
            return self._member.owners.get(partition)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset after the last record handed out of a partition being read."""
        return self._positions.get(partition)

    def poll(self, wait_ms: int = 500) -> list[Fetched]:
        """The batches fetched so far, possibly none. Raises ZooKeeperRebalanceFailed, and the brokers' errors."""
        self._follow_generation()
        if not self._positions or self._fetcher is None:
            with self._condition:
                if self._member.generation == self._fetching and self._member.error is None:
                    self._condition.wait(min(wait_ms, _IDLE_MS) / 1000)
            return []
        batches = [fetched for fetched in self._fetcher.poll(wait_ms) if self._usable(fetched)]
        with self._condition:
            if self._member.generation != self._fetching:
                return []
            if not self._member.may_deliver(now_ms()):
                self._interrupted = True
                self._condition.wait(min(wait_ms, 100) / 1000)
                return []
            self._held = {fetched.partition: fetched.next_offset for fetched in batches}
        self._positions |= {fetched.partition: fetched.next_offset for fetched in batches}
        return batches

    def processed(self, partition: TopicPartition, next_offset: int) -> bool:
        """Mark records before ``next_offset`` as processed, for a commit. False if the partition has moved to another
        consumer, which reads them too.
        """
        with self._condition:
            if next_offset >= self._held.get(partition, next_offset + 1):
                del self._held[partition]
                self._condition.notify_all()
            return self._member.processed(self._fetching, partition, next_offset)

    def commit(self) -> None:
        """Commit processed records and wait. Raises ClientError if that takes longer than
        ``default.api.timeout.ms``."""
        deadline_ms = now_ms() + self._config.retry_timeout_ms
        with self._condition:
            self._member.commit()
            self._condition.notify_all()
            while self._member.is_committing:
                if now_ms() >= deadline_ms or not self._thread.is_alive():
                    raise ClientError(
                        f"the offsets of group {self.settings.group!r} were not committed within "
                        f"{self._config.retry_timeout_ms} ms"
                    )
                self._condition.wait(0.1)
            if self._member.commit_failure is not None:
                raise ClientError(self._member.commit_failure)

    def close(self, *, commit: bool = True) -> None:
        """Commit processed records (or not), release the partitions, leave, and close the connections."""
        with self._condition:
            self._held.clear()
            self._member.leave(commit=commit)
            self._condition.notify_all()
        self._thread.join(_CLOSE_S)
        self._runner.close()
        if self._fetcher is not None:
            self._fetcher.close()
        if self._client is not None:
            self._client.close()

    # Called by the application's thread.

    def _follow_generation(self) -> None:
        with self._condition:
            if self._held:
                self._held.clear()
                self._condition.notify_all()
            member = self._member
            if self._broken is not None:
                raise self._broken
            if member.error is not None:
                raise member.error
            is_new, may_deliver = member.generation != self._fetching, member.may_deliver(now_ms())
            if not is_new and not (self._interrupted and may_deliver):
                return
            positions = dict(member.positions if is_new else self._positions)
            was_reading, brokers = bool(self._positions), self._runner.brokers
            if positions and not may_deliver:
                positions = {}  # Until the lease is renewed.
            else:
                self._fetching, self._interrupted = member.generation, False
        if positions and self._fetcher is None:
            self._client = self._connect(brokers)
            self._fetcher = Fetcher(self._client, self._fetch)
        self._positions = positions
        self._assign(positions)
        if self._on_assigned is not None and is_new and (positions or was_reading):
            self._on_assigned(dict(positions))

    def _assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions; brokers may not know new ones yet that are already in ZooKeeper."""
        if self._client is None or self._fetcher is None:
            return
        deadline_ms = now_ms() + self._config.retry_timeout_ms
        for attempt in range(1 << 30):
            for topic in {partition.topic for partition in positions}:
                self._client.view.forget(topic)
            try:
                self._fetcher.assign(positions)
                return
            except UnknownTopic:
                if now_ms() >= deadline_ms:
                    raise
                self._client.pause(attempt)

    def _usable(self, fetched: Fetched) -> bool:
        """True for records. Resets a position out of the log's range; raises other errors."""
        if not fetched.error_code:
            return True
        partition = fetched.partition
        if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE or self._client is None or self._fetcher is None:
            raise BrokerRefused(fetched.error_code, f"fetch from {partition} at offset {fetched.position}")
        smallest = self.settings.reset == "smallest"
        offset = self._client.list_offsets({partition: EARLIEST if smallest else LATEST})[partition].offset
        target = f"the {self.settings.reset}, {offset}"
        self._on_remark(f"{partition}: offset {fetched.position} is not in the log; continuing at {target}")
        with self._condition:
            self._member.restarted(self._fetching, partition, offset)
        self._fetcher.positions.seek({partition: offset})
        return False

    def _connect(self, brokers: list[RegisteredBroker], *, patient: bool = True) -> Client:
        """A client; with ``patient`` false it fails early, because the group waits for it."""
        config = self._config
        if not patient:
            config = replace(
                config,
                bootstrap_timeout_ms=min(config.bootstrap_timeout_ms, SECOND_MS),
                connect_timeout_ms=min(config.connect_timeout_ms, _HASTY_MS),
                request_timeout_ms=min(config.request_timeout_ms, _HASTY_MS),
                retry_timeout_ms=min(config.retry_timeout_ms, _HASTY_MS),
            )
        return client_of(brokers, config)

    # Called by the group's thread.

    def _run(self) -> None:
        """Run the member's steps until it has left; internal errors are raised by ``poll``."""
        try:
            self._run_steps()
        except BaseException as error:  # noqa: BLE001  # raised in the application's thread by poll
            with self._condition:
                self._broken = error
                self._condition.notify_all()

    def _run_steps(self) -> None:
        member = self._member
        while True:
            with self._condition:
                for remark in member.drain_remarks():
                    self._on_remark(remark)
                if member.state in ENDED:
                    self._condition.notify_all()
                    return
                step = member.next_step(now_ms())
                if step is None:
                    self._condition.wait(max(1, min(member.due_ms(now_ms()) - now_ms(), _IDLE_MS)) / 1000)
                    continue
            outcome = self._runner.run(step)
            with self._condition:
                member.done(outcome, now_ms())
                self._condition.notify_all()

    def _wait_for_application(self) -> None:
        deadline_ms = now_ms() + self._release_wait_ms
        with self._condition:
            while self._held and now_ms() < deadline_ms:
                self._condition.wait(max(1, deadline_ms - now_ms()) / 1000)

    def _changed(self) -> None:
        with self._condition:
            self._member.changed()
            self._condition.notify_all()


def _generated_id() -> str:
    """A consumer id as Java's consumers generate it: host, time, random number."""
    host = "localhost"
    with contextlib.suppress(OSError):
        host = socket.gethostname().replace("/", "")
    return f"{host}-{THIS_MACHINE.wall_ms()}-{secrets.token_hex(4)}"
