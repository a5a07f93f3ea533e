"""`python -m bench.acls`: what 10,000 access control lists cost a Produce.

Two nodes with their files in memory take the same requests in turns: one lets everybody do everything, the other
decides by lists of topics, groups and prefixes, the producer's own right among them. Processor time is compared, round
by round; there are no sockets and no disk beside it, so that the ratio is the largest there can be. The first decision
after a change of the lists, which makes the index anew, is timed as well.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator

from tests.peers.clients.sweep.wire import batch
from tests.scenario.node.driver import Driver, Peer

from oncelog.node.kernel.events import RequestReceived
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPICS = [f"team-{number}-orders" for number in range(20)]
PRODUCER = "User:producer"
ADMIN = "User:admin"
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ADMIN,
    "log.sync.policy": "none",
}
_A_REQUEST = 5_000
_TOPIC, _GROUP, _LITERAL, _PREFIXED, _READ, _WRITE, _ALLOW = 2, 3, 3, 4, 3, 4, 3


def lists(count: int) -> Iterator[AclCreation]:
    """Entries of many teams, and those of the producer: one by prefix for all of its topics."""
    for number in range(count - 1):
        kind, pattern = (_TOPIC, _GROUP)[number % 2], (_LITERAL, _PREFIXED)[number % 10 == 0]
        name = f"team-{number % (count // 2)}-{'x' * (number % 17)}"
        yield _entry(kind, pattern, name, f"User:member-{number}", _READ)
    yield _entry(_TOPIC, _PREFIXED, "team-", PRODUCER, _WRITE)


def _entry(kind: int, pattern: int, name: str, principal: str, operation: int) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=_ALLOW,
    )


class Side:
    """A node and a producer's connection to it."""

    def __init__(self, config: dict[str, str]) -> None:
        self.driver = Driver(config)
        self.admin = self.driver.connect(principal=ADMIN)
        self.producer: Peer = self.driver.connect(principal=PRODUCER)
        topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in TOPICS]
        self.admin.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        self._correlation_ids = itertools.count(1_000_000)

    def round_s(self, requests: int) -> float:
        """Processor time in which requests to one topic after the other are decided."""
        frames = [self._frame(TOPICS[number % len(TOPICS)]) for number in range(requests)]
        handle, now_ms, producer = self.driver.node.handle, self.driver.now_ms, self.producer.id
        begun_s = time.process_time()
        for frame in frames:
            handle(RequestReceived(producer, memoryview(frame)), now_ms)
        return time.process_time() - begun_s

    def _frame(self, topic: str) -> bytearray:
        partitions = [PartitionProduceData(index=index, records=batch(b"x" * 100)) for index in range(3)]
        data = [TopicProduceData(name=topic, partition_data=partitions)]
        header = RequestHeader(0, 9, next(self._correlation_ids), "bench")
        request = ProduceRequest(acks=1, timeout_ms=5_000, topic_data=data)
        return bytearray(b"".join(bytes(chunk) for chunk in encode_request(header, request))[4:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.acls", description=__doc__)
    parser.add_argument("--acls", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=300, help="in a round (default 300)")
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    open_to_all, secured = Side({"log.sync.policy": "none"}), Side(SECURED)
    for some in _batched(args.acls):
        secured.admin.ask(CreateAclsRequest(creations=list(some)), 3)
    sides = (open_to_all, secured)
    for side in sides:
        side.round_s(args.requests)
    ratios = []
    for number in range(args.rounds):
        spent_s = {side: side.round_s(args.requests) for side in (sides if number % 2 else sides[::-1])}
        ratios.append(spent_s[secured] / spent_s[open_to_all])
    ratios.sort()
    print(f"{args.acls} ACLs: {statistics.median(ratios):.3f} × the processor time of a Produce without an authorizer")
    print(
        f"  ({ratios[0]:.3f}–{ratios[-1]:.3f}, {args.rounds} pairs of {args.requests} requests of 3 partitions; "
        "goal 1.03)"
    )
    secured.admin.ask(CreateAclsRequest(creations=[_entry(_TOPIC, _LITERAL, "one-more", PRODUCER, _READ)]), 3)
    print(
        f"first Produce after a change: {secured.round_s(1) * 1000:.1f} ms, the next {secured.round_s(1) * 1000:.2f} ms"
    )


def _batched(count: int) -> Iterator[list[AclCreation]]:
    entries = list(lists(count))
    for start in range(0, len(entries), _A_REQUEST):
        yield entries[start : start + _A_REQUEST]


if __name__ == "__main__":
    main()
