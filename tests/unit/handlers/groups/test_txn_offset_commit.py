"""Answers of TxnOffsetCommit before, and instead of, asking a coordinator; as Apache Kafka 4.3.1, by version.

What the coordinators say is in ``tests/scenario/node/test_transactional_offsets.py``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.core.groups.model import CommitReply, GroupDecision
from oncelog.core.producers.state import ProducerState
from oncelog.core.transactions.model import AddReply, VerifyReply
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.waits import AddToTransaction, Coordinate
from oncelog.handlers.transactions import txn_offset_commit
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.handlers.groups.bench import T_ID, U_ID, Authoriser, image, topic


class Log:
    """The log of the partition that keeps the group, as far as its producers go."""

    def __init__(self) -> None:
        self.producers = ProducerState()

    def write_marker(self, producer_id: int) -> None:
        """A marker of the producer is in the log."""
        self.producers.verifications.appended(producer_id)


class Broker:
    """All four ports of a broker that coordinates every group unless ``refused`` says why not."""

    def __init__(self) -> None:
        self.image = image(topic("t", T_ID, 2), topic("u", U_ID, 1), topic(CONSUMER_OFFSETS, b"o" * 16, 1))
        self.refused = E.NONE
        self.config = {"transaction.partition.verification.enable": True}
        self.group_log = Log()

    def verification_failed(self, partition_count: int) -> None:
        """See ``handlers.broker.ports.Transactions``."""

    def refusal(self, group_id: str) -> E:
        """See ``handlers.broker.ports.Groups``."""
        return self.refused

    def leader_log(self, partition: TopicPartition) -> Any:
        """See ``handlers.broker.ports.Partitions``."""
        return SimpleNamespace(log=self.group_log)

    def shard_of(self, transactional_id: str) -> None:
        """See ``handlers.broker.ports.Transactions``: another broker coordinates it."""


class Bench:
    """The handler on that broker; waits are answered by what the test says."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.authoriser = Authoriser()
        self.waits: list[Any] = []

    def begin(self, version: int, topics: dict[str, list[int]], group: str = "g") -> Any:
        """The handler, to be stepped by hand."""
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=1,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name, partitions=[TxnOffsetCommitRequestPartition(partition_index=index) for index in indexes]
                )
                for name, indexes in topics.items()
            ],
        )
        return txn_offset_commit.handle(request, self.context(version))

    def context(self, version: int) -> Context:
        ports: Any = self.broker
        return Context(
            ports, ports, ports, ports, self.authoriser, 28, version, 1, "c", "/127.0.0.1", "me", ("me", 9092), 0
        )

    def ask(self, version: int, topics: dict[str, list[int]], *replies: Any, group: str = "g") -> Any:
        """The answer to each partition, topic by topic."""
        steps = self.begin(version, topics, group)
        answers = iter(replies)
        try:
            self.waits = [next(steps)]
            while True:
                reply = next(answers)
                refused = isinstance(reply, E)
                self.waits.append(steps.throw(CoordinatorRefusal(reply)) if refused else steps.send(reply))
        except StopIteration as stopped:
            return [
                (t.name, [(p.partition_index, E(p.error_code)) for p in t.partitions]) for t in stopped.value.topics
            ]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("denied", "told"),
    [
        ((Operation.WRITE, "x"), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ((Operation.READ, "g"), E.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_is_told_for_every_partition(bench: Bench, denied: tuple[Operation, str], told: E) -> None:
    bench.authoriser.denied.add(denied)
    assert bench.ask(3, {"t": [0, 9], "nope": [1]}) == [("t", [(0, told), (9, told)]), ("nope", [(1, told)])]


def test_refusals_of_partitions_come_first_and_share_their_topics_entry(bench: Bench) -> None:
    bench.authoriser.denied.add((Operation.READ, "u"))
    answered = bench.ask(3, {"nope": [0], "t": [0, 9], "u": [0]}, E.COORDINATOR_NOT_AVAILABLE)
    assert answered == [
        ("nope", [(0, E.UNKNOWN_TOPIC_OR_PARTITION)]),
        ("t", [(9, E.UNKNOWN_TOPIC_OR_PARTITION), (0, E.COORDINATOR_NOT_AVAILABLE)]),
        ("u", [(0, E.TOPIC_AUTHORIZATION_FAILED)]),
    ]


def test_topics_go_by_id_from_version_6_on(bench: Bench) -> None:
    bench.authoriser.denied.add((Operation.READ, "u"))
    topics = [
        TxnOffsetCommitRequestTopic(
            topic_id=topic_id, partitions=[TxnOffsetCommitRequestPartition(partition_index=i) for i in (0, 9)]
        )
        for topic_id in (T_ID, b"x" * 16, bytes(16), U_ID)
    ]
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=1, topics=topics)
    steps = txn_offset_commit.handle(request, bench.context(6))
    assert isinstance(next(steps), AddToTransaction)
    committing: Any = steps.send(AddReply(E.NONE))
    commits: list[Any] = []

    class Shard:
        def commit_transactional_offsets(self, commit: Any, token: int, now_ms: int) -> GroupDecision:
            commits.append(commit)
            return GroupDecision(reply=CommitReply(E.STALE_MEMBER_EPOCH))

    with pytest.raises(StopIteration) as stopped:
        steps.send(committing.decide(Shard(), 1, 0).reply)
    assert [(part.topic, part.topic_id, part.partition) for part in commits[0].partitions] == [("t", T_ID, 0)]
    assert commits[0].knows_epochs
    answered = [
        (topic.topic_id, [(part.partition_index, part.error_code) for part in topic.partitions])
        for topic in stopped.value.value.topics
    ]
    assert answered == [
        (T_ID, [(9, E.UNKNOWN_TOPIC_OR_PARTITION), (0, E.STALE_MEMBER_EPOCH)]),
        (b"x" * 16, [(0, E.UNKNOWN_TOPIC_ID), (9, E.UNKNOWN_TOPIC_ID)]),
        (bytes(16), [(0, E.UNKNOWN_TOPIC_ID), (9, E.UNKNOWN_TOPIC_ID)]),
        (U_ID, [(0, E.TOPIC_AUTHORIZATION_FAILED), (9, E.TOPIC_AUTHORIZATION_FAILED)]),
    ]


def test_nobody_is_asked_when_nothing_is_left(bench: Bench) -> None:
    assert bench.ask(3, {}) == []
    assert bench.ask(3, {"nope": [0]}) == [("nope", [(0, E.UNKNOWN_TOPIC_OR_PARTITION)])]
    assert bench.ask(3, {"t": [0]}, group="") == [("t", [(0, E.INVALID_GROUP_ID)])]
    bench.broker.refused = E.NOT_COORDINATOR
    assert bench.ask(5, {"t": [0]}) == [("t", [(0, E.NOT_COORDINATOR)])], "nothing was added to the transaction"


def test_old_clients_do_not_know_that_a_coordinator_can_be_loading(bench: Bench) -> None:
    for version, told in ((1, E.COORDINATOR_NOT_AVAILABLE), (2, E.COORDINATOR_LOAD_IN_PROGRESS)):
        assert bench.ask(version, {"t": [0]}, E.COORDINATOR_LOAD_IN_PROGRESS) == [("t", [(0, told)])]


@pytest.mark.parametrize(
    ("version", "refused", "told"),
    [
        (3, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (5, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (3, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (4, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (3, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (4, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_refused_verification_in_the_words_of_the_version(bench: Bench, version: int, refused: E, told: E) -> None:
    assert bench.ask(version, {"t": [0]}, VerifyReply(refused)) == [("t", [(0, told)])]


def test_without_verification_old_versions_do_not_ask_but_version_5_still_adds(bench: Bench) -> None:
    bench.broker.config["transaction.partition.verification.enable"] = False
    for version, first in ((4, Coordinate), (5, AddToTransaction)):
        bench.ask(version, {"t": [0]}, E.NOT_COORDINATOR)
        assert isinstance(bench.waits[0], first)


HERE = TopicPartition(CONSUMER_OFFSETS, 0)
YES = {3: VerifyReply(E.NONE, {HERE: E.NONE}), 5: AddReply(E.NONE)}
"""Answers of the transaction's coordinator, elsewhere, by version."""


class Shard:
    """A group shard that commits whatever gets to it."""

    def commit_transactional_offsets(self, *_: Any) -> GroupDecision:
        """See ``GroupShard``."""
        return GroupDecision(reply=CommitReply(E.NONE))


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_that_a_marker_overtakes_on_their_way_to_the_group_are_refused(bench: Bench, version: int) -> None:
    """The coordinator of the transaction is elsewhere: only the marker tells that its yes is worth nothing now."""
    log, shard = bench.broker.group_log, Shard()
    for overtaken, told in ((False, E.NONE), (True, E.INVALID_TXN_STATE)):
        steps = bench.begin(version, {"t": [0]})
        assert isinstance(next(steps), AddToTransaction)
        committing = steps.send(YES[version])
        assert isinstance(committing, Coordinate)
        if overtaken:
            log.write_marker(1)
        reply = committing.decide(shard, 1, 0).reply
        assert isinstance(reply, CommitReply)
        assert reply.error_code is told
        steps.close()
        assert len(log.producers.verifications) == 0


def test_who_adds_the_partition_is_asked_about_anew_when_a_marker_came_in_between(bench: Bench) -> None:
    """It may have waited for that very marker, of the transaction before; once."""
    log = bench.broker.group_log
    steps = bench.begin(5, {"t": [0]})
    next(steps)
    log.write_marker(1)
    assert isinstance(steps.send(YES[5]), AddToTransaction)
    log.write_marker(1)
    committing = steps.send(YES[5])
    assert committing.decide(Shard(), 1, 0).reply.error_code is E.INVALID_TXN_STATE


def test_every_error_is_documented_once() -> None:
    assert all(isinstance(code, E) and when for code, when in txn_offset_commit.ERRORS.items())
