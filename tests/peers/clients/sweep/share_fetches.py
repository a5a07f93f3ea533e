"""ShareFetch and ShareAcknowledge: sessions, what is acquired, and every kind of acknowledgement (KIP-932)."""

from __future__ import annotations

from typing import Any, Final

from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog.wire.messages.share_fetch import ShareFetchRequest
from tests.peers.clients.sweep.share_requests import (
    ACCEPT,
    FIRST,
    GAP,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    RENEW,
    SECOND,
    configure,
    earliest_group,
    every_version,
    heartbeat,
    join,
    share_acknowledge,
    share_fetch,
)
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire

TOPIC: Final = "sf-one"
GROUP: Final = "sf-group"
LEAVING: Final = -1


def _ready(wire: Wire, records: int = 10, partitions: int = 1, **configs: str) -> bytes:
    """A topic with batches of five records each, and a group with one member that begins at its start."""
    topic_id = wire.topic(TOPIC, partitions)
    for first in range(0, records, 5):
        wire.produce(TOPIC, *(b"%d" % number for number in range(first, first + 5)))
    earliest_group(wire, GROUP, TOPIC, **configs)
    return topic_id


def _sessions(wire: Wire) -> None:
    topic_id = _ready(wire, partitions=2)
    for version in every_version(ShareFetchRequest):
        for epoch in (1, -1, -2, 2**31 - 1, -(2**31)):
            share_fetch(wire, GROUP, FIRST, epoch, topic_id, [0], version=version)
        for group in (None, "", " ", "sf-none"):
            share_fetch(wire, group, FIRST, 0, topic_id, [1], version=version)
        for member_id in (None, "", "x", "AAAA", FIRST + "A", "!" * 22, FIRST.lower(), "stranger"):
            share_fetch(wire, GROUP, member_id, 0, topic_id, [1], version=version)
        share_fetch(wire, GROUP, FIRST, 0, version=version)
        share_fetch(wire, GROUP, FIRST, 0, topic_id, [0, 1], version=version)
        share_fetch(wire, GROUP, FIRST, 2, version=version)
        share_fetch(wire, GROUP, FIRST, 1, version=version)
        share_fetch(wire, GROUP, FIRST, 1, version=version)
        share_fetch(wire, GROUP, FIRST, 2, topic_id, forget=[0], version=version)
        share_fetch(wire, GROUP, FIRST, 3, topic_id, forget=[0, 1, 9], version=version)
        share_fetch(wire, GROUP, FIRST, 4, topic_id, [0], forget=[0], version=version)
        share_fetch(wire, GROUP, FIRST, 5, topic_id, [1], version=version)
        share_fetch(wire, GROUP, FIRST, 0, topic_id, {0: [(0, 4, [ACCEPT])]}, version=version)
        share_fetch(wire, GROUP, FIRST, -1, topic_id, [0], version=version)
        share_fetch(wire, GROUP, FIRST, 0, topic_id, [0], version=version)
        share_fetch(wire, GROUP, FIRST, -1, version=version)
        share_fetch(wire, GROUP, FIRST, -1, version=version)
    with wire.another() as other:
        share_fetch(wire, GROUP, FIRST, 0, topic_id, [1])
        share_fetch(other, GROUP, FIRST, 1)
        share_fetch(other, GROUP, SECOND, 0, topic_id, [1])
        share_fetch(wire, GROUP, FIRST, 2)


def _acknowledge_sessions(wire: Wire) -> None:
    topic_id = _ready(wire, partitions=2)
    one = {0: [(0, 0, [ACCEPT])]}
    for version in every_version(ShareAcknowledgeRequest):
        for epoch in (0, 1, -1, -2, 2**31 - 1):
            share_acknowledge(wire, GROUP, FIRST, epoch, topic_id, one, version=version)
        for group in (None, "", "sf-none"):
            share_acknowledge(wire, group, FIRST, 1, topic_id, one, version=version)
        for member_id in (None, "", "x", SECOND):
            share_acknowledge(wire, GROUP, member_id, 1, topic_id, one, version=version)
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0])
    epoch = 1
    for version in every_version(ShareAcknowledgeRequest):
        share_acknowledge(wire, GROUP, FIRST, epoch, version=version)
        share_acknowledge(wire, GROUP, FIRST, epoch + 1, topic_id, {1: [(0, 0, [ACCEPT])]}, version=version)
        share_acknowledge(wire, GROUP, FIRST, epoch + 2, topic_id, {9: [(0, 0, [ACCEPT])]}, version=version)
        share_acknowledge(wire, GROUP, FIRST, epoch + 3, NOWHERE, one, version=version)
        share_acknowledge(wire, GROUP, FIRST, epoch + 4, bytes(16), one, version=version)
        share_acknowledge(wire, GROUP, FIRST, epoch + 4, topic_id, one, version=version)
        epoch += 5
    share_acknowledge(wire, GROUP, FIRST, LEAVING, topic_id, {0: [(1, 1, [ACCEPT])]})
    share_acknowledge(wire, GROUP, FIRST, LEAVING, topic_id, {0: [(2, 2, [ACCEPT])]})
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0])


def _invalid_acknowledgements(wire: Wire) -> None:
    topic_id = _ready(wire)
    epoch = 0
    invalid: list[list[tuple[int, int, list[int]]]] = [
        [],
        [(0, 0, [])],
        [(1, 0, [ACCEPT])],
        [(-1, 0, [ACCEPT])],
        [(-5, -3, [ACCEPT])],
        [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [127])],
        [(0, 0, [GAP])],
        [(0, 1, [ACCEPT, RENEW])],
        [(0, 0, [RENEW])],
        [(3, 4, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 2, [ACCEPT]), (2, 4, [ACCEPT])],
        [(0, 0, [ACCEPT]), (0, 0, [ACCEPT])],
        [(100, 200, [ACCEPT])],
        [(8, 12, [ACCEPT])],
        [(2**62, 2**62, [ACCEPT])],
    ]
    share_fetch(wire, GROUP, FIRST, epoch, topic_id, [0])
    for batches in invalid:
        for version in (1, 2):
            epoch = _next(
                share_acknowledge(wire, GROUP, FIRST, epoch + 1, topic_id, {0: batches}, version=version), epoch
            )
            epoch = _next(
                share_fetch(wire, GROUP, FIRST, epoch + 1, topic_id, {0: batches}, version=version, max_wait_ms=100),
                epoch,
            )
    share_acknowledge(wire, GROUP, FIRST, epoch + 1, topic_id, {0: [(0, 9, [ACCEPT])]})


def _next(answer: Any, epoch: int) -> int:
    """The session's epoch after a request with ``epoch + 1``: it rises unless the request was refused as a whole."""
    return epoch if answer.error_code else epoch + 1


def _types(wire: Wire) -> None:
    """Accept, release, reject and gaps: of whole batches, of parts, one by one and mixed; what comes next."""
    topic_id = _ready(wire, 20)
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0], max_records=5, batch_size=5)
    share_fetch(wire, GROUP, FIRST, 1, max_records=5, batch_size=5)
    mixed = [(0, 4, [ACCEPT, RELEASE, REJECT, GAP, ACCEPT]), (5, 9, [RELEASE])]
    share_acknowledge(wire, GROUP, FIRST, 2, topic_id, {0: mixed})
    share_acknowledge(wire, GROUP, FIRST, 3, topic_id, {0: [(0, 0, [ACCEPT])]})
    share_acknowledge(wire, GROUP, FIRST, 4, topic_id, {0: [(1, 1, [ACCEPT])]})
    share_fetch(wire, GROUP, FIRST, 5)
    share_fetch(wire, GROUP, FIRST, 6, topic_id, {0: [(1, 1, [ACCEPT]), (5, 8, [ACCEPT])]})
    share_fetch(wire, GROUP, FIRST, 7, topic_id, {0: [(9, 9, [REJECT]), (10, 19, [RELEASE])]})
    share_fetch(wire, GROUP, FIRST, 8, topic_id, {0: [(10, 19, [ACCEPT])]})
    share_fetch(wire, GROUP, FIRST, 9)
    share_acknowledge(wire, GROUP, FIRST, 10, topic_id, {0: [(10, 10, [ACCEPT])]})


def _renew(wire: Wire) -> None:
    topic_id = _ready(wire)
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0])
    renew = {0: [(0, 4, [RENEW])]}
    share_acknowledge(wire, GROUP, FIRST, 1, topic_id, renew, is_renew_ack=True)
    share_acknowledge(wire, GROUP, FIRST, 2, topic_id, {0: [(0, 1, [RENEW, ACCEPT])]}, is_renew_ack=True)
    share_acknowledge(wire, GROUP, FIRST, 3, topic_id, {0: [(1, 1, [RENEW])]}, is_renew_ack=True)
    share_acknowledge(wire, GROUP, FIRST, 4, topic_id, renew)
    share_acknowledge(wire, GROUP, FIRST, 5, topic_id, {0: [(2, 2, [ACCEPT])]}, is_renew_ack=True)
    share_acknowledge(wire, GROUP, FIRST, 6, topic_id, renew, version=1)
    none: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    epoch = 7
    for fields in (none, *({**none, name: 1} for name in none)):
        request = {0: [(3, 4, [RENEW])]}
        answer = share_fetch(wire, GROUP, FIRST, epoch, topic_id, request, is_renew_ack=True, **fields)
        epoch += not answer.error_code
    share_fetch(wire, GROUP, FIRST, epoch, topic_id, {0: [(3, 4, [RENEW])]})
    configure(wire, GROUP, share_renew_acknowledge_enable="false")
    share_acknowledge(wire, GROUP, FIRST, epoch + 1, topic_id, {0: [(3, 4, [RENEW])]}, is_renew_ack=True)
    share_acknowledge(wire, GROUP, FIRST, epoch + 2, topic_id, {0: [(3, 4, [ACCEPT])]})
    share_acknowledge(wire, GROUP, FIRST, LEAVING, topic_id, {0: [(5, 5, [RENEW])]}, is_renew_ack=True)


def _limits(wire: Wire) -> None:
    """How many records are acquired: by batches or to the record, and bytes and records that allow none."""
    topic_id = _ready(wire, 30)
    epoch = 0
    limits: list[dict[str, Any]] = [
        {"max_records": 3, "batch_size": 2},
        {"max_records": 3, "batch_size": 2, "share_acquire_mode": RECORD_LIMIT},
        {"max_records": 7, "batch_size": 500},
        {"max_records": 0},
        {"max_records": -1},
        {"max_bytes": 0},
        {"max_bytes": 1, "max_records": 1},
        {"min_bytes": 0},
        {"min_bytes": -1},
        {"max_wait_ms": -1},
        {"max_wait_ms": 0},
        {"share_acquire_mode": 2},
        {"share_acquire_mode": -1},
    ]
    for fields in limits:
        answer = share_fetch(wire, GROUP, FIRST, epoch, topic_id, [0], **fields)
        if answer is not None and not answer.error_code:
            epoch += 1
    with wire.another() as other:
        # A group with a session keeps its batches in memory, and so where they were split.
        share_fetch(other, GROUP, SECOND, 0)
        share_fetch(wire, GROUP, FIRST, LEAVING)
        share_fetch(wire, GROUP, FIRST, 0, topic_id, [0], max_records=4, share_acquire_mode=RECORD_LIMIT)
        share_fetch(other, GROUP, SECOND, 0, topic_id, [0], max_records=4, share_acquire_mode=RECORD_LIMIT)
        share_acknowledge(other, GROUP, SECOND, 1, topic_id, {0: [(0, 3, [ACCEPT])]})
        share_acknowledge(other, GROUP, SECOND, 2, topic_id, {0: [(4, 7, [ACCEPT])]})
    share_acknowledge(wire, GROUP, FIRST, 1, topic_id, {0: [(0, 3, [RELEASE])]})
    share_fetch(wire, GROUP, FIRST, 2, max_records=1)


def _deliveries(wire: Wire) -> None:
    """Each release counts; after the last delivery the records are archived."""
    topic_id = _ready(wire, 10, share_delivery_count_limit="3")
    epoch = 0
    for _ in range(6):
        answer = share_fetch(wire, GROUP, FIRST, epoch, topic_id, [0], max_records=5, batch_size=5)
        acquired = answer.responses[0].partitions[0].acquired_records if answer.responses else []
        batches = [(each.first_offset, each.last_offset, [RELEASE]) for each in acquired]
        share_acknowledge(wire, GROUP, FIRST, epoch + 1, topic_id, {0: batches} if batches else None)
        epoch += 2
    share_fetch(wire, GROUP, FIRST, LEAVING)


def _members(wire: Wire) -> None:
    """Two members at one partition; a session's end releases, and that of a member that has left too."""
    topic_id = _ready(wire)
    join(wire, GROUP, SECOND, TOPIC)
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0], max_records=5, batch_size=5)
    with wire.another() as other:
        share_fetch(other, GROUP, SECOND, 0, topic_id, [0])
        share_acknowledge(other, GROUP, SECOND, 1, topic_id, {0: [(0, 4, [ACCEPT])]})
        share_acknowledge(other, GROUP, SECOND, 2, topic_id, {0: [(5, 6, [ACCEPT])]})
        share_fetch(other, GROUP, SECOND, LEAVING, topic_id, {0: [(7, 7, [ACCEPT])]})
    share_fetch(wire, GROUP, FIRST, 1)
    heartbeat(wire, GROUP, SECOND, -1)
    share_acknowledge(wire, GROUP, FIRST, LEAVING, topic_id, {0: [(0, 0, [ACCEPT])]})
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0])
    heartbeat(wire, GROUP, FIRST, -1)
    share_fetch(wire, GROUP, FIRST, 1)
    share_acknowledge(wire, GROUP, FIRST, 2, topic_id, {0: [(1, 1, [ACCEPT])]})


def _topics(wire: Wire) -> None:
    """Partitions and topics that are not there, that nobody subscribes to, and offsets that have gone."""
    topic_id = _ready(wire, partitions=2)
    other_id = wire.topic("sf-unsubscribed")
    wire.produce("sf-unsubscribed", b"0", b"1")
    for wanted, partitions in ((NOWHERE, [0]), (bytes(16), [0]), (topic_id, [7]), (topic_id, [-1]), (other_id, [0])):
        share_fetch(wire, GROUP, FIRST, 0, wanted, partitions)
        share_fetch(wire, GROUP, FIRST, 1)
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0, 0])
    share_fetch(wire, GROUP, FIRST, 0, topic_id, [0], max_records=5, batch_size=5)
    start = DeleteRecordsPartition(partition_index=0, offset=3)
    topics = [DeleteRecordsTopic(name=TOPIC, partitions=[start])]
    wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)
    share_acknowledge(wire, GROUP, FIRST, 1, topic_id, {0: [(0, 1, [RELEASE]), (2, 4, [RELEASE])]})
    share_fetch(wire, GROUP, FIRST, 2)


SWEEPS: Final[dict[str, Sweep]] = {
    "share-fetch-sessions": _sessions,
    "share-acknowledge-sessions": _acknowledge_sessions,
    "share-acknowledge-invalid": _invalid_acknowledgements,
    "share-acknowledge-types": _types,
    "share-acknowledge-renew": _renew,
    "share-fetch-limits": _limits,
    "share-fetch-deliveries": _deliveries,
    "share-fetch-members": _members,
    "share-fetch-topics": _topics,
}
