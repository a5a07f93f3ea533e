"""A client of one cluster over asyncio: a link per broker, a view of the cluster, requests to the broker responsible.

The rules are those of ``blocking.cluster``: leaders, coordinators and the controller are looked up when first needed
and again when a broker says it is not the one; what may pass is tried again until ``retry_timeout_ms``.

The package runs on any event loop and adds nothing of its own that differs from run to run: time is the loop's, jitter
and the time of records come from the constructor, connections are the loop's ``create_connection``, and nothing goes
by the order of a set. Without TLS and SASL no thread is used. So a simulator can run it on virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.aio.link import AsyncLink
from oncelog.client.config import ClientConfig, parse_addresses
from oncelog.client.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClientError,
    Closed,
    ConfigError,
    ConnectionLost,
    NoBrokerReachable,
    UnknownTopic,
)
from oncelog.client.machine.metadata import ClusterView, TopicInfo
from oncelog.client.machine.retry import Backoff, Remedy, remedy
from oncelog.wire.message import Request
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

R = TypeVar("R", bound=ResponseMessage)
T = TypeVar("T")
ANY: Final = -1
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1


def loop_ms() -> int:
    """The running loop's time, which only goes forward: every pause and time-out here is measured by it."""
    return int(asyncio.get_running_loop().time() * 1000)


def wall_ms() -> int:
    """Milliseconds since 1970, for the timestamps of records."""
    return time.time_ns() // 1_000_000


def finished(tasks: Mapping[asyncio.Task[T], object], done: Collection[asyncio.Future[T]]) -> list[asyncio.Task[T]]:
    """The tasks in ``done`` in the order they were begun: the order of asyncio's set is another in every run."""
    return [task for task in tasks if task in done]


class AsyncClient:
    """A client; use it as an asynchronous context manager.

    ``entropy`` gives the jitter of pauses between attempts, ``now_ms`` the wall time that records are stamped with.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        config: ClientConfig | Mapping[str, str] | None = None,
        entropy: random.Random | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.bootstrap = parse_addresses(bootstrap_servers)
        self.config = config if isinstance(config, ClientConfig) else ClientConfig.from_properties(config or {})
        self.view = ClusterView()
        self.now_ms = now_ms
        self._entropy = entropy or random.Random()
        self._links: dict[int, AsyncLink] = {}
        self._opening: dict[int, asyncio.Lock] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        self._has_connected = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; whatever is asked for afterwards raises Closed."""
        self._is_closed = True
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            await link.close()

    async def request(self, message: Request[R], *, broker: int = ANY) -> R:
        """Send one request and return its response, whatever error codes are in it. Not retried."""
        return await (await self.link(broker)).call(message)

    async def link(self, broker: int = ANY) -> AsyncLink:
        """An open link, opened once for all who wait for it. Raises NoBrokerReachable, ConnectionLost, Closed."""
        self._require_open()
        if broker == ANY:
            for link in self._links.values():
                if link.is_open:
                    return link
        async with self._opening.setdefault(broker, asyncio.Lock()):
            known = self._links.get(broker)
            if known is None or not known.is_open:
                known = await (self._connect_any() if broker == ANY else self.connect(broker))
                if self._is_closed:  # meanwhile: nobody would close this one
                    await known.close()
                    self._require_open()
                self._links[broker] = known
            return known

    async def coordinator(self, key: str, key_type: int = GROUP_KEY) -> int:
        """The broker that coordinates a group or a transactional id; looked up once."""
        known = self._coordinators.get((key_type, key))
        if known is None:
            known = await self.retrying(lambda: self._find_coordinator(key, key_type))
            self._coordinators[key_type, key] = known
        return known

    def forget_coordinator(self, key: str, key_type: int = GROUP_KEY) -> None:
        """Drop the known coordinator of ``key``: it is looked up again when next needed."""
        self._coordinators.pop((key_type, key), None)

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of ``attempt()``, repeated after pauses while its error may pass; the last error is raised."""
        deadline = loop_ms() + self.config.retry_timeout_ms
        number = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not self.may_pass(error) or loop_ms() >= deadline:
                    raise
                action = remedy(error.code) if isinstance(error, BrokerRefused) else Remedy.REFRESH_METADATA
                if action is Remedy.FIND_COORDINATOR or not isinstance(error, BrokerRefused):
                    self._coordinators.clear()
                await self.pause(number)
                if action is Remedy.REFRESH_METADATA:
                    with contextlib.suppress(ClientError):
                        await self.refresh()
            number += 1

    def may_pass(self, error: ClientError) -> bool:
        """True if a retry after ``error`` may succeed. A cluster that was reached before may come back."""
        if isinstance(error, UnknownTopic):
            return False
        if isinstance(error, BrokerRefused):
            return remedy(error.code) is not Remedy.FAIL
        return error.retriable or (isinstance(error, NoBrokerReachable) and self._has_connected)

    async def pause(self, attempt: int) -> None:
        """Sleep before attempt ``attempt`` + 1, with jitter."""
        await asyncio.sleep(self._backoff.delay_ms(attempt, self._entropy.randint(-200, 200)) / 1000)

    async def refresh(self) -> None:
        """Fetch metadata anew: the brokers, and the topics already known."""
        await self._ask_metadata(list(self.view.topics))

    async def metadata(self, topics: Iterable[str], *, create: bool = False) -> dict[TopicName, TopicInfo]:
        """Topics as the cluster has them now. What does not exist carries its error code."""
        names = list(dict.fromkeys(topics))
        await self.retrying(lambda: self._ask_metadata(names, create=create))
        return {TopicName(name): self.view.topics[name] for name in names if name in self.view.topics}

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic that exists, from memory if that is fresh. Raises UnknownTopic, BrokerRefused."""
        deadline = loop_ms() + self.config.unknown_topic_grace_ms * (5 if create else 1)
        attempt = 0
        while True:
            age = self.view.age_ms(name, loop_ms())
            if age is None or age > self.config.metadata_max_age_ms:
                await self.metadata([name], create=create)
            info = self.view.topics.get(name)
            if info is not None and info.exists:
                return info
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error_code
            self.view.forget(name)
            if remedy(code) is Remedy.FAIL:
                raise BrokerRefused(code, f"topic {name!r}")
            if loop_ms() >= deadline:
                raise UnknownTopic(f"topic {name!r}")
            await self.pause(attempt)
            attempt += 1

    async def leader(self, partition: TopicPartition, *, create: bool = False) -> int:
        """The broker that leads a partition. Raises UnknownTopic; BrokerRefused when it has none just now."""
        topic = await self.topic(partition.topic, create=create)
        info = topic.partitions.get(partition.partition)
        if info is None:
            count = len(topic.partitions)
            raise UnknownTopic(
                f"partition {partition.partition} of topic {partition.topic!r} ({counted(count, 'partition')})"
            )
        if info.leader < 0:
            self.view.forget(partition.topic)
            raise BrokerRefused(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        return info.leader

    async def connect(self, broker: int) -> AsyncLink:
        """A new link to a broker, the caller's own: a long wait on it holds up nobody else. Raises ConnectionLost."""
        self._require_open()
        if broker not in self.view.brokers:
            await self.refresh()
        info = self.view.brokers.get(broker)
        if info is None:
            raise ConnectionLost(f"broker {broker} is not in the cluster at the moment")
        try:
            return await AsyncLink.open(info.address, self.config)
        except NoBrokerReachable as error:
            raise ConnectionLost(f"broker {broker} cannot be reached where the cluster says it is: {error}") from None

    def _require_open(self) -> None:
        if self._is_closed:
            raise Closed("the client")

    async def _connect_any(self) -> AsyncLink:
        known = [info.address for info in self.view.brokers.values() if info.address not in self.bootstrap]
        deadline = loop_ms() + self.config.bootstrap_timeout_ms
        attempt = 0
        while True:
            for address in (*self.bootstrap, *known):
                try:
                    link = await AsyncLink.open(address, self.config)
                except (AuthenticationFailed, ConfigError):
                    raise
                except ClientError as error:
                    failure = error
                else:
                    self._has_connected = True
                    return link
            if loop_ms() >= deadline:
                raise NoBrokerReachable(str(failure))
            await self.pause(attempt)
            attempt += 1

    async def _find_coordinator(self, key: str, key_type: int) -> int:
        message = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response = await self.request(message)
        one: Any = response.coordinators[0] if response.coordinators else response
        if one.error_code:
            raise BrokerRefused(one.error_code, f"coordinator of {key!r}", one.error_message)
        if one.node_id not in self.view.brokers:
            await self.refresh()
        return int(one.node_id)

    async def _ask_metadata(self, names: list[str], create: bool = False) -> None:
        topics = [MetadataRequestTopic(name=name) for name in names]
        response = await self.request(MetadataRequest(topics=topics, allow_auto_topic_creation=create))
        if response.error_code:
            raise BrokerRefused(response.error_code, "metadata")
        self.view.apply(response, loop_ms())
        for broker, link in list(self._links.items()):
            info = self.view.brokers.get(broker)
            if info is not None and info.address != link.address:
                del self._links[broker]
                await link.close()
