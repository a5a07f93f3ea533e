"""Random histories of a share group at one broker: what a member was told holds, whatever else happens."""

from __future__ import annotations

import random

import pytest

from oncelog.base.errors import ErrorCode as E
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic
from tests.scenario.share.members import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    HandPersister,
    Member,
    acquired,
    set_group_configs,
    write,
)

LIMIT = 3
LOCK_MS = 15_000
STEPS = 60


class History:
    """Members that fetch and acknowledge at random. Checked at each answer:

    - a record whose acceptance or rejection was answered never comes again;
    - a record is held by one member at a time;
    - no delivery count exceeds the limit.
    """

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.persister = HandPersister()
        self.driver = Driver()
        self.driver.node.share.persister = self.persister
        peer = self.driver.connect()
        create_topic(peer, "t")
        set_group_configs(
            peer,
            "g",
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=str(LOCK_MS),
            share_delivery_count_limit=str(LIMIT),
        )
        self.members: list[Member] = []
        self.held: dict[int, tuple[Member, int]] = {}
        """The holder of each record, and the end of its lock."""
        self.done: set[int] = set()
        self.written = 0

    def step(self) -> None:
        actions = [self.write, self.fetch, self.fetch, self.acknowledge, self.acknowledge, self.advance, self.leave]
        self.persister.error = self.random.choices(
            [E.NONE, E.COORDINATOR_NOT_AVAILABLE, E.FENCED_STATE_EPOCH], [20, 1, 1]
        )[0]
        self.random.choice(actions)()
        assert self.driver.fatal is None, self.driver.fatal

    def write(self) -> None:
        count = self.random.randint(1, 8)
        write(self.driver, "t", count)
        self.written += count

    def member(self) -> Member:
        if len(self.members) < 3:
            self.members.append(Member(self.driver, member_id=f"m{self.random.random()}"))
        return self.random.choice(self.members)

    def fetch(self) -> None:
        member = self.member()
        mode, records = self.random.randint(0, 1), self.random.randint(1, 6)
        answer = member.fetch(("t", 0), max_records=records, share_acquire_mode=mode, batch_size=2)
        if answer.error_code or any(part.error_code for topic in answer.responses for part in topic.partitions):
            member.epoch = 0
            self.persister.error = E.NONE
            return
        for first, last, count in acquired(answer):
            assert 1 <= count <= LIMIT
            for offset in range(first, last + 1):
                assert offset not in self.done, f"{offset} comes again"
                holder = self.held.get(offset)
                assert holder is None or holder[1] <= self.driver.now_ms, f"{offset} is held"
                self.held[offset] = member, self.driver.now_ms + LOCK_MS

    def acknowledge(self) -> None:
        member = self.member()
        mine = sorted(offset for offset, (holder, _) in self.held.items() if holder is member)
        if not mine or member.epoch <= 0:
            return
        offset = self.random.choice(mine)
        kind = self.random.choice([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW])
        answer = member.acknowledge(("t", 0, offset, offset, kind), renews=kind == RENEW)
        if answer.error_code:
            member.epoch = 0
            return
        (error,) = [part.error_code for topic in answer.responses for part in topic.partitions]
        if error == E.NOT_LEADER_OR_FOLLOWER:
            self.held.clear()  # the share partition was dropped, with its locks
        elif error in (E.INVALID_RECORD_STATE, E.UNKNOWN_TOPIC_OR_PARTITION):
            del self.held[offset]
        elif error == E.NONE and kind == RENEW:
            self.held[offset] = member, self.driver.now_ms + LOCK_MS
        elif error == E.NONE:
            del self.held[offset]
            if kind in (ACCEPT, REJECT):
                self.done.add(offset)

    def advance(self) -> None:
        self.driver.advance(self.random.choice([10, 1000, LOCK_MS // 2, LOCK_MS]))
        if self.persister.error == E.FENCED_STATE_EPOCH:
            self.held.clear()

    def leave(self) -> None:
        if self.random.random() < 0.5 or not self.members:
            return
        member = self.members.pop(self.random.randrange(len(self.members)))
        self.driver.disconnect(member.peer)
        if self.persister.error == E.FENCED_STATE_EPOCH or not self.members:
            self.held.clear()
        self.held = {offset: held for offset, held in self.held.items() if held[0] is not member}


@pytest.mark.parametrize("seed", [random.randrange(2**32) for _ in range(4)])
def test_random_histories(seed) -> None:
    history = History(random.Random(seed))
    for _ in range(STEPS):
        history.step()
