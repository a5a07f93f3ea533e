"""The links to one cluster's brokers, what is known of the cluster, and requests to the broker that must answer them.

Rules: leaders, coordinators and the controller are looked up when first needed and again when a broker says it is
not the one. Reading operations are retried until ``retry_timeout_ms``; what is final fails at once. A topic that does
not exist gets some grace (``unknown_topic_grace_ms``: a new one takes time to spread), then UnknownTopic.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.blocking.link import Link
from oncelog.client.blocking.system import THIS_MACHINE, System
from oncelog.client.config import Address, ClientConfig, parse_addresses
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
from oncelog.client.machine.connection import Response
from oncelog.client.machine.metadata import ClusterView, TopicInfo
from oncelog.client.machine.retry import Backoff, Remedy, remedy
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
"""The first field of an answer, of all versions that are of today, says nothing of the cluster."""


class ClusterClient:
    """The connections and the metadata of one cluster; a context manager, for one thread.

    ``config`` is a ClientConfig or a mapping with Java-style keys. Raises ConfigError for what is wrong in either.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str | None = None,
        config: ClientConfig | Mapping[str, str] | None = None,
        system: System = THIS_MACHINE,
    ) -> None:
        text = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        self.bootstrap = parse_addresses(text)
        if not isinstance(config, ClientConfig):
            config = ClientConfig.from_properties(config or {})
            config = replace(config, client_id=client_id) if client_id else config
        self.config = config
        self.system = system
        self.view = ClusterView()
        self._links: dict[int, Link] = {}
        self._bootstrap_link: Link | None = None
        self._has_connected = False
        self._is_closed = False
        self._all_topics_ms: int | None = None
        self._told_of_all: tuple[bytes, int] | None = None
        self._coordinators: dict[tuple[int, str], int] = {}
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; whatever is asked for afterwards raises Closed."""
        self._is_closed = True
        for link in self._all_links():
            link.close()
        self._links.clear()
        self._bootstrap_link = None

    # Requests and the brokers they go to.

    def request(
        self, message: Request[R], version: int | None = None, *, broker: Broker = "any", timeout_ms: int | None = None
    ) -> R:
        """Send one request and return its response, whatever error codes are in it. Not retried.

        Raises NoBrokerReachable, ConnectionLost, RequestTimedOut, UnsupportedRequest.
        """
        return self.link(broker).call(message, version, timeout_ms)

    def link(self, broker: Broker = "any") -> Link:
        """An open link to a broker. Raises NoBrokerReachable for "any", ConnectionLost for a particular one."""
        if broker == "any":
            return self._any_link()
        if broker == "controller":
            return self._controller_link()
        link = self._links.get(broker)
        if link is None or not link.is_open:
            link = self._links[broker] = self.connect(broker)
        return link

    def connect(self, broker: int) -> Link:
        """A new link to a broker, the caller's own: a long wait on it holds up nobody else. Raises ConnectionLost."""
        self._require_open()
        if broker not in self.view.brokers:
            self.refresh_brokers()
        info = self.view.brokers.get(broker)
        if info is None:
            raise ConnectionLost(f"broker {broker} is not in the cluster at the moment")
        try:
            return Link(info.address, self.config, self.system)
        except NoBrokerReachable as error:
            raise ConnectionLost(f"broker {broker} cannot be reached where the cluster says it is: {error}") from None

    def coordinator(self, key: str, key_type: int = GROUP_KEY) -> int:
        """The broker that coordinates a group (or transactional id); looked up once, see ``forget_coordinator``."""
        known = self._coordinators.get((key_type, key))
        if known is None:
            known = self.retrying(lambda: self._find_coordinator(key, key_type))
            self._coordinators[key_type, key] = known
        return known

    def forget_coordinator(self, key: str, key_type: int = GROUP_KEY) -> None:
        """Drop the known coordinator of ``key``: it is looked up again when next needed."""
        self._coordinators.pop((key_type, key), None)

    def retrying(self, attempt: Callable[[], T], timeout_ms: int | None = None) -> T:
        """The result of ``attempt()``, repeated after pauses while its error may pass; the last error is raised."""
        deadline = self.system.now_ms() + (self.config.retry_timeout_ms if timeout_ms is None else timeout_ms)
        for number in range(1 << 30):
            try:
                return attempt()
            except ClientError as error:
                if not self.may_pass(error) or self.system.now_ms() >= deadline:
                    raise
                refused = isinstance(error, BrokerRefused)
                action = remedy(error.code) if isinstance(error, BrokerRefused) else Remedy.REFRESH_METADATA
                if action is Remedy.FIND_COORDINATOR or not refused:
                    self._coordinators.clear()
                self.pause(number)
                if action is Remedy.REFRESH_METADATA:
                    with contextlib.suppress(ClientError):
                        self.refresh()
        raise AssertionError("unreachable")

    def may_pass(self, error: ClientError) -> bool:
        """True if a retry after ``error`` may succeed. A cluster that was reached before may come back."""
        if isinstance(error, UnknownTopic):
            return False
        if isinstance(error, BrokerRefused):
            return remedy(error.code) is not Remedy.FAIL
        return error.retriable or (isinstance(error, NoBrokerReachable) and self._has_connected)

    def pause(self, attempt: int) -> None:
        """Sleep before attempt ``attempt`` + 1, with jitter."""
        self.system.sleep(self._backoff.delay_ms(attempt, self.system.jitter(-200, 200)))

    # The cluster.

    def refresh(self) -> None:
        """Fetch metadata anew: the brokers, and the topics already known."""
        self._ask_metadata(list(self.view.topics))

    def refresh_brokers(self) -> None:
        """Fetch anew which brokers there are, and nothing about topics, of which this client may know thousands."""
        self._ask_metadata([])

    def all_topics(self, max_age_ms: int) -> dict[TopicName, TopicInfo]:
        """All topics, from memory if all were asked for within that time."""
        asked_ms = self._all_topics_ms
        if asked_ms is None or self.system.now_ms() - asked_ms > max_age_ms:
            return self.metadata(None)
        return {info.name: info for info in self.view.topics.values() if info.exists}

    def metadata(self, topics: Iterable[str] | None = None, *, create: bool = False) -> dict[TopicName, TopicInfo]:
        """Topics as the cluster has them now; all of them for None. What does not exist carries its error code.

        ``create`` lets the broker create missing ones, if it is configured so. Brokers are in ``view``.
        """
        names = None if topics is None else list(dict.fromkeys(topics))
        self.retrying(lambda: self._ask_metadata(names, create=create))
        if names is None:
            return {info.name: info for info in self.view.topics.values() if info.exists}
        return {TopicName(name): self.view.topics[name] for name in names if name in self.view.topics}

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic that exists, from memory if that is fresh. Raises UnknownTopic, BrokerRefused."""
        deadline = self.system.now_ms() + self.config.unknown_topic_grace_ms * (5 if create else 1)
        for attempt in range(1 << 30):
            age = self.view.age_ms(name, self.system.now_ms())
            if age is None or age > self.config.metadata_max_age_ms:
                self.metadata([name], create=create)
            info = self.view.topics.get(name)
            if info is not None and info.exists:
                return info
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error_code
            self.view.forget(name)
            if remedy(code) is Remedy.FAIL:
                raise BrokerRefused(code, f"topic {name!r}")
            if self.system.now_ms() >= deadline:
                raise UnknownTopic(f"topic {name!r}")
            self.pause(attempt)
        raise AssertionError("unreachable")

    def leader(self, partition: TopicPartition) -> int:
        """The broker that leads a partition. Raises UnknownTopic; BrokerRefused when it has none just now."""
        info = self.topic(partition.topic).partitions.get(partition.partition)
        if info is None:
            count = len(self.topic(partition.topic).partitions)
            raise UnknownTopic(
                f"partition {partition.partition} of topic {partition.topic!r} ({counted(count, 'partition')})"
            )
        if info.leader < 0:
            self.view.forget(partition.topic)
            raise BrokerRefused(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        return info.leader

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions grouped by the broker that leads them."""
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self.leader(partition), []).append(partition)
        return grouped

    # Inside.

    def _all_links(self) -> list[Link]:
        return [*([self._bootstrap_link] if self._bootstrap_link else []), *self._links.values()]

    def _require_open(self) -> None:
        if self._is_closed:
            raise Closed("the client")

    def _any_link(self) -> Link:
        self._require_open()
        for link in self._all_links():
            if link.is_open:
                return link
        known = [info.address for info in self.view.brokers.values()]
        addresses = [*self.bootstrap, *(address for address in known if address not in self.bootstrap)]
        deadline = self.system.now_ms() + self.config.bootstrap_timeout_ms
        attempt = 0
        while True:
            failures: list[str] = []
            for address in addresses:
                try:
                    self._bootstrap_link = Link(address, self.config, self.system)
                except (AuthenticationFailed, ConfigError):
                    raise
                except ClientError as error:
                    failures.append(str(error))
                else:
                    self._has_connected = True
                    return self._bootstrap_link
            if self.system.now_ms() >= deadline:
                raise NoBrokerReachable(_unreachable(failures, addresses))
            self.pause(attempt)
            attempt += 1

    def _controller_link(self) -> Link:
        if self.view.controller_id not in self.view.brokers:
            self.refresh_brokers()
        controller = self.view.controller_id
        return self.link(controller if controller in self.view.brokers else "any")

    def _find_coordinator(self, key: str, key_type: int) -> int:
        link = self.link()
        message = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response = link.call(message)
        one: Any = response.coordinators[0] if response.coordinators else response
        if one.error_code:
            raise BrokerRefused(one.error_code, f"coordinator of {key!r}", one.error_message)
        if one.node_id not in self.view.brokers:
            self.refresh_brokers()
        return int(one.node_id)

    def _ask_metadata(self, names: list[str] | None, create: bool = False) -> None:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        link = self.link()
        if names is None and link.versions.choose(message) == 0:
            message.topics = []  # which means all there
        if names is None:
            self._apply_all(link, link.response(link.submit(message)))
        else:
            self._apply(link.call(message))

    def _apply_all(self, link: Link, received: Response[MetadataResponse]) -> None:
        """Take in an answer about all topics. Of a cluster of ten thousand reading it takes a tenth of a second, so one
        that is, byte for byte, the last one is not read again, as long as nothing else has changed the view."""
        told = hashlib.blake2b(received.body[_THROTTLE_TIME_BYTES:]).digest()
        now_ms = self.system.now_ms()
        if (told, self.view.changes) == self._told_of_all:
            self.view.heard_again(now_ms)
        else:
            response = link.decode(received)
            if not response.error_code:
                self.view.topics.clear()
            self._apply(response)
            self._told_of_all = told, self.view.changes
        self._all_topics_ms = now_ms

    def _apply(self, response: MetadataResponse) -> None:
        if response.error_code:
            raise BrokerRefused(response.error_code, "metadata")
        self.view.apply(response, self.system.now_ms())
        self._drop_moved_links()

    def _drop_moved_links(self) -> None:
        """Close links to brokers whose address has changed; they are opened anew when needed."""
        for broker, link in list(self._links.items()):
            info = self.view.brokers.get(broker)
            if info is not None and info.address != link.address:
                link.close()
                del self._links[broker]


def _unreachable(failures: list[str], addresses: list[Address]) -> str:
    """The error message for a cluster that cannot be reached, in one line."""
    if len(failures) == 1:
        return f"{failures[0]}; start one with `oncelog serve`, or name one with --bootstrap-server"
    names = ", ".join(map(str, addresses[:4])) + (", …" if len(addresses) > 4 else "")
    return f"none of the {len(addresses)} brokers can be reached ({names}): {failures[0] if failures else 'no reason'}"
