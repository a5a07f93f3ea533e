"""Share groups one rule at a time; tests/conformance/groups/share_histories.py compares them with Apache Kafka's."""

from __future__ import annotations

import time

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import GroupId, MemberId, Offset, TopicId, TopicName
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
from oncelog.core.groups.model import CommitRequest, JoinReply, JoinRequest
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.share.assignor import ShareMemberSpec, ShareSpec, assign
from oncelog.core.groups.share.heartbeat import ShareHeartbeat
from oncelog.core.groups.share.settings import ShareGroupSettings
from oncelog.core.groups.share_groups import DELETION_MS, OffsetsReply, ShareHeartbeatReply
from oncelog.records.internal import share_group_records
from tests.unit.core.groups.share.scene import GROUP, Scene, SomeTopics, state_of


def reply_of(reply: object) -> ShareHeartbeatReply:
    assert isinstance(reply, ShareHeartbeatReply)
    return reply


def told(reply: object) -> tuple[int, object]:
    answer = reply_of(reply).answer
    assert answer is not None, reply
    return answer.epoch, answer.assignment


def test_a_join_writes_its_records_in_apache_kafkas_order() -> None:
    scene = Scene()
    scene.beat(0, topics=["t"], initializes=False)
    (batch,) = scene.batches
    versions = [int.from_bytes(key[:2], "big") for key, _ in batch]
    assert versions == [10, 11, 13, 12, 14, 15]
    assert all(value is not None for _, value in batch)


def test_the_first_member_after_the_last_gets_its_assignment_at_once() -> None:
    scene = Scene(settings=ShareGroupSettings(assignment_interval_ms=1000))
    scene.join()
    scene.advance(1000)
    scene.beat(2)
    scene.beat(-1)
    assert scene.group is not None
    assert (scene.group.target_epoch, scene.group.target_timestamp_ms) == (scene.group.epoch, 0)
    epoch, assignment = told(scene.beat(0, "n", ["t"]))
    assert (epoch, assignment) == (5, {scene.topics.id_of(TopicName("t")): frozenset({0, 1})})


def test_a_classic_joins_session_time_out_is_checked_before_the_groups_kind() -> None:
    scene = Scene()
    scene.join()
    for timeout_ms, code in ((5_999, E.INVALID_SESSION_TIMEOUT), (6_000, E.INCONSISTENT_GROUP_PROTOCOL)):
        request = JoinRequest(
            GROUP, MemberId(""), MemberId("n"), None, "c", "/host", timeout_ms, 60_000, "consumer", ()
        )
        assert scene.shard.join(request, 0, scene.now_ms).reply == JoinReply(code)


def test_a_target_waits_for_its_interval() -> None:
    scene = Scene(settings=ShareGroupSettings(assignment_interval_ms=1000))
    scene.join()
    assert told(scene.beat(2)) == (2, None), "the state is made, but the last assignment is young"
    scene.advance(1000)
    epoch, assignment = told(scene.beat(2))
    assert epoch == 3
    assert assignment


def test_partitions_added_to_a_known_topic_begin_at_their_first_record() -> None:
    scene = Scene()
    scene.join()
    scene.topics.put("t", 4)
    reply = reply_of(scene.beat(2))
    assert [(state.partition, state.start_offset) for state in reply.to_initialize] == [(2, 0), (3, 0)]


def test_an_initialization_that_is_repeated_does_not_begin_at_the_first_record() -> None:
    scene = Scene()
    scene.beat(0, topics=["t"], initializes=False)
    scene.advance(29_999)
    assert not reply_of(scene.beat(2, initializes=False)).to_initialize
    scene.topics.put("t", 3)
    scene.advance(1)
    reply = reply_of(scene.beat(2, initializes=False))
    offsets = [(state.partition, state.start_offset) for state in reply.to_initialize]
    assert offsets == [(0, -1), (1, -1), (2, 0)]


def test_a_load_gives_initializations_the_full_time_again() -> None:
    scene = Scene()
    scene.beat(0, topics=["t"], initializes=False)
    scene.advance(29_000)
    scene.shard = scene.loaded(record for batch in scene.batches for record in batch)
    scene.advance(29_000)
    assert not reply_of(scene.beat(2, initializes=False)).to_initialize
    scene.advance(1_000)
    assert reply_of(scene.beat(2, initializes=False)).to_initialize


def test_an_outcome_for_a_group_that_is_gone_changes_nothing() -> None:
    scene = Scene()
    scene.beat(0, topics=["t"], initializes=False)
    scene.beat(-1)
    scene.carry_out(scene.shard.share.begin_group_deletion(GROUP, scene.now_ms))
    scene.carry_out(scene.shard.delete_group(GROUP, 0, scene.now_ms))
    assert scene.group is None
    batches = len(scene.batches)
    scene.initialized(0)
    assert (scene.group, len(scene.batches)) == (None, batches)


def test_a_refused_append_leaves_no_trace() -> None:
    scene = Scene()
    scene.refuses_appends = True
    assert scene.beat(0, topics=["t"]) is E.COORDINATOR_NOT_AVAILABLE
    assert scene.group is None
    scene.refuses_appends = False
    scene.join()
    before = state_of(scene.group)
    scene.refuses_appends = True
    assert scene.beat(-1) is E.COORDINATOR_NOT_AVAILABLE
    assert state_of(scene.group) == before
    scene.advance(45_000)
    assert state_of(scene.group) == before, "a session that ends while the log refuses"
    scene.refuses_appends = False
    scene.advance(500)
    assert scene.group is not None
    assert not scene.group.members


def test_a_deletion_that_failed_is_repeated() -> None:
    scene = Scene()
    scene.join()
    scene.beat(-1)
    topic = scene.topics.id_of(TopicName("t"))
    for _ in range(2):
        reply = scene.carry_out(scene.shard.share.delete_offsets(GROUP, [TopicName("t")], scene.now_ms))
        assert isinstance(reply, OffsetsReply)
        assert [(state.topic, state.partition) for state in reply.states] == [(topic, 0), (topic, 1)]
    assert topic is not None
    scene.carry_out(scene.shard.share.deleted(GROUP, [topic]))
    reply = scene.carry_out(scene.shard.share.delete_offsets(GROUP, [TopicName("t")], scene.now_ms))
    assert isinstance(reply, OffsetsReply)
    assert [result.error_code for result in reply.topics] == [E.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_join_takes_a_topic_back_from_its_deletion() -> None:
    scene = Scene()
    scene.join()
    scene.beat(-1)
    scene.carry_out(scene.shard.share.delete_offsets(GROUP, [TopicName("t")], scene.now_ms))
    epoch = scene.join()
    assert known_topics(scene) == {scene.topics.id_of(TopicName("t"))}
    assert not reply_of(scene.beat(epoch)).to_initialize, "the deletion is under way"
    scene.advance(DELETION_MS)
    scene.join()
    assert scene.group is not None
    assert scene.group.state_topics is not None
    assert not scene.group.state_topics.deleting


def test_groups_of_other_kinds_and_share_groups_refuse_each_others_members() -> None:
    scene = Scene()
    scene.join()
    consumer = ConsumerHeartbeat(GROUP, MemberId("c"), 0, rebalance_timeout_ms=1000, topics=frozenset(), owned={})
    for epoch in (0, -1):
        reply = scene.carry_out(scene.shard.consumer_heartbeat(consumer._replace(epoch=epoch), 1, scene.now_ms))
        assert (reply.error_code, reply.message) == (E.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")
    commit = CommitRequest(GROUP, MemberId(""), -1, None, [])
    assert scene.carry_out(scene.shard.commit_offsets(commit, 1, scene.now_ms)).error_code is E.GROUP_ID_NOT_FOUND
    assert scene.carry_out(scene.shard.delete_offsets(GROUP, [], 1, scene.now_ms)) is E.GROUP_ID_NOT_FOUND
    assert scene.carry_out(scene.shard.fetch_offsets(GROUP, None, 1, scene.now_ms)) == []


def test_an_empty_share_group_does_not_expire() -> None:
    scene = Scene(limits=GroupSettings(offsets_retention_ms=1000, offsets_retention_check_interval_ms=1000))
    scene.join()
    scene.beat(-1)
    scene.advance(10_000)
    assert scene.group is not None


def test_members_count_towards_the_memory_quota() -> None:
    scene = Scene(limits=GroupSettings(members_max_bytes=8_000))
    for number in range(3):
        scene.join(f"m{number}")
    refused = reply_of(scene.beat(0, "one too many", ["t"]))
    assert refused.error_code is E.COORDINATOR_NOT_AVAILABLE
    assert reply_of(scene.beat(4, "m2")).error_code is E.NONE


def test_partitions_with_share_state_have_a_bound_of_their_own() -> None:
    """Groups without members do not expire: what they hold must not keep members from other groups."""
    topics = SomeTopics(t=300, u=2)
    scene = Scene(topics, limits=GroupSettings(members_max_bytes=60_000, share_partitions_max=310))
    scene.join()
    scene.beat(-1)
    altered = scene.alter(t=dict.fromkeys(range(300), 7), u={0: 0})
    assert isinstance(altered, OffsetsReply)
    assert altered.error_code is E.NONE, "it has state already"

    def join(group: str, *names: str) -> ShareHeartbeatReply:
        request = ShareHeartbeat(GroupId(group), MemberId("m"), 0, None, frozenset(map(TopicName, names)))
        return reply_of(scene.carry_out(scene.shard.share.heartbeat(request, scene.now_ms)))

    refused = join("h", "t")
    assert refused.error_code is E.COORDINATOR_NOT_AVAILABLE
    assert "oncelog.group.share.partitions.max" in (refused.message or "")
    assert join("h", "u").error_code is E.NONE
    starts = {TopicName("t"): dict.fromkeys(range(5), Offset(0))}
    others = scene.shard.share.alter_offsets(GroupId("i"), starts).reply
    assert isinstance(others, OffsetsReply)
    assert others.error_code is E.COORDINATOR_NOT_AVAILABLE
    topics.put("u", 20)
    scene.delete_topic("t")
    topics.put("v", 200)
    assert join("i", "v").error_code is E.NONE


def test_members_that_stay_get_no_state_beyond_the_bound() -> None:
    topics = SomeTopics(t=2, other=5)
    scene = Scene(topics, limits=GroupSettings(share_partitions_max=12))
    scene.join("m", ["t", "late"])
    topics.put("t", 4)
    topics.put("late", 1000)
    decision = scene.shard.share.heartbeat(ShareHeartbeat(GROUP, MemberId("m"), 2), scene.now_ms)
    assert "oncelog.group.share.partitions.max" in (decision.warning or "")
    reply = reply_of(scene.beat(2))
    assert [(state.partition, state.start_offset) for state in reply.to_initialize] == [(2, 0), (3, 0)], "they fit"
    assert scene.group is not None
    assert scene.group.state_count() == 5
    # The others get it when there is room again, from where the group's config says; it is looked for now and then.
    epoch, _ = told(scene.beat(3))
    topics.put("late", 6)
    assert [state.start_offset for state in reply_of(scene.beat(epoch)).to_initialize] == [-1] * 6
    assert scene.group.state_count() == 12
    topics.put("late", 7)
    warned = []
    for milliseconds in (0, 0, 0, 29_999, 1):
        scene.advance(milliseconds)
        epoch = scene.group.members[MemberId("m")].epoch
        decision = scene.shard.share.heartbeat(ShareHeartbeat(GROUP, MemberId("m"), epoch), scene.now_ms)
        warned.append(decision.warning is not None)
        assert not reply_of(scene.carry_out(decision)).to_initialize
    assert warned == [True, True, False, False, True], "the first two have changed something else"
    epoch = scene.group.members[MemberId("m")].epoch
    scene.delete_topic("t")
    assert [state.start_offset for state in reply_of(scene.beat(epoch)).to_initialize] == [0]


def test_a_steady_heartbeat_is_cheap_in_a_large_group() -> None:
    scene = Scene(SomeTopics(t=500), ShareGroupSettings())
    for number in range(50):
        scene.join(f"m{number}")
    scene.advance(1000)
    epochs = {}
    for number in range(50):
        epoch, _ = told(scene.beat(scene.group.members[MemberId(f"m{number}")].epoch, f"m{number}"))  # type: ignore[union-attr]
        epochs[f"m{number}"] = epoch
    batches = len(scene.batches)
    start = time.process_time()
    for member, epoch in epochs.items():
        assert told(scene.beat(epoch, member)) == (epoch, None)
    assert len(scene.batches) == batches
    assert (time.process_time() - start) / len(epochs) < 0.002


def test_the_assignor_covers_every_partition_and_shares_evenly() -> None:
    topic = TopicId(b"t" * 16)
    members = {MemberId(f"m{number}"): ShareMemberSpec(frozenset({topic}), {}) for number in range(5)}
    shares = assign(ShareSpec(members, True, {topic: [0, 1, 2]}))
    sizes = sorted(len(share.get(topic, ())) for share in shares.values())
    assert sizes == [1, 1, 1, 1, 2], "two members a partition, six shares for five members"
    assert {number for share in shares.values() for number in share[topic]} == {0, 1, 2}


def test_the_assignor_moves_no_more_than_it_must() -> None:
    topic = TopicId(b"t" * 16)
    members = {MemberId(f"m{number}"): ShareMemberSpec(frozenset({topic}), {}) for number in range(3)}
    shares = assign(ShareSpec(members, True, {topic: list(range(6))}))
    again = {name: member._replace(assigned=shares[name]) for name, member in members.items()}
    assert assign(ShareSpec(again, True, {topic: list(range(6))})) == shares
    again[MemberId("new")] = ShareMemberSpec(frozenset({topic}), {})
    wider = assign(ShareSpec(again, True, {topic: list(range(6))}))
    moved = sum(
        len(wider[name].get(topic, frozenset()) - again[name].assigned.get(topic, frozenset())) for name in again
    )
    assert moved <= 2
    assert sorted(len(share.get(topic, ())) for share in wider.values()) == [1, 1, 2, 2]


def test_the_assignor_of_several_subscriptions_goes_topic_by_topic() -> None:
    first, second = TopicId(b"1" * 16), TopicId(b"2" * 16)
    members = {
        MemberId("a"): ShareMemberSpec(frozenset({first}), {second: frozenset({0})}),
        MemberId("b"): ShareMemberSpec(frozenset({first, second}), {}),
    }
    shares = assign(ShareSpec(members, False, {first: [0, 1], second: [0]}))
    assert shares[MemberId("b")][second] == {0}
    assert second not in shares[MemberId("a")]
    assert {len(share[first]) for share in shares.values()} == {1}
    assert assign(ShareSpec({}, True, {})) == {}


def test_records_are_apache_kafkas_bytes() -> None:
    """Written by the GroupMetadataManager of 4.4.0 for the first heartbeat of a member."""
    topic = TopicId(b"\1" * 16)
    written = {
        "000a00016700016d": "00000007636c69656e74146c6f63616c686f73742f3132372e302e302e310203743000",
        "000b000167": "0000000000025ef36aaf9fc5825700",
        "000d00016700016d": "00000100",
        "000c000167": "00000000000201000800000000000003e8",
        "000e00016700016d": "00000000000200000000000100",
        "000f000167": "0000020101010101010101010101010101010103743003000000000000000100010100",
    }
    for key_text, value_text in written.items():
        data = bytes.fromhex(key_text)
        key = share_group_records.decode_key(int.from_bytes(data[:2], "big"), data[2:])
        value = share_group_records.decode_value(key, bytes.fromhex(value_text))
        assert share_group_records.encode_key(key) == data
        assert share_group_records.encode_value(value).hex() == value_text
    named = share_group_records.NamedPartitions("t0", (0, 1))
    assert value == share_group_records.ShareStateTopicsValue({topic: named}, {}, {})


def settled(scene: Scene, topics: tuple[str, ...]) -> int:
    """The epoch of a member that has got all partitions."""
    epoch = scene.join(topics=topics)
    for _ in range(3):
        epoch, _ = told(scene.beat(epoch))
    return epoch


def stays(scene: Scene, epoch: int) -> bool:
    return all(told(scene.beat(epoch))[0] == epoch for _ in range(5))


def known_topics(scene: Scene) -> set[TopicId]:
    assert scene.group is not None
    state = scene.group.state_topics
    assert state is not None
    return {*state.known(), *state.deleting}


def test_a_topic_whose_deletion_was_missed_is_dropped_after_a_load() -> None:
    scene = Scene(SomeTopics(t=2, u=1))
    epoch = settled(scene, ("t", "u"))
    scene.topics.delete("t")
    scene.shard = scene.loaded(record for batch in scene.batches for record in batch)
    scene.refuses_appends = True
    scene.advance(0)
    scene.refuses_appends = False
    epoch, _ = told(scene.beat(epoch))
    assert stays(scene, epoch), "not a rebalance for each heartbeat"
    scene.advance(1000)
    assert known_topics(scene) == {scene.topics.id_of(TopicName("u"))}


def test_a_topic_whose_deletion_the_log_refused_is_dropped_later() -> None:
    scene = Scene(SomeTopics(t=2, u=1))
    epoch = settled(scene, ("t", "u"))
    scene.refuses_appends = True
    scene.delete_topic("t")
    scene.topics.put("t", 1, anew=True)
    scene.refuses_appends = False
    for _ in range(4):
        epoch, _ = told(scene.beat(epoch))
    assert stays(scene, epoch)
    scene.advance(1000)
    assert known_topics(scene) == {scene.topics.id_of(TopicName("t")), scene.topics.id_of(TopicName("u"))}


def test_a_late_outcome_does_not_bring_back_a_deleted_topic() -> None:
    scene = Scene(SomeTopics(t=2, u=1))
    scene.beat(0, topics=["t", "u"], initializes=False)
    scene.delete_topic("t")
    scene.initialized(-1)
    assert known_topics(scene) == {scene.topics.id_of(TopicName("u"))}


def test_the_deletion_of_a_group_passes_over_topics_that_are_gone() -> None:
    scene = Scene(SomeTopics(t=2, u=1))
    scene.join(topics=("t", "u"))
    scene.beat(-1)
    scene.topics.delete("t")
    reply = scene.carry_out(scene.shard.share.begin_group_deletion(GROUP, scene.now_ms))
    assert isinstance(reply, OffsetsReply)
    assert [state.topic for state in reply.states] == [scene.topics.id_of(TopicName("u"))]


def test_a_steady_heartbeat_does_not_look_at_each_topic() -> None:
    scene = Scene(SomeTopics(t=1))
    names = ("t", *(f"missing{number}" for number in range(1_000)))
    epoch = settled(scene, names)
    asked = []
    id_of = scene.topics.id_of
    scene.topics.id_of = lambda name: asked.append(name) or id_of(name)  # type: ignore[func-returns-value, method-assign]
    assert stays(scene, epoch)
    assert not asked
    scene.topics.put("missing5", 1)
    assert reply_of(scene.beat(epoch)).to_initialize


def test_a_steady_heartbeat_still_repeats_what_falls_due() -> None:
    scene = Scene()
    epoch = told(scene.beat(0, topics=["t"], initializes=False))[0]
    for _ in range(2):
        assert not reply_of(scene.beat(epoch)).to_initialize
        scene.advance(14_999)
    scene.advance(2)
    assert reply_of(scene.beat(epoch)).to_initialize


def test_a_fence_beyond_all_numbers_is_left_alone() -> None:
    scene = Scene()
    scene.beat(0, topics=["t"], initializes=False)
    assert scene.group is not None
    epoch, topic = scene.group.epoch, scene.topics.id_of(TopicName("t"))
    assert topic is not None
    scene.carry_out(scene.shard.share.initialized(GROUP, {}, {topic: frozenset({0, 1})}, fenced_by=2**31 - 1))
    assert scene.group.epoch == epoch
