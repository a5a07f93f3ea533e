"""Members of share groups as the scenarios need them: requests with the session's epochs, and a persister by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share.model import ShareState, StateBatch
from oncelog.node.kernel.events import DeadlineReached
from oncelog.node.share.persister import Persisted, StateRead, StateSummary
from oncelog.records.batch import iter_headers
from oncelog.records.record import read_records
from oncelog.wire.messages import share_acknowledge, share_fetch
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog.wire.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import PRODUCE_VERSION, batch, create_topic, produce, produced

GROUP_RESOURCE = 32
VERSION = 2
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@dataclass
class HandPersister:
    """The state of share partitions in a dictionary; writes are answered at once, or when the test says so."""

    states: dict[object, ShareState] = field(default_factory=dict)
    holds: bool = False
    error: E = E.NONE
    held: list[Callable[[], None]] = field(default_factory=list)
    reads: int = 0

    def read(self, key, leader_epoch, done):
        self.reads += 1

        def answer() -> None:
            state = self.states.setdefault(key, ShareState(0, -1, -1, ()))
            done(StateRead(self.error, "no", None if self.error else state))

        self._answer(answer)
        return lambda: None

    def write(self, key, leader_epoch, state, done):
        def answer() -> None:
            if not self.error:
                self._merge(key, state)
            done(Persisted(self.error, "no"))

        self._answer(answer)
        return lambda: None

    def summary(self, key, leader_epoch, done):
        def answer() -> None:
            state = self.states.get(key, ShareState(0, -1, -1, ()))
            done(StateSummary(self.error, "no", state.state_epoch, 0, state.start_offset))

        self._answer(answer)
        return lambda: None

    def release(self, driver: Driver) -> None:
        """Answer what was held, within an event."""
        held, self.held = self.held, []
        for answer in held:
            answer()
        driver.dispatch(DeadlineReached())

    def _answer(self, answer) -> None:
        if self.holds:
            self.held.append(answer)
        else:
            answer()

    def _merge(self, key, state: ShareState) -> None:
        known = self.states[key]
        offsets = {
            offset: kept[2:]
            for kept in (*known.batches, *state.batches)
            for offset in range(kept.first_offset, kept.last_offset + 1)
            if offset >= state.start_offset
        }
        batches = [StateBatch(offset, offset, *kept) for offset, kept in sorted(offsets.items())]
        self.states[key] = ShareState(state.state_epoch, state.start_offset, state.delivery_complete_count, batches)


class Member:
    """A member with a session of its own connection."""

    def __init__(self, driver: Driver, group: str = "g", member_id: str = "m", peer: Peer | None = None) -> None:
        self.driver = driver
        self.group = group
        self.member_id = member_id
        self.peer = driver.connect() if peer is None else peer
        self.epoch = 0
        self._topic_ids = {name: topic.topic_id for name, topic in driver.node.cluster.image.topics.items()}

    def topic_id(self, name: str) -> bytes:
        return self.driver.node.cluster.image.topics[name].topic_id

    def fetch(self, *topics: tuple[str, int], **options):
        """A ShareFetch that is answered at once."""
        self.send_fetch(*topics, **options)
        return self.answer()

    def send_fetch(self, *topics: tuple[str, int], forgotten=(), acks=(), version: int = VERSION, **options) -> None:
        """``acks``: (topic, partition, first offset, last offset, types…)."""
        options = {"max_bytes": 1 << 20, "min_bytes": 1, "max_records": 500, "batch_size": 500, **options}
        request = ShareFetchRequest(group_id=self.group, member_id=self.member_id, **options)
        request.share_session_epoch = options.get("share_session_epoch", self.epoch)
        partitions = {key: FetchPartition(partition_index=key[1]) for key in topics}
        for name, index, first, last, *types in acks:
            partition = partitions.setdefault((name, index), FetchPartition(partition_index=index))
            partition.acknowledgement_batches.append(
                share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            )
        request.topics = [
            FetchTopic(topic_id=self.topic_id(name), partitions=[partition])
            for (name, _), partition in partitions.items()
        ]
        request.forgotten_topics_data = [
            ForgottenTopic(topic_id=self.topic_id(name), partitions=[index]) for name, index in forgotten
        ]
        self.epoch = -1 if self.epoch < 0 else self.epoch + 1
        self.peer.send(request, version)

    def answer(self):
        assert self.peer.responses, "no answer yet"
        return self.peer.responses.popleft()

    def acknowledge(self, *acks, version: int = VERSION, renews: bool = False):
        """``acks`` as in :meth:`send_fetch`."""
        self.send_acknowledge(*acks, version=version, renews=renews)
        return self.answer()

    def send_acknowledge(self, *acks, version: int = VERSION, renews: bool = False) -> None:
        topics = [
            share_acknowledge.AcknowledgeTopic(
                topic_id=self.topic_id(name),
                partitions=[
                    share_acknowledge.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            share_acknowledge.AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=types
                            )
                        ],
                    )
                ],
            )
            for name, index, first, last, *types in acks
        ]
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            topics=topics,
            is_renew_ack=renews,
        )
        self.epoch = -1 if self.epoch < 0 else self.epoch + 1
        self.peer.send(request, version)


def broker_with_group(persister: object) -> Driver:
    """A broker with a topic of two partitions, and a group that begins with its first record."""
    driver = Driver()
    driver.node.share.persister = persister
    peer = driver.connect()
    create_topic(peer, "t", 2)
    set_group_configs(peer, "g", share_auto_offset_reset="earliest")
    return driver


def acquired(response, partition: int = 0) -> list[tuple[int, int, int]]:
    """(first offset, last offset, delivery count) of one partition; neighbours with the same count are joined."""
    assert response.error_code == 0, E(response.error_code)
    joined: list[tuple[int, int, int]] = []
    for topic in response.responses:
        for answer in topic.partitions:
            if answer.partition_index != partition:
                continue
            assert answer.error_code == 0, E(answer.error_code)
            for got in answer.acquired_records:
                first, last, count = got.first_offset, got.last_offset, got.delivery_count
                if joined and joined[-1][1] == first - 1 and joined[-1][2] == count:
                    first = joined.pop()[0]
                joined.append((first, last, count))
    return joined


def errors(response) -> list[E]:
    """The partitions' errors, in order."""
    return [E(answer.error_code) for topic in response.responses for answer in topic.partitions]


def ack_errors(response) -> list[E]:
    return [E(answer.acknowledge_error_code) for topic in response.responses for answer in topic.partitions]


def values(response) -> list[bytes]:
    """The values of all returned records, acquired or not."""
    return [
        record.value
        for topic in response.responses
        for answer in topic.partitions
        for position, header in iter_headers(bytes(answer.records or b""))
        for record in read_records(bytes(answer.records), position, header, 1 << 20)
    ]


def set_group_configs(peer: Peer, group: str, **configs: str) -> None:
    """Set configs of a group; ``_`` for ``.``."""
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=changes)
    response = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [item.error_code for item in response.responses] == [0], response


_numbers = itertools.count()


def write(driver: Driver, topic: str, count: int, partition: int = 0, **options) -> int:
    """Produce one batch of ``count`` records; its base offset."""
    values = [b"v%d" % next(_numbers) for _ in range(count)]
    request = produce(topic, batch(driver, *values, **options), partition)
    error, offset = produced(driver.connect().ask(request, PRODUCE_VERSION))
    assert error == 0, E(error)
    return offset
