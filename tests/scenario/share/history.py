"""A share group at one broker under everything that may happen to it, and what its members may rely on.

Requests wait while the share coordinator is asked; its answers are held, late, lost, or errors. The rules:

1. A record whose acceptance or rejection was answered never comes again, until the group is made again.
2. While one member holds a record, no other gets it.
3. Within one leadership a delivery count rises with each delivery, and never exceeds the limit.
4. In the end each record has come again, or was settled, had its last delivery, or is gone from the log.
5. Every request is answered once the coordinator answers.
6. Dropped share partitions end, also those whose dead letters waited.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import NO_BROKER, BrokerId, GroupId, LeaderEpoch, Offset, TopicPartition
from oncelog.base.tree import Set
from oncelog.core.controller.image import layout
from oncelog.core.share.model import RecordState
from oncelog.core.share_state.model import DeleteState, InitializeState, ShareKey
from oncelog.node.kernel.events import DeadlineReached
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import create_topic, log_of
from tests.scenario.share.drawn_coordinator import DrawnCoordinator
from tests.scenario.share.members import ACCEPT, REJECT, RELEASE, RENEW, Member, set_group_configs, write

LIMITS = (3, 5)
LOCKS_MS = (15_000, 20_000)
MAX_WAIT_MS = 20_000
PARTITION = TopicPartition("t", 0)
DEAD_LETTERS = "dlq.t"


@dataclass
class Asked:
    """A request that is not answered yet."""

    peer: Peer
    """The connection that it came on."""
    member: Member
    is_fetch: bool
    sent_ms: int
    leadership: int
    generation: int
    acks: list[tuple[int, int]] = field(default_factory=list)
    """Offset and type."""


class ShareHistory:
    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.coordinator = DrawnCoordinator(self.entropy, LIMITS[0])
        self.driver = Driver()
        self.driver.node.share.persister = self.coordinator
        self.admin = self.driver.connect()
        create_topic(self.admin, "t")
        set_group_configs(
            self.admin, "g", share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=DEAD_LETTERS
        )
        create_topic(self.admin, DEAD_LETTERS, errors_deadletterqueue_group_enable="true")
        self._set_limits(LIMITS[0], LOCKS_MS[0])
        topic_id = self.driver.node.cluster.image.topics["t"].topic_id
        self.key = ShareKey(GroupId("g"), topic_id, 0)
        self.events: Counter[str] = Counter()
        self.members: list[Member] = []
        self.asked: list[Asked] = []
        self.generation = 0
        self.leadership = 0
        """Rises with each machine that the leader makes of a state."""
        self.machine: object = None
        self.held: dict[int, tuple[Member, int, int]] = {}
        """By record: its holder, until when at least, and the leadership."""
        self.counts: dict[int, int] = {}
        """Deliveries by record, in this leadership."""
        self.done: set[int] = set()
        self.settled: set[int] = set()
        """Records whose acceptance or rejection was sent."""
        self.written = 0
        self._remake(Offset(-1))

    def run(self, steps: int) -> None:
        actions = [
            *[self.fetch] * 6,
            *[self.acknowledge] * 5,
            *[self.answer] * 4,
            *[self.write] * 2,
            *[self.advance] * 2,
            self.leave,
            self.replace,
            self.replace,
            self.hold,
            self.change_limits,
            self.seldom,
        ]
        for _ in range(steps):
            self.entropy.choice(actions)()
            self.observe()
        self.finish()

    # What may happen

    def seldom(self) -> None:
        if self.entropy.random() < 0.4:
            drastic = [
                self.make_again,
                self.lose_leadership,
                self.switch_off,
                self.move_log_start,
                self.lose_dead_letter_topic,
            ]
            self.entropy.choice(drastic)()

    def write(self) -> None:
        if self._leads():
            count = self.entropy.randint(1, 8)
            self.written = write(self.driver, "t", count) + count

    def fetch(self) -> None:
        member = self._idle_member()
        if member is not None:
            acks = self._drawn_acks(member) if member.epoch > 0 and self.entropy.random() < 0.5 else []
            self._ask_fetch(member, [ack for ack in acks if ack[1] != RENEW])

    def acknowledge(self) -> None:
        member = self._idle_member()
        if member is not None and member.epoch > 0 and (acks := self._drawn_acks(member)):
            self._note_acks(member, acks)
            self.asked.append(self._new_asked(member, acks, is_fetch=False))
            ((offset, kind),) = acks
            member.send_acknowledge(("t", 0, offset, offset, kind), renews=kind == RENEW)

    def answer(self) -> None:
        if self.coordinator.messages:
            self.coordinator.go_on()
            self.driver.dispatch(DeadlineReached())

    def hold(self) -> None:
        self.coordinator.holds = self.entropy.random() < 0.8

    def advance(self) -> None:
        self.driver.advance(self.entropy.choice([10, 500, 1_000, LOCKS_MS[0] // 2, LOCKS_MS[0]]))

    def leave(self) -> None:
        """A member's connection ends; a former one, whose session another has taken over, ends nothing."""
        if self.members:
            member = self.members.pop(self.entropy.randrange(len(self.members)))
            self._disconnect(member)
            self.events["left"] += 1

    def replace(self) -> None:
        """A member that waits begins again on another connection: it repeats its request, or opens another session."""
        waiting = [asked for asked in self.asked if asked.is_fetch and not asked.acks and asked.member in self.members]
        if not waiting:
            return
        asked = self.entropy.choice(waiting)
        member, former = asked.member, asked.peer
        member.peer = self.driver.connect()
        repeats = self.entropy.random() < 0.5 and member.epoch > 1
        member.epoch = member.epoch - 1 if repeats else 0
        self.events["repeated" if repeats else "replaced"] += 1
        self._ask_fetch(member, [])
        if self.entropy.random() < 0.5:
            self._drop_peer(former)

    def change_limits(self) -> None:
        self._set_limits(self.entropy.choice(LIMITS), self.entropy.choice(LOCKS_MS))

    def make_again(self) -> None:
        """The group is deleted and made again, while clients have sessions."""
        self.coordinator.decide(DeleteState(self.key))
        self._remake(self.entropy.choice([Offset(-1), Offset(0)]))
        self.events["made again"] += 1

    def lose_leadership(self) -> None:
        for leader in (NO_BROKER, self.driver.broker_id):
            self._lead(PARTITION, leader)
            self.observe()
            if self._leads():
                break
        self.events["led again"] += 1

    def switch_off(self) -> None:
        for level, kind in ((0, 2), (2, 1)):
            update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=kind)
            self.driver.connect().ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 1)
            self.observe()
        self.events["switched off"] += 1

    def move_log_start(self) -> None:
        log = log_of(self.driver, "t")
        if self._leads() and log.high_watermark > log.log_start_offset:
            offset = self.entropy.randint(log.log_start_offset + 1, log.high_watermark)
            partition = DeleteRecordsPartition(partition_index=0, offset=offset)
            topic = DeleteRecordsTopic(name="t", partitions=[partition])
            self.driver.connect().ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
            self.events["log start moved"] += 1

    def lose_dead_letter_topic(self) -> None:
        """It has no leader for a while, or again one: dead letters wait, also of share partitions dropped meanwhile."""
        partition = TopicPartition(DEAD_LETTERS, 0)
        image = self.driver.node.cluster.image.partition(partition)
        assert image is not None
        self._lead(partition, self.driver.broker_id if image.leader == NO_BROKER else NO_BROKER)
        self.events["dead letters moved"] += 1

    # What holds

    def observe(self) -> None:
        assert self.driver.fatal is None, self.driver.fatal
        led = self.driver.node.share.partitions.led_partitions.get(self.key)
        machine = None if led is None else led.machine
        if machine is not None and machine is not self.machine:
            self.machine = machine
            self.leadership += 1
            self.held, self.counts = {}, {}
        if machine is not None:
            machine.check()
            for run in machine.in_flight():
                if run.delivery_count >= LIMITS[0]:
                    self.coordinator.spent.update(range(run.first_offset, run.last_offset + 1))
                if run.delivery_state is RecordState.ACQUIRED and run.locked_until_ms is not None:
                    assert run.locked_until_ms > self.driver.now_ms, "a lock does not end"
        for asked in list(self.asked):
            if asked.peer.responses:
                self.asked.remove(asked)
                self._answered(asked, asked.peer.responses.popleft())

    def _answered(self, asked: Asked, response) -> None:
        is_current = asked.member.peer is asked.peer
        if response.error_code:
            self.events[E(response.error_code).name] += 1
            if is_current:
                asked.member.epoch = 0
            return
        for topic in response.responses:
            for part in topic.partitions:
                error = part.acknowledge_error_code if asked.is_fetch else part.error_code
                if asked.acks and error == E.NONE and asked.generation == self.generation:
                    self.done.update(offset for offset, kind in asked.acks if kind in (ACCEPT, REJECT))
                self.events[f"acknowledged: {E(error).name}" if asked.acks else "answered"] += 1
                if asked.is_fetch:
                    for got in part.acquired_records:
                        for offset in range(got.first_offset, got.last_offset + 1):
                            self._delivered(asked, offset, got.delivery_count)

    def _delivered(self, asked: Asked, offset: int, count: int) -> None:
        if asked.generation == self.generation:
            assert offset not in self.done, f"{offset} comes again"
        assert 1 <= count <= LIMITS[1], f"{offset} was delivered {count} times"
        if asked.leadership != self.leadership:
            return
        self.events["delivered"] += 1
        assert count > self.counts.get(offset, 0), f"{offset} is delivered twice with count {count}"
        self.counts[offset] = count
        holder, until_ms, leadership = self.held.get(offset, (asked.member, 0, 0))
        is_held = leadership == self.leadership and until_ms > self.driver.now_ms
        assert holder is asked.member or not is_held, f"{offset} is held by {holder.member_id}"
        self.held[offset] = asked.member, asked.sent_ms + LOCKS_MS[0], self.leadership

    def finish(self) -> None:
        """All is well again: nothing waits for ever, and nothing is lost."""
        self.coordinator.heal()
        self.driver.dispatch(DeadlineReached())
        self.driver.advance(MAX_WAIT_MS)
        self.observe()
        assert not self.asked, self.asked
        shares = self.driver.node.share.partitions
        assert not shares._ending, "a dropped share partition does not end"
        self.events["dead letters"] += shares.counters.dead_letters
        for member in self.members:
            self._disconnect(member)
        self.members.clear()
        self._set_limits(LIMITS[1], LOCKS_MS[0])
        last, drained = Member(self.driver, member_id="last"), set()
        for _ in range(500):
            response = last.fetch(("t", 0), max_wait_ms=0)
            assert response.error_code == E.NONE
            got = [row for topic in response.responses for part in topic.partitions for row in part.acquired_records]
            if not got:
                break
            for row in got:
                drained.update(range(row.first_offset, row.last_offset + 1))
                answer = last.acknowledge(("t", 0, row.first_offset, row.last_offset, ACCEPT))
                assert [part.error_code for topic in answer.responses for part in topic.partitions] == [E.NONE]
        assert not drained & self.done
        start = log_of(self.driver, "t").log_start_offset
        lost = set(range(start, self.written)) - drained - self.settled - self.coordinator.spent
        assert not lost, f"{sorted(lost)} are lost"

    # Parts

    def _idle_member(self) -> Member | None:
        if len(self.members) < 3:
            self.members.append(Member(self.driver, member_id=f"m{self.entropy.randrange(2**32)}"))
        busy = {id(asked.peer) for asked in self.asked}
        idle = [member for member in self.members if id(member.peer) not in busy]
        return self.entropy.choice(idle) if idle else None

    def _drawn_acks(self, member: Member) -> list[tuple[int, int]]:
        mine = sorted(offset for offset, (holder, *_) in self.held.items() if holder is member)
        if not mine:
            return []
        return [(self.entropy.choice(mine), self.entropy.choice([ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]))]

    def _note_acks(self, member: Member, acks: list[tuple[int, int]]) -> None:
        for offset, kind in acks:
            if kind != RENEW:
                self.held.pop(offset, None)
            if kind in (ACCEPT, REJECT):
                self.settled.add(offset)

    def _ask_fetch(self, member: Member, acks: list[tuple[int, int]]) -> None:
        self._note_acks(member, acks)
        self.asked.append(self._new_asked(member, acks, is_fetch=True))
        member.send_fetch(
            *([("t", 0)] if member.epoch == 0 else []),
            acks=[("t", 0, offset, offset, kind) for offset, kind in acks],
            max_wait_ms=self.entropy.choice([0, 500, MAX_WAIT_MS]),
            max_records=self.entropy.randint(1, 6),
            share_acquire_mode=self.entropy.randint(0, 1),
            batch_size=2,
        )

    def _new_asked(self, member: Member, acks: list[tuple[int, int]], *, is_fetch: bool) -> Asked:
        return Asked(member.peer, member, is_fetch, self.driver.now_ms, self.leadership, self.generation, acks)

    def _disconnect(self, member: Member) -> None:
        self._drop_peer(member.peer)
        self.held = {offset: held for offset, held in self.held.items() if held[0] is not member}

    def _drop_peer(self, peer) -> None:
        self.observe()
        self.asked = [asked for asked in self.asked if asked.peer is not peer]
        self.driver.disconnect(peer)

    def _lead(self, partition: TopicPartition, leader: BrokerId) -> None:
        image = self.driver.node.cluster.image.partition(partition)
        assert image is not None
        newer = image._replace(leader=leader, leader_epoch=LeaderEpoch(image.leader_epoch + 1))
        path = layout.state_path(partition.topic, partition.partition)
        self.driver.tree.session().commit([Set(path, layout.state_value(newer, 1), image.version)])
        self.driver.dispatch_changes()

    def _leads(self) -> bool:
        image = self.driver.node.cluster.image.partition(PARTITION)
        return image is not None and image.leader == self.driver.broker_id

    def _set_limits(self, limit: int, lock_ms: int) -> None:
        set_group_configs(
            self.admin,
            "g",
            share_delivery_count_limit=str(limit),
            share_record_lock_duration_ms=str(lock_ms),
        )

    def _remake(self, start: Offset) -> None:
        self.generation += 1
        self.done.clear()
        self.settled.clear()
        self.coordinator.spent.clear()
        reply = self.coordinator.decide(InitializeState(self.key, self.generation, start))
        assert reply.error_code == E.NONE
