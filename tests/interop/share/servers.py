"""Brokers for members of share groups, ours and Apache Kafka's, and what tests ask of them beside the members."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.clients.share_member import Delivered, ShareMember
from tests.peers.clients.sweep.share_requests import configure
from tests.peers.clients.sweep.wire import Wire
from tests.peers.oncelog_serve import OncelogServe

Server = ApacheKafka | OncelogServe
LOCK_MS: Final = 3000
PROPERTIES: Final = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
}
SERVERS: Final[dict[str, Callable[[], Server]]] = {
    "kafka": lambda: ApacheKafka(properties=PROPERTIES),
    "oncelog": lambda: OncelogServe(properties={"node.id": "1", **PROPERTIES}),
}
_NUMBERS: Final = itertools.count()


class Queue:
    """A topic of one partition and a share group that begins at its start, both of their own."""

    def __init__(self, server: Server, *, topic_configs: Mapping[str, str] | None = None, **configs: str) -> None:
        self.server = server
        self.topic = f"queue-{next(_NUMBERS)}"
        self.group = f"group-of-{self.topic}"
        with Wire(server.bootstrap_servers) as wire:
            self.topic_id = wire.topic(self.topic, **(topic_configs or {}))
        self.configure(share_auto_offset_reset="earliest", **configs)

    def configure(self, **configs: str) -> None:
        """Set configurations of the group; names have ``_`` for a dot."""
        with Wire(self.server.bootstrap_servers) as wire:
            configure(wire, self.group, **configs)

    def put(self, *values: str) -> None:
        """Append a record a value, each in a batch of its own."""
        with Wire(self.server.bootstrap_servers) as wire:
            for value in values:
                self._append(wire, value)

    def put_batch(self, *values: str) -> None:
        """Append the records in one batch."""
        with Wire(self.server.bootstrap_servers) as wire:
            self._append(wire, *values)

    def _append(self, wire: Wire, *values: str) -> None:
        while (
            wire.produce(self.topic, *(value.encode() for value in values), timestamp=int(time.time() * 1000))
            .responses[0]
            .partition_responses[0]
            .error_code
        ):
            pass

    def delete_before(self, offset: int) -> None:
        """Take the records before an offset away."""
        topics = [
            DeleteRecordsTopic(name=self.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        ]
        with Wire(self.server.bootstrap_servers) as wire:
            answer = wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)
        assert not answer.topics[0].partitions[0].error_code

    def member(self, kind: str, **settings: Any) -> ShareMember:
        """A member of the group, in a process of its own."""
        return ShareMember(kind, self.server.bootstrap_servers, self.group, self.topic, **settings)


def values(records: list[Delivered]) -> list[str]:
    """The values, in order of their offsets."""
    return [record.value for record in sorted(records)]
