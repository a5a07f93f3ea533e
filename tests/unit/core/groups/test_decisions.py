"""Every request in every state: what is answered and which state follows.

The codes are those Apache Kafka 4.3.1 gave to the same requests, sent raw, where a request can reach the state there
without a race; the others follow its source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import GroupId, TopicName, TopicPartition
from oncelog.core.groups import commits
from oncelog.core.groups.model import CommitReply, LeaveReply, Protocol
from oncelog.core.groups.settings import GroupSettings
from tests.scenario.groups.driver import GROUP, TOPIC, Driver, subscription

DEAD, EMPTY, PREPARING, COMPLETING, STABLE = "Dead", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
PARKED = None
OTHER = Protocol("other", b"")


@dataclass
class Case:
    """A group in one state: the leader ``a``, the follower ``b`` and the generation they know."""

    driver: Driver
    a: str = "a"
    b: str = "b"
    generation: int = 1


def group_in(state: str) -> Case:
    """A group brought to ``state`` by requests."""
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3000))
    if state == DEAD:
        return Case(driver)
    if state == EMPTY:
        driver.commit({0: 1})
        return Case(driver, generation=0)
    tokens = []
    for name in "ab":
        driver.join(name=name, version=3)
        tokens.append(driver.last_token)
    driver.advance(6000)
    a, b = (driver.replies[token].member_id for token in tokens)
    if state != COMPLETING:
        driver.sync(b, 1)
        driver.sync(a, 1, {a: b"A", b: b"B"})
    if state == PREPARING:
        driver.join(a)
    assert driver.state() == state
    return Case(driver, a, b)


def code(reply: Any) -> E | None:
    """The error code of a reply, or of the first part of one; None when parked."""
    if isinstance(reply, list):
        reply = reply[0]
    if isinstance(reply, LeaveReply):
        return reply.members[0][1]
    if isinstance(reply, CommitReply) and reply.partitions:
        return reply.partitions[0]
    return None if reply is None else E(getattr(reply, "error_code", reply))


REQUESTS: dict[str, Callable[[Case], object | None]] = {
    "join, new": lambda c: c.driver.join(name="c"),
    "join, new, version 3": lambda c: c.driver.join(name="c", version=3),
    "join, new static": lambda c: c.driver.join(name="c", instance="i"),
    "join, new, other protocol": lambda c: c.driver.join(name="c", protocols=(OTHER,)),
    "join, new, other type": lambda c: c.driver.join(name="c", protocol_type="connect"),
    "join, new, no protocols": lambda c: c.driver.join(name="c", protocols=()),
    "join, short session": lambda c: c.driver.join(name="c", session_ms=5999),
    "join, long session": lambda c: c.driver.join(name="c", session_ms=1_800_001),
    "join, unknown member": lambda c: c.driver.join("zz"),
    "join, unknown static": lambda c: c.driver.join("zz", instance="i"),
    "join, leader again": lambda c: c.driver.join(c.a),
    "join, follower again": lambda c: c.driver.join(c.b),
    "join, follower changed": lambda c: c.driver.join(c.b, protocols=("range", OTHER)),
    "join, follower, other protocol": lambda c: c.driver.join(c.b, protocols=(OTHER,)),
    "sync, leader": lambda c: c.driver.sync(c.a, c.generation, {c.a: b"1", c.b: b"2"}),
    "sync, follower": lambda c: c.driver.sync(c.b, c.generation),
    "sync, unknown": lambda c: c.driver.sync("zz", c.generation),
    "sync, old generation": lambda c: c.driver.sync(c.b, c.generation - 1),
    "sync, other protocol": lambda c: c.driver.sync(c.b, c.generation, protocol="other"),
    "sync, unknown static": lambda c: c.driver.sync(c.b, c.generation, instance="i"),
    "heartbeat": lambda c: c.driver.heartbeat(c.b, c.generation),
    "heartbeat, old generation": lambda c: c.driver.heartbeat(c.b, c.generation - 1),
    "heartbeat, unknown": lambda c: c.driver.heartbeat("zz", c.generation),
    "leave": lambda c: c.driver.leave(c.b),
    "leave, unknown": lambda c: c.driver.leave("zz"),
    "leave, unknown static": lambda c: c.driver.leave(("", "i")),
    "commit, simple": lambda c: c.driver.commit({0: 9}),
    "commit, member": lambda c: c.driver.commit({0: 9}, c.b, c.generation),
    "commit, old generation": lambda c: c.driver.commit({0: 9}, c.b, c.generation + 1),
    "commit, no generation": lambda c: c.driver.commit({0: 9}, c.b, -1),
    "commit, unknown": lambda c: c.driver.commit({0: 9}, "zz", c.generation),
    "commit, unknown, version 8": lambda c: c.driver.commit({0: 9}, "zz", c.generation, version=8),
    "commit, long metadata": lambda c: c.driver.commit({0: 9}, c.b, c.generation, metadata="é" * 4097),
    "send, anonymous": lambda c: c.driver.send({0: 9}),
    "send, member": lambda c: c.driver.send({0: 9}, c.b, c.generation),
    "send, old generation": lambda c: c.driver.send({0: 9}, c.b, c.generation + 1),
    "send, no generation": lambda c: c.driver.send({0: 9}, c.b, -1),
    "send, no member": lambda c: c.driver.send({0: 9}, "", c.generation),
    "send, unknown": lambda c: c.driver.send({0: 9}, "zz", c.generation),
    "send, unknown static": lambda c: c.driver.send({0: 9}, c.b, c.generation, instance="i"),
    "send, static alone": lambda c: c.driver.send({0: 9}, instance="i"),
    "send, long metadata": lambda c: c.driver.send({0: 9}, c.b, c.generation, metadata="é" * 4097),
    "delete group": lambda c: c.driver.carry_out(
        c.driver.shard.delete_group(GROUP, c.driver.token(), 0), c.driver.last_token
    ),
    "delete offset, subscribed": lambda c: c.driver.carry_out(
        c.driver.shard.delete_offsets(GROUP, [TopicPartition(TOPIC, 0)], c.driver.token(), 0), c.driver.last_token
    ),
    "delete offset, other topic": lambda c: c.driver.carry_out(
        c.driver.shard.delete_offsets(GROUP, [TopicPartition(TopicName("u"), 0)], c.driver.token(), 0),
        c.driver.last_token,
    ),
}

U, R = E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS
P, C, S = PREPARING, COMPLETING, STABLE
OUTCOMES: dict[str, tuple[tuple[E | None, str], ...]] = {
    # request: (reply, next state) in Dead, Empty, PreparingRebalance, CompletingRebalance, Stable
    "join, new": tuple((E.MEMBER_ID_REQUIRED, s) for s in (EMPTY, EMPTY, P, C, S)),
    "join, new, version 3": tuple((PARKED, s) for s in (P, P, P, P, P)),
    "join, new static": tuple((PARKED, s) for s in (P, P, P, P, P)),
    "join, new, other protocol": (
        (E.MEMBER_ID_REQUIRED, EMPTY),
        (E.MEMBER_ID_REQUIRED, EMPTY),
        *((E.INCONSISTENT_GROUP_PROTOCOL, s) for s in (P, C, S)),
    ),
    "join, new, other type": (
        (E.MEMBER_ID_REQUIRED, EMPTY),
        (E.MEMBER_ID_REQUIRED, EMPTY),
        *((E.INCONSISTENT_GROUP_PROTOCOL, s) for s in (P, C, S)),
    ),
    "join, new, no protocols": tuple((E.INCONSISTENT_GROUP_PROTOCOL, s) for s in (EMPTY, EMPTY, P, C, S)),
    "join, short session": tuple((E.INVALID_SESSION_TIMEOUT, s) for s in (DEAD, EMPTY, P, C, S)),
    "join, long session": tuple((E.INVALID_SESSION_TIMEOUT, s) for s in (DEAD, EMPTY, P, C, S)),
    "join, unknown member": tuple((U, s) for s in (DEAD, EMPTY, P, C, S)),
    "join, unknown static": tuple((U, s) for s in (DEAD, EMPTY, P, C, S)),
    "join, leader again": ((U, DEAD), (U, EMPTY), (PARKED, P), (E.NONE, C), (PARKED, P)),
    "join, follower again": ((U, DEAD), (U, EMPTY), (E.NONE, C), (E.NONE, C), (E.NONE, S)),
    "join, follower changed": ((U, DEAD), (U, EMPTY), (E.NONE, C), (PARKED, P), (PARKED, P)),
    "join, follower, other protocol": (
        (U, DEAD),
        (U, EMPTY),
        *((E.INCONSISTENT_GROUP_PROTOCOL, s) for s in (P, C, S)),
    ),
    "sync, leader": ((U, DEAD), (U, EMPTY), (R, P), (E.NONE, S), (E.NONE, S)),
    "sync, follower": ((U, DEAD), (U, EMPTY), (R, P), (PARKED, C), (E.NONE, S)),
    "sync, unknown": tuple((U, s) for s in (DEAD, EMPTY, P, C, S)),
    "sync, old generation": ((U, DEAD), (U, EMPTY), *((E.ILLEGAL_GENERATION, s) for s in (P, C, S))),
    "sync, other protocol": ((U, DEAD), (U, EMPTY), *((E.INCONSISTENT_GROUP_PROTOCOL, s) for s in (P, C, S))),
    "sync, unknown static": tuple((U, s) for s in (DEAD, EMPTY, P, C, S)),
    "heartbeat": ((U, DEAD), (U, EMPTY), (R, P), (E.NONE, C), (E.NONE, S)),
    "heartbeat, old generation": ((U, DEAD), (U, EMPTY), *((E.ILLEGAL_GENERATION, s) for s in (P, C, S))),
    "heartbeat, unknown": tuple((U, s) for s in (DEAD, EMPTY, P, C, S)),
    "leave": ((U, DEAD), (U, EMPTY), (E.NONE, C), (E.NONE, P), (E.NONE, P)),
    "leave, unknown": tuple((U, s) for s in (DEAD, EMPTY, P, C, S)),
    "leave, unknown static": tuple((U, s) for s in (DEAD, EMPTY, P, C, S)),
    "commit, simple": ((E.NONE, EMPTY), (E.NONE, EMPTY), (U, P), (U, C), (U, S)),
    "commit, member": ((E.GROUP_ID_NOT_FOUND, DEAD), (U, EMPTY), (E.NONE, P), (R, C), (E.NONE, S)),
    "commit, old generation": (
        (E.GROUP_ID_NOT_FOUND, DEAD),
        (U, EMPTY),
        *((E.ILLEGAL_GENERATION, s) for s in (P, C, S)),
    ),
    "commit, no generation": (
        (E.NONE, EMPTY),
        (E.NONE, EMPTY),
        *((E.ILLEGAL_GENERATION, s) for s in (P, C, S)),
    ),
    "commit, unknown": ((E.GROUP_ID_NOT_FOUND, DEAD), *((U, s) for s in (EMPTY, P, C, S))),
    "commit, unknown, version 8": ((E.ILLEGAL_GENERATION, DEAD), *((U, s) for s in (EMPTY, P, C, S))),
    "commit, long metadata": (
        (E.GROUP_ID_NOT_FOUND, DEAD),
        (U, EMPTY),
        (E.OFFSET_METADATA_TOO_LARGE, P),
        (R, C),
        (E.OFFSET_METADATA_TOO_LARGE, S),
    ),
    # Older clients do not say who they are, and the state of the group does not matter.
    "send, anonymous": ((E.NONE, EMPTY), *((E.NONE, s) for s in (EMPTY, P, C, S))),
    "send, member": ((E.ILLEGAL_GENERATION, DEAD), (U, EMPTY), *((E.NONE, s) for s in (P, C, S))),
    "send, old generation": (
        (E.ILLEGAL_GENERATION, DEAD),
        (U, EMPTY),
        *((E.ILLEGAL_GENERATION, s) for s in (P, C, S)),
    ),
    "send, no generation": (
        (E.NONE, EMPTY),
        (E.NONE, EMPTY),
        *((E.ILLEGAL_GENERATION, s) for s in (P, C, S)),
    ),
    "send, no member": ((E.ILLEGAL_GENERATION, DEAD), *((U, s) for s in (EMPTY, P, C, S))),
    "send, unknown": ((E.ILLEGAL_GENERATION, DEAD), *((U, s) for s in (EMPTY, P, C, S))),
    "send, unknown static": ((E.ILLEGAL_GENERATION, DEAD), *((U, s) for s in (EMPTY, P, C, S))),
    "send, static alone": ((E.NONE, EMPTY), (E.NONE, EMPTY), *((U, s) for s in (P, C, S))),
    "send, long metadata": (
        (E.ILLEGAL_GENERATION, DEAD),
        (U, EMPTY),
        *((E.OFFSET_METADATA_TOO_LARGE, s) for s in (P, C, S)),
    ),
    "delete group": ((E.GROUP_ID_NOT_FOUND, DEAD), (E.NONE, DEAD), *((E.NON_EMPTY_GROUP, s) for s in (P, C, S))),
    "delete offset, subscribed": (
        (E.GROUP_ID_NOT_FOUND, DEAD),
        (E.NONE, EMPTY),
        *((E.GROUP_SUBSCRIBED_TO_TOPIC, s) for s in (P, C, S)),
    ),
    "delete offset, other topic": ((E.GROUP_ID_NOT_FOUND, DEAD), *((E.NONE, s) for s in (EMPTY, P, C, S))),
}

ROWS = [
    pytest.param(request, state, *outcome, id=f"{request} in {state}")
    for request, outcomes in OUTCOMES.items()
    for state, outcome in zip((DEAD, EMPTY, PREPARING, COMPLETING, STABLE), outcomes, strict=True)
]


def test_the_table_has_every_request() -> None:
    assert OUTCOMES.keys() == REQUESTS.keys()


@pytest.mark.parametrize(("request_name", "state", "reply", "following"), ROWS)
def test_reply_and_next_state(request_name: str, state: str, reply: E | None, following: str) -> None:
    case = group_in(state)
    assert code(REQUESTS[request_name](case)) is reply
    assert case.driver.state() == following


def test_a_pending_member_cannot_come_back_as_a_static_one() -> None:
    driver = Driver()
    pending = driver.join()
    assert code(driver.join(pending.member_id, instance="i")) is E.UNKNOWN_SERVER_ERROR


def test_most_votes_choose_the_protocol() -> None:
    driver = Driver()
    tokens = []
    for protocols in (("x", "y", "z"), ("y", "x"), ("z", "y", "x")):
        driver.join(version=3, protocols=protocols)
        tokens.append(driver.last_token)
    driver.advance(9000)
    assert driver.replies[tokens[0]].protocol_name == "y"
    driver = Driver()
    for protocols in (("x", "y"), ("y", "x"), ("x", "y")):
        driver.join(version=3, protocols=protocols)
    driver.advance(9000)
    assert driver.replies[driver.last_token].protocol_name == "x"


def test_offsets_of_a_group_whose_members_cannot_be_read_may_not_be_deleted() -> None:
    driver = Driver()
    driver.join(version=3, protocols=(Protocol("range", b"\0"),))
    driver.advance(3000)
    reply = driver.shard.delete_offsets(GROUP, [TopicPartition(TOPIC, 0)], 0, 0).reply
    assert reply == [E.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_a_busy_group_of_another_type_may_not_be_deleted() -> None:
    driver = Driver()
    driver.join(version=3, protocol_type="connect")
    assert driver.shard.delete_offsets(GROUP, [TopicPartition(TOPIC, 0)], 0, 0).reply is E.NON_EMPTY_GROUP


def test_ids_are_listed_and_described() -> None:
    case = group_in(STABLE)
    described = case.driver.shard.describe(GroupId("g"))
    assert (described.state, described.protocol_type, described.protocol_name) == (STABLE, "consumer", "range")
    assert [(m.client_id, m.client_host, m.assignment) for m in described.members] == [
        ("a", "/127.0.0.1", b"A"),
        ("b", "/127.0.0.1", b"B"),
    ]
    assert described.members[0].metadata == subscription("t")
    (listed,) = case.driver.shard.listings()
    assert (listed.group_id, listed.protocol_type, listed.state, listed.group_type) == (
        "g",
        "consumer",
        STABLE,
        "classic",
    )


def test_an_offset_that_is_deleted_is_gone_from_the_log() -> None:
    driver = Driver()
    driver.commit({0: 1, 1: 2})
    driver.carry_out(driver.shard.delete_offsets(GROUP, [TopicPartition(TOPIC, 0)], 0, 0))
    assert driver.fetch() == {("t", 1): 2}
    driver.carry_out(driver.shard.partitions_deleted([TopicPartition(TOPIC, 1)], 0))
    assert driver.fetch() == {}


def test_offsets_whose_deletion_the_log_refused_are_deleted_later() -> None:
    driver = Driver()
    driver.commit({0: 1, 1: 2})
    driver.refuse_appends = True
    driver.carry_out(driver.shard.partitions_deleted([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)], 0))
    assert driver.fetch() == {("t", 0): 1, ("t", 1): 2}
    driver.commit({1: 7})
    driver.advance(1000)
    assert driver.fetch() == {("t", 1): 7}, "the topic was made again: its new offsets stay"


def test_many_offsets_of_deleted_partitions_are_deleted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "BYTES_PER_PART", 200)
    driver = Driver()
    driver.commit(dict.fromkeys(range(20), 1))
    driver.carry_out(driver.shard.partitions_deleted([TopicPartition(TOPIC, partition) for partition in range(20)], 0))
    assert 0 < len(driver.fetch()) < 20
    driver.advance(1000)
    assert driver.fetch() == {}


def test_any_offset_is_stored_and_returned() -> None:
    driver = Driver()
    driver.commit({0: -2, 1: -1, 2: 2**63 - 1})
    assert driver.fetch() == {("t", 0): -2, ("t", 1): -1, ("t", 2): 2**63 - 1}


def test_the_partitions_of_one_commit_are_one_decision() -> None:
    driver = Driver()
    driver.commit({partition: partition for partition in range(5)})
    assert len(driver.log) == 5
    driver.refuse_appends = True
    assert driver.commit({0: 77, 1: 77}) is E.COORDINATOR_NOT_AVAILABLE
    assert driver.fetch()[("t", 0)] == 0
