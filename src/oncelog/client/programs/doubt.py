"""Doubt about leaders that do not answer: another broker is asked who leads, while sending goes on.

A frozen broker keeps its connections, so only its silence tells. The question has a connection of its own: on a shared
one it would wait behind slow requests, and its time-out would end them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.steps import Link, Pending, Program, Submit
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

DOUBT_MS: Final = 2_000
"""Age of an unanswered request from which other brokers are asked, one after another. A question may take as long."""
DOUBT_AGAIN_MS: Final = 500
"""Time from the first question to the second: its answer may be from just before the election. It doubles with each
question, up to ``DOUBT_MS``."""
DOUBT_CONNECT_MS: Final = 500
"""The longest wait for a connection, during which the caller sends nothing; after a failure it sends for as long."""


class Silent(NamedTuple):
    """A leader that has not answered, and what it was asked for."""

    link: Link
    partitions: Sequence[TopicPartition]


class _Question(NamedTuple):
    broker: int
    link: Link
    pending: Pending


class Doubt:
    """The questions of one producer or consumer about silent leaders, one at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._due_ms = 0
        self._pause_ms = DOUBT_AGAIN_MS
        self._turn = 0
        self._question: _Question | None = None
        # The longest wait for a connection to each broker that has not answered since it was left.
        self._silent: dict[int, int] = {}
        self._is_closed = False

    @property
    def pending(self) -> list[Pending]:
        """The question that awaits its answer, if any."""
        return [] if self._question is None else [self._question.pending]

    def pursue(self, silent: Mapping[int, Silent]) -> Program[None]:
        """Close the links to silent leaders, by broker, if others lead by now; call it as long as some are silent, and
        once afterwards."""
        if not silent:
            self.drop()
            return
        yield from self._learn_and_ask(silent, [p.topic for _, partitions in silent.values() for p in partitions])
        for broker, (link, partitions) in silent.items():
            leaders = {self._cluster.view.leader(partition) for partition in partitions}
            if link.is_open and not leaders <= {broker, None}:
                self._cluster.abort_links(link.address)
                link.abort()
                self.add_silent(broker)

    def connect(self, broker: int) -> Program[Link]:
        return self._reach(broker, self._cluster.connect)

    def link(self, broker: int) -> Program[Link]:
        return self._reach(broker, self._cluster.link)

    def _reach(self, broker: int, reach: Callable[[int, int | None], Program[Link]]) -> Program[Link]:
        # A silent leader may lead partitions still, and a frozen broker's kernel accepts connections.
        limit_ms, began_ms = self._silent.get(broker), self._cluster.now_ms()
        try:
            link = yield from reach(broker, limit_ms)
        except ClientError:
            if self._cluster.now_ms() - began_ms >= (limit_ms or DOUBT_CONNECT_MS):
                longer_ms = DOUBT_CONNECT_MS if limit_ms is None else 2 * limit_ms  # the broker may be far away
                self._silent[broker] = min(longer_ms, self._cluster.config.open_timeout_ms)
            raise
        self._silent.pop(broker, None)  # it has answered: a link is opened by a question for versions
        return link

    def add_silent(self, broker: int) -> None:
        self._silent.setdefault(broker, DOUBT_CONNECT_MS)

    def _learn_and_ask(self, silent: Collection[int], topics: Iterable[str]) -> Program[None]:
        """Learn from the answer if it has come; ask the next broker that is not ``silent`` if that is due."""
        if self._question is not None and self._question.pending.is_done:
            question, self._question = self._question, None
            self._learn(question)
        others = [broker for broker in self._cluster.view.brokers if broker not in silent]
        if others and self._question is None and self._cluster.now_ms() >= self._due_ms:
            broker = others[self._turn % len(others)]
            self._turn += 1
            yield from self._ask(broker, topics)

    def drop(self) -> None:
        """Forget the question: the leaders have answered."""
        self._pause_ms = DOUBT_AGAIN_MS
        if self._question is not None:
            self._question.link.abort()
            self._question = None

    def close(self) -> None:
        """Forget the question, also one that is being asked."""
        self._is_closed = True
        self.drop()

    def _ask(self, broker: int, topics: Iterable[str]) -> Program[None]:
        cluster = self._cluster
        self._due_ms = cluster.now_ms() + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, DOUBT_MS)
        message = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in dict.fromkeys(topics)], allow_auto_topic_creation=False
        )
        link: Link | None = None
        try:
            link = yield from cluster.connect(broker, DOUBT_CONNECT_MS)
            pending: Pending = yield Submit(link, message, link.versions.choose(message), DOUBT_MS)
        except BaseException as error:
            if link is not None:
                link.abort()
            if not isinstance(error, ClientError):
                raise
            self._due_ms = cluster.now_ms() + DOUBT_CONNECT_MS
        else:
            self._question = _Question(broker, link, pending)
            if self._is_closed:
                self.drop()

    def _learn(self, question: _Question) -> None:
        try:
            response = question.pending.result()
        except ClientError:
            question.link.abort()
            return
        # Nothing is in flight on the link now, and the producer may have no other to a broker that answers.
        self._cluster.share(question.broker, question.link)
        with suppress(ClientError):
            self._cluster.apply(response)
