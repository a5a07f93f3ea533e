"""Members of groups: conversations that break W14 or one of W17 to W22 alone, and some that come close."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.internal.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from oncelog.wire.messages import consumer_group_heartbeat as chb
from oncelog.wire.messages import heartbeat, join_group, leave_group, metadata, offset_commit, sync_group
from tests.simulation.checkers.talk import NEW, OLD, Talk

TOPIC: Final = TopicName("t")


class GroupTalk(Talk):
    """Members of one group; a second passes when :meth:`wait` says so."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        super().__init__(is_cluster=is_cluster)
        self.now_ms = 0
        topic = metadata.MetadataResponseTopic(name=TOPIC, topic_id=OLD)
        self.say(metadata.MetadataRequest(), metadata.MetadataResponse(topics=[topic]))

    def ask(self, request: object, version: int = 1) -> int:
        self._correlation += 1
        self.observer.received("c", self._correlation, version, request, self.now_ms, self.broker_id)
        return self._correlation

    def answer(self, number: int, response: object) -> None:
        self.observer.answered("c", number, response, self.now_ms)

    def beat(
        self,
        member: str,
        epoch: int,
        owned: Sequence[int] | None = None,
        *,
        told: int | None = None,
        assigned: Sequence[int] | None = None,
        error: ErrorCode = ErrorCode.NONE,
        instance: str | None = None,
    ) -> None:
        """ConsumerGroupHeartbeat, answered with the epoch ``told``, or the same."""
        self.answer_beat(self.ask_beat(member, epoch, owned, instance=instance), member, told or epoch, assigned, error)

    def ask_beat(
        self, member: str, epoch: int, owned: Sequence[int] | None = None, *, instance: str | None = None
    ) -> int:
        fields: dict[str, Any] = {"subscribed_topic_names": [TOPIC]} if epoch == 0 else {}
        request = chb.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            topic_partitions=None if owned is None else _by_id(owned),
            **fields,
        )
        return self.ask(request)

    def answer_beat(
        self,
        number: int,
        member: str,
        epoch: int,
        assigned: Sequence[int] | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        assignment = None if assigned is None else chb.Assignment(topic_partitions=_by_id(assigned))
        answer = chb.ConsumerGroupHeartbeatResponse(
            error_code=error, member_id=member, member_epoch=epoch, assignment=assignment
        )
        self.answer(number, answer)

    def classic_join(
        self, member: str, generation: int, owned: Sequence[int] = (), *, instance: str | None = None
    ) -> None:
        """JoinGroup of a member that keeps ``owned``."""
        partitions = tuple(TopicPartition(TOPIC, index) for index in owned)
        subscription = encode_subscription(Subscription((TOPIC,), owned_partitions=partitions))
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=subscription)
        self.say(
            join_group.JoinGroupRequest(
                group_id="g",
                member_id=member,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            join_group.JoinGroupResponse(generation_id=generation, leader="m", member_id=member),
        )

    def classic_sync(self, member: str, generation: int, assigned: Sequence[int]) -> None:
        assignment = encode_assignment(Assignment(tuple(TopicPartition(TOPIC, index) for index in assigned)))
        self.say(
            sync_group.SyncGroupRequest(group_id="g", generation_id=generation, member_id=member),
            sync_group.SyncGroupResponse(assignment=assignment),
        )

    def classic_beat(self, member: str, generation: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.say(
            heartbeat.HeartbeatRequest(group_id="g", member_id=member, generation_id=generation),
            heartbeat.HeartbeatResponse(error_code=error),
        )

    def classic_leave(self, member: str) -> None:
        identity = leave_group.MemberIdentity(member_id=member)
        self.say(
            leave_group.LeaveGroupRequest(group_id="g", members=[identity]),
            leave_group.LeaveGroupResponse(members=[leave_group.MemberResponse(member_id=member)]),
        )

    def commit_of(self, member: str, offset: int, error: ErrorCode = ErrorCode.NONE, *, epoch: int = -1) -> None:
        part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
        answer = offset_commit.OffsetCommitResponsePartition(partition_index=0, error_code=error)
        answers = [offset_commit.OffsetCommitResponseTopic(name=TOPIC, partitions=[answer])]
        self.say(
            offset_commit.OffsetCommitRequest(
                group_id="g", member_id=member, generation_id_or_member_epoch=epoch, topics=topics
            ),
            offset_commit.OffsetCommitResponse(topics=answers),
        )

    def wait(self, seconds: int, *beats: Callable[[], None]) -> None:
        """Pass a time in which members send heartbeats each second."""
        for _ in range(seconds):
            self.now_ms += 1_000
            for beat in beats:
                beat()


def _by_id(partitions: Sequence[int]) -> list[chb.TopicPartitions]:
    return [chb.TopicPartitions(topic_id=OLD, partitions=list(partitions))] if partitions else []


Conversation = Callable[[GroupTalk], None]


def given_away_before_the_release(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("b", 0, (), told=3, assigned=(1,))
    talk.beat("a", 2, (0, 1))


def given_away_and_only_then_asked_for(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("b", 0, (), told=3, assigned=(1,))
    talk.beat("a", 2, (0,), told=3, assigned=(0,))


def given_to_two_in_one_epoch(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0,))
    talk.beat("a", -1, error=ErrorCode.NONE)
    talk.beat("b", 0, (), told=2, assigned=(0,))


def leader_gives_to_two(talk: GroupTalk) -> None:
    talk.classic_join("a", 1)
    talk.classic_join("b", 1)
    talk.classic_sync("a", 1, (0, 1))
    talk.classic_sync("b", 1, (1,))


def classic_owner_is_not_waited_for(talk: GroupTalk) -> None:
    talk.classic_join("a", 1)
    talk.classic_sync("a", 1, (0, 1))
    talk.beat("b", 0, (), told=3, assigned=(1,))
    talk.classic_beat("a", 1)


def released_and_given_to_no_member(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("b", 0, (), told=3, assigned=())
    talk.beat("a", 2, assigned=(0,))
    talk.beat("a", 2, (0,), told=3)
    talk.wait(14, lambda: talk.beat("a", 3), lambda: talk.beat("b", 3))


def left_behind_by_a_classic_member(talk: GroupTalk) -> None:
    for member in "ab":
        talk.classic_join(member, 1)
    talk.classic_sync("a", 1, (0,))
    talk.classic_sync("b", 1, (1,))
    talk.classic_leave("b")
    talk.wait(14, lambda: talk.classic_beat("a", 1))


def commit_of_a_former_owner_is_accepted(talk: GroupTalk) -> None:
    talk.commit_of("a", 5)
    talk.commit_of("b", 8)
    talk.commit_of("a", 7)


def epoch_of_a_member_falls(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=5, assigned=(0,))
    talk.beat("a", 5, told=4)


def partition_of_a_topic_without_subscription(talk: GroupTalk) -> None:
    other = metadata.MetadataResponseTopic(name="other", topic_id=NEW)
    talk.say(metadata.MetadataRequest(), metadata.MetadataResponse(topics=[other]))
    request = chb.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="a", member_epoch=0, subscribed_topic_regex="o.*r", topic_partitions=[]
    )
    assigned = [chb.TopicPartitions(topic_id=topic, partitions=[0]) for topic in (OLD, NEW)]
    answer = chb.ConsumerGroupHeartbeatResponse(
        member_id="a", member_epoch=2, assignment=chb.Assignment(topic_partitions=assigned)
    )
    talk.say(request, answer)


def commit_of_the_owner_is_refused(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0,))
    talk.beat("a", 2, (0,), told=3)
    talk.commit_of("a", 5, ErrorCode.STALE_MEMBER_EPOCH, epoch=2)


def told_to_rejoin_for_nothing(talk: GroupTalk) -> None:
    for _ in range(2):
        talk.classic_join("a", 1)
        talk.classic_sync("a", 1, (0,))
        talk.classic_beat("a", 1, ErrorCode.REBALANCE_IN_PROGRESS)


PLANTED: list[tuple[str, Conversation]] = [
    ("W14", epoch_of_a_member_falls),
    ("W17", given_away_before_the_release),
    ("W17", given_away_and_only_then_asked_for),
    ("W17", given_to_two_in_one_epoch),
    ("W17", leader_gives_to_two),
    ("W17", classic_owner_is_not_waited_for),
    ("W18", released_and_given_to_no_member),
    ("W18", left_behind_by_a_classic_member),
    ("W19", commit_of_a_former_owner_is_accepted),
    ("W20", partition_of_a_topic_without_subscription),
    ("W21", commit_of_the_owner_is_refused),
    ("W22", told_to_rejoin_for_nothing),
]


@pytest.mark.parametrize(("rule", "conversation"), PLANTED, ids=lambda item: getattr(item, "__name__", item))
def test_a_broken_rule_is_found_and_nothing_else(rule: str, conversation: Conversation) -> None:
    talk = GroupTalk()
    conversation(talk)
    assert [name.partition(" ")[0] for name in talk.observer.violations] == [rule]


def moved_after_the_release(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("b", 0, (), told=3, assigned=())
    talk.beat("a", 2, (0, 1), assigned=(0,))
    talk.beat("a", 2, (0,), told=3)
    talk.beat("b", 3, (), assigned=(1,))
    talk.beat("a", 3)
    talk.beat("b", 3)


def owner_was_removed(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0,))
    talk.beat("b", 0, (), told=4, assigned=(0,))
    talk.beat("a", 2, error=ErrorCode.UNKNOWN_MEMBER_ID)
    talk.beat("a", 0, (), told=5, assigned=())
    talk.beat("a", 5)


def owner_was_removed_and_joins_again_before_it_is_answered(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0,))
    talk.beat("b", 0, (), told=4, assigned=(0,))
    talk.beat("a", 0, (), told=5, assigned=())


def assignment_is_taken_later(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("a", 2, (0,))
    talk.wait(20, lambda: talk.beat("a", 2))


def overtaken_heartbeat(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    slow = talk.ask_beat("a", 2)
    talk.beat("b", 0, (), told=3, assigned=())
    talk.beat("a", 2, (0,), told=3, assigned=(0,))
    talk.beat("b", 3, (), assigned=(1,))
    talk.answer_beat(slow, "a", 2, (0, 1))
    talk.beat("a", 3, (0,), assigned=(0,))


def static_member_comes_back(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0,), instance="i")
    talk.beat("a", -2, instance="i")
    talk.beat("b", 0, (), told=2, assigned=(0,), instance="i")
    talk.beat("b", 2, (0,), instance="i")


def classic_member_gives_up_and_the_next_gets(talk: GroupTalk) -> None:
    talk.classic_join("a", 1)
    talk.classic_sync("a", 1, (0, 1))
    talk.beat("b", 0, (), told=3, assigned=())
    talk.classic_beat("a", 1, ErrorCode.REBALANCE_IN_PROGRESS)
    talk.classic_join("a", 3, (0,))
    talk.classic_sync("a", 3, (0,))
    talk.beat("b", 3, (), assigned=(1,))
    talk.classic_beat("a", 3)


def removed_classic_member_joins_with_its_id(talk: GroupTalk) -> None:
    talk.classic_join("a", 1)
    talk.classic_sync("a", 1, (0, 1))
    talk.beat("b", 0, (), told=3, assigned=(0, 1))
    talk.classic_join("a", 4)
    talk.classic_sync("a", 4, ())
    talk.classic_beat("a", 4)


def partition_waits_for_a_silent_member(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("b", 0, (), told=3, assigned=())
    talk.wait(2, lambda: talk.beat("b", 3))
    talk.beat("a", 2, (0,))
    talk.wait(11, lambda: talk.beat("b", 3))


def coordinator_was_away(talk: GroupTalk) -> None:
    released_soon(talk)
    talk.wait(6, lambda: talk.beat("a", 3), lambda: talk.beat("b", 3))
    talk.observer.restarted(talk.now_ms)
    talk.wait(11, lambda: talk.beat("a", 3), lambda: talk.beat("b", 3))


def member_outlives_a_long_absence_of_its_coordinator(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("b", 0, (), told=3, assigned=())
    talk.beat("a", 2, (0,), told=3, assigned=(0,))
    talk.observer.restarted(talk.now_ms)
    talk.wait(13)
    talk.beat("b", 3)
    talk.beat("a", 3, assigned=(0, 1))
    talk.wait(14, lambda: talk.beat("a", 3), lambda: talk.beat("b", 3))


def released_soon(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0, 1))
    talk.beat("b", 0, (), told=3, assigned=())
    talk.beat("a", 2, (0,), told=3, assigned=(0,))


def last_member_of_the_new_protocol_is_replaced_before_an_assignment(talk: GroupTalk) -> None:
    talk.classic_join("a", 2)
    talk.classic_sync("a", 2, (0,))
    talk.beat("b", 0, (), told=3, assigned=(), instance="i")
    talk.beat("b", -2, instance="i")
    talk.classic_join("c", 0, instance="i")
    talk.classic_join("c", 4, instance="i")


def empty_group_is_of_the_other_protocol_and_begins_anew(talk: GroupTalk) -> None:
    talk.classic_join("a", 1)
    talk.classic_sync("a", 1, (0,))
    talk.classic_join("a", 2)
    talk.classic_sync("a", 2, (0,))
    talk.classic_leave("a")
    talk.beat("b", 0, (), told=2, assigned=(0,))
    talk.beat("b", -1)
    talk.classic_join("c", 1)
    talk.classic_sync("c", 1, (0,))


def empty_group_begins_anew_as_a_classic_member_asks_for_an_id(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0,))
    talk.beat("a", -1)
    talk.say(
        join_group.JoinGroupRequest(group_id="g", protocol_type="consumer"),
        join_group.JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="b"),
    )
    talk.beat("c", 0, (), told=2, assigned=(0,))


def empty_group_is_classic_and_the_answer_to_its_first_member_is_lost(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=5, assigned=(0,))
    talk.beat("a", -1)
    talk.ask(join_group.JoinGroupRequest(group_id="g", protocol_type="consumer"))
    talk.classic_join("b", 2)


def member_joins_at_the_first_epoch_of_a_mixed_group(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=(0,))
    talk.classic_join("b", 2)
    talk.beat("c", 0, (), told=2, assigned=())
    talk.beat("a", 2, (0,))
    talk.wait(80, lambda: talk.beat("c", 2), lambda: talk.beat("a", 2))


def group_becomes_classic_while_a_new_assignment_is_due(talk: GroupTalk) -> None:
    talk.classic_join("a", 3)
    talk.beat("b", 0, (), told=4, assigned=(0,))
    talk.classic_join("c", 0, instance="static")
    talk.classic_join("d", 5, instance="static")


def refused_commit_of_a_former_owner(talk: GroupTalk) -> None:
    talk.commit_of("a", 5)
    talk.commit_of("b", 8)
    talk.commit_of("a", 7, ErrorCode.STALE_MEMBER_EPOCH)
    talk.commit_of("b", 7)
    talk.commit_of("", 3)
    talk.read_back(3)


def commits_of_epochs_that_do_not_fit_the_partition(talk: GroupTalk) -> None:
    talk.beat("a", 0, (), told=2, assigned=())
    talk.beat("a", 2, (), told=3, assigned=(0,))
    talk.commit_of("a", 5, ErrorCode.STALE_MEMBER_EPOCH, epoch=2)  # not its partition then
    talk.commit_of("a", 5, ErrorCode.STALE_MEMBER_EPOCH, epoch=9)  # not told yet
    talk.beat("a", 3, (), told=4)
    talk.commit_of("a", 5, ErrorCode.STALE_MEMBER_EPOCH, epoch=3)  # given up meanwhile


def told_to_rejoin_step_by_step(talk: GroupTalk) -> None:
    for assigned in ((0, 1), (0,), (0, 2)):
        talk.classic_join("a", 1)
        talk.classic_sync("a", 1, assigned)
        talk.classic_beat("a", 1, ErrorCode.REBALANCE_IN_PROGRESS)
    talk.observer.restarted(talk.now_ms)
    talk.classic_join("a", 1)
    talk.classic_sync("a", 1, (0, 2))


CLOSE: list[Conversation] = [
    moved_after_the_release,
    owner_was_removed,
    owner_was_removed_and_joins_again_before_it_is_answered,
    assignment_is_taken_later,
    overtaken_heartbeat,
    static_member_comes_back,
    classic_member_gives_up_and_the_next_gets,
    removed_classic_member_joins_with_its_id,
    partition_waits_for_a_silent_member,
    coordinator_was_away,
    member_outlives_a_long_absence_of_its_coordinator,
    last_member_of_the_new_protocol_is_replaced_before_an_assignment,
    empty_group_is_of_the_other_protocol_and_begins_anew,
    empty_group_begins_anew_as_a_classic_member_asks_for_an_id,
    empty_group_is_classic_and_the_answer_to_its_first_member_is_lost,
    member_joins_at_the_first_epoch_of_a_mixed_group,
    group_becomes_classic_while_a_new_assignment_is_due,
    refused_commit_of_a_former_owner,
    commits_of_epochs_that_do_not_fit_the_partition,
    told_to_rejoin_step_by_step,
]


@pytest.mark.parametrize("conversation", CLOSE, ids=lambda item: item.__name__)
def test_what_is_allowed_is_left_alone(conversation: Conversation) -> None:
    talk = GroupTalk()
    conversation(talk)
    assert talk.observer.violations == {}


def test_a_coordinator_that_does_not_know_of_the_next_may_keep_a_member_that_was_removed() -> None:
    talk = GroupTalk(is_cluster=True)
    talk.beat("a", 0, (), told=2, assigned=(0,))
    talk.broker_id = 2
    talk.beat("b", 0, (), told=4, assigned=(0,))
    talk.broker_id = 1
    talk.beat("a", 2)
    assert talk.observer.violations == {}


def test_a_stale_commit_that_had_an_effect_is_found() -> None:
    talk = GroupTalk()
    talk.commit_of("a", 5)
    talk.commit_of("b", 7, ErrorCode.STALE_MEMBER_EPOCH)
    talk.read_back(7)
    assert [name.partition(" ")[0] for name in talk.observer.violations] == ["W16"]
