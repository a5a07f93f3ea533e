"""ShareFetch and ShareAcknowledge of members that mean no good: answered, bounded, and without effect on others."""

from __future__ import annotations

import random

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.core.share import sessions
from oncelog.node.share import share_partitions
from oncelog.wire.messages.share_acknowledge import AcknowledgementBatch, ShareAcknowledgeRequest
from oncelog.wire.messages.share_acknowledge import AcknowledgePartition as Acknowledged
from oncelog.wire.messages.share_acknowledge import AcknowledgeTopic as AcknowledgedTopic
from oncelog.wire.messages.share_fetch import AcknowledgementBatch as Piggybacked
from oncelog.wire.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import batch, produce
from tests.scenario.share.members import ACCEPT, HandPersister, Member, acquired, broker_with_group, errors, write

EDGES = (0, 1, -1, 2, 5, 127, -128, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
SMALL = tuple(edge for edge in EDGES if -128 <= edge <= 127)
INT32 = tuple(edge for edge in EDGES if -(2**31) <= edge < 2**31)
T = ("t", 0)


@pytest.fixture
def driver() -> Driver:
    driver = broker_with_group(HandPersister())
    write(driver, "t", 5)
    return driver


class Hostile:
    """Requests of a member whose session is open, with fields at the edges of their types."""

    def __init__(self, driver: Driver, random_: random.Random) -> None:
        self.driver, self.random = driver, random_
        self.member = Member(driver, member_id="bad")
        self.ids = [self.member.topic_id("t"), self.member.topic_id("t"), bytes(16), b"\xff" * 16]
        self.member.fetch(T)

    def batches(self, kind: type) -> list:
        return [
            kind(
                first_offset=self.random.choice(EDGES),
                last_offset=self.random.choice(EDGES),
                acknowledge_types=self.random.choices(SMALL, k=self.random.choice([0, 1, 1, 1, 2, 5])),
            )
            for _ in range(self.random.choice([0, 1, 1, 2]))
        ]

    def fetch(self) -> ShareFetchRequest:
        choose = self.random.choice
        return ShareFetchRequest(
            min_bytes=choose(INT32),
            max_bytes=choose(INT32),
            max_records=choose(INT32),
            batch_size=choose(INT32),
            max_wait_ms=choose((0, 1, 10, -1, -(2**31))),
            share_acquire_mode=choose(SMALL),
            is_renew_ack=choose((False, True)),
            topics=[
                FetchTopic(
                    topic_id=choose(self.ids),
                    partitions=[
                        FetchPartition(partition_index=choose(INT32), acknowledgement_batches=self.batches(Piggybacked))
                    ],
                )
                for _ in range(choose([0, 1, 2]))
            ],
            forgotten_topics_data=[ForgottenTopic(topic_id=choose(self.ids), partitions=[choose(INT32)])],
        )

    def acknowledgement(self) -> ShareAcknowledgeRequest:
        choose = self.random.choice
        return ShareAcknowledgeRequest(
            is_renew_ack=choose((False, True)),
            topics=[
                AcknowledgedTopic(
                    topic_id=choose(self.ids),
                    partitions=[
                        Acknowledged(
                            partition_index=choose((0, 0, 1, -1, 2**31 - 1)),
                            acknowledgement_batches=self.batches(AcknowledgementBatch),
                        )
                    ],
                )
            ],
        )

    def step(self) -> None:
        fetches = self.random.choice((True, False))
        request: ShareFetchRequest | ShareAcknowledgeRequest = self.fetch() if fetches else self.acknowledgement()
        request.group_id, request.member_id = "g", "bad"
        session = next(iter(self.driver.node.share.partitions.sessions._sessions.values()), None)
        in_order = 0 if session is None else session.epoch
        request.share_session_epoch = self.random.choice([in_order, in_order, in_order, *INT32])
        peer: Peer = self.member.peer
        peer.send(request, self.random.choice([1, 2]))
        self.driver.advance(10)
        assert self.driver.fatal is None, self.driver.fatal
        assert peer.responses or peer.closed
        peer.responses.clear()
        if peer.closed:
            self.member = Member(self.driver, member_id="bad")


@pytest.mark.parametrize("seed", [random.randrange(2**32) for _ in range(4)])
def test_edge_values(driver, seed) -> None:
    hostile = Hostile(driver, random.Random(seed))
    for _ in range(60):
        hostile.step()
    assert not [report for report in driver.reports if "failed" in report], driver.reports
    driver.disconnect(hostile.member.peer)
    good = Member(driver)
    assert len(driver.node.share.partitions.led_partitions) == 0
    assert good.fetch(T).error_code == 0


def test_a_session_for_more_partitions_than_fit(driver, monkeypatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_PARTITIONS", 100)
    member = Member(driver)
    answer = member.fetch(*[("t", index) for index in range(101)])
    assert answer.error_code == E.SHARE_SESSION_LIMIT_REACHED
    assert driver.node.share.partitions.sessions.partition_count == 0


def test_share_partitions_of_ever_more_groups(driver, monkeypatch) -> None:
    monkeypatch.setattr(share_partitions, "MOST", 3)
    members = [Member(driver, group=f"g{number}") for number in range(5)]
    for member in members:
        member.fetch(T, max_wait_ms=0)
    assert len(driver.node.share.partitions.led_partitions) == 3
    late = members[4]
    late.send_fetch(max_wait_ms=500)
    assert not late.peer.responses  # waits, as if there were no records
    driver.disconnect(members[0].peer)
    driver.advance(500)
    assert late.answer().error_code == 0
    late.fetch()
    assert len(driver.node.share.partitions.led_partitions) == 3


def test_an_acknowledgement_of_all_offsets(driver) -> None:
    member = Member(driver)
    member.fetch(T)
    assert errors(member.acknowledge(("t", 0, 0, 2**63 - 1, ACCEPT)))[0] in (E.INVALID_REQUEST, E.INVALID_RECORD_STATE)
    assert errors(member.acknowledge(("t", 0, -(2**63), 2**63 - 1, ACCEPT)))[0] != E.NONE
    assert errors(member.acknowledge(("t", 0, 0, 4, ACCEPT))) == [E.NONE]
    assert acquired(member.fetch()) == []


def test_sessions_opened_again_and_again(driver) -> None:
    member = Member(driver)
    for _ in range(50):
        member.epoch = 0
        member.fetch(T)
    shares = driver.node.share.partitions
    assert (len(shares.sessions), shares.sessions.partition_count) == (1, 1)
    driver.disconnect(member.peer)
    assert (len(shares.sessions), len(shares.led_partitions)) == (0, 0)


def test_a_request_behind_a_closed_client_opens_no_session_for_ever(driver) -> None:
    member = Member(driver)
    driver.hold_syncs = True
    member.peer.send(produce("t", batch(driver, b"a")), 9)
    member.send_fetch(T)
    driver.disconnect(member.peer)
    driver.release()
    assert len(driver.node.share.partitions.sessions) == 0
