"""One cluster as a client's programs see it: links to its brokers, look-ups, and retries.

Leaders, coordinators and the controller are looked up when first needed, and again when a broker says that it is not
the one. Read operations are retried until ``retry_timeout_ms``; final errors are raised at once. A missing topic gets
``unknown_topic_grace_ms`` to appear, then UnknownTopic.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.addresses import Address
from oncelog.client.config import ClientConfig
from oncelog.client.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClientError,
    Closed,
    ConfigError,
    ConnectionLost,
    NoBrokerReachable,
    RebootstrapRequired,
    UnknownTopic,
)
from oncelog.client.machine.connection import ExpectedBroker, Response
from oncelog.client.machine.metadata import BrokerInfo, ClusterView, TopicInfo
from oncelog.client.machine.retry import Backoff, Remedy, remedy
from oncelog.client.programs.steps import (
    Acquire,
    Call,
    Connect,
    Environment,
    Link,
    Lock,
    Program,
    Sleep,
    call,
    raise_for_error,
)
from oncelog.wire.message import Request
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R", bound=ResponseMessage)
T = TypeVar("T")
Broker = int | Literal["any", "controller"]

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
_THROTTLE_TIME_BYTES: Final = 4
"""The first field of a Metadata response, in all present versions; it says nothing about the cluster."""


class Cluster:
    """The links and the metadata of one cluster; its generator methods are programs."""

    def __init__(self, bootstrap: Sequence[Address], config: ClientConfig, environment: Environment) -> None:
        self.bootstrap = bootstrap
        self.config = config
        self.environment = environment
        self.now_ms = environment.now_ms
        self.view = ClusterView()
        self.links: dict[Broker, Link] = {}
        """Links shared by all of the client's operations."""
        self._opening: dict[Broker, Lock] = {}
        self._has_connected = False
        self._is_closed = False
        self._all_topics_ms: int | None = None
        self._all_topics_digest: tuple[bytes, int] | None = None
        self._coordinators: dict[tuple[int, str], int] = {}
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def close(self) -> list[Link]:
        """Refuse all further operations. Returns the links, for the caller to close."""
        self._is_closed = True
        links = list(self.links.values())
        self.links.clear()
        return links

    def request(
        self, message: Request[R], version: int | None = None, *, broker: Broker = "any", timeout_ms: int | None = None
    ) -> Program[R]:
        """Send one request and return its response, whatever error codes it has. Not retried.

        Raises NoBrokerReachable, ConnectionLost, RequestTimedOut, UnsupportedRequest.
        """
        link = yield from self.link(broker)
        return (yield from call(link, message, version, timeout_ms))

    def at_coordinator(self, group: str, message: Request[R], *, at_most: int | None = None) -> Program[R]:
        """Send one request to the coordinator of a group, up to version ``at_most``, those from before Apache Kafka 4
        too. Not retried; for use in ``retrying``."""
        broker = yield from self.coordinator(group)
        link = yield from self.link(broker)
        return (yield from call(link, message, link.versions.choose(message, at_most, old=True)))

    def link(self, broker: Broker = "any", timeout_ms: int | None = None) -> Program[Link]:
        """An open link, opened once for all programs that wait for it.

        Raises NoBrokerReachable for "any", ConnectionLost for a particular broker, Closed.
        """
        self.require_open()
        if broker == "controller":
            broker = yield from self._controller()
        link = self._open_link(broker)
        if link is not None:
            return link
        if timeout_ms is not None:  # others may wait for the same broker for longer
            link = self.share(broker, (yield from self.connect(broker, timeout_ms)))
            self.require_open()
            return link
        lock = self._opening.get(broker) or self._opening.setdefault(broker, self.environment.lock())
        yield Acquire(lock)
        try:
            link = self._open_link(broker)
            if link is None:
                link = yield from (self._connect_any() if broker == "any" else self.connect(broker))
                if self._is_closed:  # in the meantime: nothing else would close this link
                    link.abort()
                    self.require_open()
                link = self.share(broker, link)
            return link
        finally:
            lock.release()

    def connect(self, broker: Broker, timeout_ms: int | None = None) -> Program[Link]:
        """A new link for the caller alone, so that a long wait on it delays nothing else. Raises ConnectionLost,
        RequestTimedOut."""
        self.require_open()
        if broker not in self.view.brokers:
            yield from self.refresh_brokers()
        info = self.view.brokers.get(broker) if isinstance(broker, int) else None
        if info is None:
            raise ConnectionLost(f"broker {broker} is not in the cluster at the moment")
        try:
            link: Link = yield Connect(info.address, self._expected(info), timeout_ms)
        except RebootstrapRequired:
            self._rebootstrap()
            raise
        except NoBrokerReachable as error:
            raise ConnectionLost(f"broker {broker} cannot be reached where the cluster says it is: {error}") from None
        return link

    def share(self, broker: Broker, link: Link) -> Link:
        """Let all operations use a link. Closes it if they have one already, or the client is closed. Returns the link
        that they use."""
        shared = self._open_link(broker)
        if shared is not None or self._is_closed:
            link.abort()
            return shared or link
        self.links[broker] = link
        return link

    def coordinator(self, key: str, key_type: int = GROUP_KEY) -> Program[int]:
        """The broker that coordinates a group or transactional id; cached, see ``forget_coordinator``."""
        broker = self._coordinators.get((key_type, key))
        if broker is None:
            broker = yield from self.retrying(lambda: self._find_coordinator(key, key_type))
            self._coordinators[key_type, key] = broker
        return broker

    def forget_coordinator(self, key: str, key_type: int = GROUP_KEY) -> None:
        """Drop the cached coordinator of ``key``; it is looked up when next needed."""
        self._coordinators.pop((key_type, key), None)

    def retrying(self, attempt: Callable[[], Program[T]], timeout_ms: int | None = None) -> Program[T]:
        """The result of ``attempt()``, repeated after pauses while its error may pass; raises the last error."""
        deadline = self.now_ms() + (self.config.retry_timeout_ms if timeout_ms is None else timeout_ms)
        number = 0
        while True:
            try:
                return (yield from attempt())
            except ClientError as error:
                if not self.may_pass(error) or self.now_ms() >= deadline:
                    raise
                refused = isinstance(error, BrokerRefused)
                action = remedy(error.code) if isinstance(error, BrokerRefused) else Remedy.REFRESH_METADATA
            if action is Remedy.FIND_COORDINATOR or not refused:
                # The cluster may have changed: all coordinators are looked up again.
                self._coordinators.clear()
            yield from self.pause(number)
            if action is Remedy.REFRESH_METADATA:
                with contextlib.suppress(ClientError):
                    yield from self.refresh()
            number += 1

    def may_pass(self, error: ClientError) -> bool:
        """True if a retry after ``error`` may succeed. A cluster that was reached before may come back."""
        if isinstance(error, UnknownTopic):
            return False
        if isinstance(error, BrokerRefused):
            return remedy(error.code) is not Remedy.FAIL
        return error.retriable or (isinstance(error, NoBrokerReachable) and self._has_connected)

    def pause(self, attempt: int) -> Program[None]:
        """Sleep before attempt ``attempt`` + 1, with jitter."""
        yield Sleep(self._backoff.delay_ms(attempt, self.environment.jitter(-200, 200)))

    def refresh(self) -> Program[None]:
        """Fetch metadata again: the brokers, and all cached topics."""
        yield from self._fetch_metadata(list(self.view.topics))

    def refresh_brokers(self) -> Program[None]:
        """Fetch only the brokers again: the client may have cached thousands of topics."""
        yield from self._fetch_metadata([])

    def abort_links(self, address: Address) -> None:
        """Close all shared links to an address; requests in flight are lost."""
        for link in self.links.values():
            if link.address == address:
                link.abort()

    def all_topics(self, max_age_ms: int) -> Program[dict[TopicName, TopicInfo]]:
        """All topics, from cache if it is at most ``max_age_ms`` old."""
        asked_ms = self._all_topics_ms
        if asked_ms is None or self.now_ms() - asked_ms > max_age_ms:
            return (yield from self.metadata(None))
        return {info.name: info for info in self.view.topics.values() if info.exists}

    def metadata(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> Program[dict[TopicName, TopicInfo]]:
        """Topics as the cluster has them now; all for None. A missing topic has its error code, unless the broker
        creates it (``create``)."""
        names = None if topics is None else list(dict.fromkeys(topics))
        yield from self.retrying(lambda: self._fetch_metadata(names, create=create))
        if names is None:
            return {info.name: info for info in self.view.topics.values() if info.exists}
        return {TopicName(name): self.view.topics[name] for name in names if name in self.view.topics}

    def topic_names(self, topic_ids: Iterable[bytes]) -> Program[dict[bytes, TopicName]]:
        """Names of topics by id, without those that the cluster does not know; their metadata is applied."""
        message = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids],
            allow_auto_topic_creation=False,
        )
        response = yield from self.request(message)
        self.apply(response)
        return {
            bytes(topic.topic_id): TopicName(topic.name)
            for topic in response.topics
            if topic.name is not None and not topic.error_code
        }

    def known_topic(self, name: str) -> TopicInfo | None:
        """A topic that exists, if its cached metadata is fresh."""
        age = self.view.age_ms(name, self.now_ms())
        info = self.view.topics.get(name)
        is_fresh = age is not None and age <= self.config.metadata_max_age_ms
        return info if is_fresh and info is not None and info.exists else None

    def topic(self, name: str, *, create: bool = False) -> Program[TopicInfo]:
        """A topic that exists, from cache if fresh. Raises UnknownTopic, BrokerRefused."""
        deadline = self.now_ms() + self.config.unknown_topic_grace_ms * (5 if create else 1)
        attempt = 0
        while True:
            age = self.view.age_ms(name, self.now_ms())
            if age is None or age > self.config.metadata_max_age_ms:
                yield from self.metadata([name], create=create)
            info = self.view.topics.get(name)
            if info is not None and info.exists:
                return info
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error_code
            # The answer may change: ask again in the next attempt.
            self.view.forget(name)
            if remedy(code) is Remedy.FAIL:
                raise BrokerRefused(code, f"topic {name!r}")
            if self.now_ms() >= deadline:
                raise UnknownTopic(f"topic {name!r}")
            yield from self.pause(attempt)
            attempt += 1

    def leader(self, partition: TopicPartition, *, create: bool = False) -> Program[int]:
        """The broker that leads a partition. Raises UnknownTopic; BrokerRefused if it has no leader at the moment."""
        topic = yield from self.topic(partition.topic, create=create)
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

    def by_leader(self, partitions: Iterable[TopicPartition]) -> Program[dict[int, list[TopicPartition]]]:
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = yield from self.leader(partition)
            grouped.setdefault(leader, []).append(partition)
        return grouped

    def require_open(self) -> None:
        if self._is_closed:
            raise Closed("the client")

    def _open_link(self, broker: Broker) -> Link | None:
        if broker == "any":
            return next((link for link in self.links.values() if link.is_open), None)
        link = self.links.get(broker)
        return link if link is not None and link.is_open else None

    def _connect_any(self) -> Program[Link]:
        # A bootstrap address may lead to any broker.
        addresses: dict[Address, ExpectedBroker | None] = dict.fromkeys(self.bootstrap)
        for info in self.view.brokers.values():
            addresses.setdefault(info.address, self._expected(info))
        deadline = self.now_ms() + self.config.bootstrap_timeout_ms
        attempt = 0
        while True:
            failures: list[str] = []
            for address, expected in addresses.items():
                try:
                    link: Link = yield Connect(address, expected)
                except (AuthenticationFailed, ConfigError):
                    raise
                except ClientError as error:
                    failures.append(str(error))
                else:
                    self._has_connected = True
                    return link
            if self.now_ms() >= deadline:
                raise NoBrokerReachable(_unreachable(failures, list(addresses)))
            yield from self.pause(attempt)
            attempt += 1

    def _expected(self, broker: BrokerInfo) -> ExpectedBroker | None:
        if self.view.cluster_id is None or not self.config.metadata_cluster_check:
            return None
        return ExpectedBroker(self.view.cluster_id, broker.broker_id)

    def _rebootstrap(self) -> None:
        # The next request goes to a bootstrap server.
        self.view.clear()
        self._all_topics_ms = self._all_topics_digest = None
        self._coordinators.clear()
        for link in self.links.values():
            link.abort()
        self.links.clear()

    def _controller(self) -> Program[Broker]:
        if self.view.controller_id not in self.view.brokers:
            yield from self.refresh_brokers()
        controller = self.view.controller_id
        # Any broker forwards to the controller, or refuses with NOT_CONTROLLER.
        return controller if controller in self.view.brokers else "any"

    def _find_coordinator(self, key: str, key_type: int) -> Program[int]:
        message = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response = yield from self.request(message)
        answer: Any = response.coordinators[0] if response.coordinators else response
        raise_for_error(answer, f"coordinator of {key!r}")
        if answer.node_id not in self.view.brokers:
            yield from self.refresh_brokers()
        return int(answer.node_id)

    def _fetch_metadata(self, names: list[str] | None, create: bool = False) -> Program[None]:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        link = yield from self.link()
        if names is None:
            if link.versions.choose(message) == 0:
                message.topics = []  # in this version all topics
            yield from self._fetch_all(link, message)
        else:
            self.apply((yield from call(link, message)))

    def _fetch_all(self, link: Link, message: MetadataRequest) -> Program[None]:
        """Fetch and apply metadata of all topics. Decoding ten thousand takes a tenth of a second: a response equal to
        the last one is not decoded unless the view changed otherwise."""

        def read(received: Response[MetadataResponse]) -> tuple[bytes, MetadataResponse | None]:
            digest = hashlib.blake2b(received.body[_THROTTLE_TIME_BYTES:]).digest()
            is_known = (digest, self.view.changes) == self._all_topics_digest
            return digest, None if is_known else received.decode()

        digest, response = yield Call(link, message, read=read)
        if response is None:
            self.view.mark_all_current(self.now_ms())
        else:
            if not response.error_code:
                self.view.topics.clear()
            self.apply(response)
            self._all_topics_digest = digest, self.view.changes
        self._all_topics_ms = self.now_ms()

    def apply(self, response: MetadataResponse) -> None:
        """Learn from metadata. Raises BrokerRefused, RebootstrapRequired."""
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102
            self._rebootstrap()
            raise RebootstrapRequired("the broker asks the client to bootstrap again")
        raise_for_error(response, "metadata")
        self.view.apply(response, self.now_ms())
        for broker, link in list(self.links.items()):
            info = self.view.brokers.get(broker) if isinstance(broker, int) else None
            if info is not None and info.address != link.address:  # opened again when needed
                link.abort()
                del self.links[broker]


def _unreachable(failures: list[str], addresses: list[Address]) -> str:
    """The error message for an unreachable cluster, in one line."""
    if len(failures) == 1:
        return f"{failures[0]}; start one with `oncelog serve`, or name one with --bootstrap-server"
    names = ", ".join(map(str, addresses[:4])) + (", …" if len(addresses) > 4 else "")
    return f"none of the {len(addresses)} brokers can be reached ({names}): {failures[0] if failures else 'no reason'}"
