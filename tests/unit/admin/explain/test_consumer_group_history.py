"""The recent past of a group of the consumer protocol, by its records."""

from __future__ import annotations

from oncelog.admin.explain.consumer_group_history import EpochHistory, clients, history_sentences
from oncelog.admin.explain.group_history import GroupHistory, add_records
from oncelog.base.ids import TopicId
from oncelog.client.machine.consumed_records import ConsumedRecord
from oncelog.records.internal import consumer_group_records as groups
from oncelog.records.internal.group_records import encode_group_metadata_key

G = "g"
CLASSIC = groups.ClassicMemberValue(45_000, ())
TOPIC = TopicId(bytes(15) + b"\1")
STABLE, UNREVOKED = 0, 1
Record = tuple[groups.Key, groups.Value | None]


def subscription(member: str, *, classic: bool = False) -> Record:
    value = groups.MemberValue(
        None, None, f"app-{member}", "/10.0.0.7", ("t",), "", 300_000, None, CLASSIC if classic else None
    )
    return groups.MemberKey(G, member), value


def assignment(member: str, epoch: int, previous: int, state: int = STABLE) -> Record:
    value = groups.CurrentMemberValue(epoch, previous, state, {TOPIC: {0: epoch}}, {})
    return groups.CurrentMemberKey(G, member), value


def epoch(number: int) -> Record:
    return groups.ConsumerGroupKey(G), groups.ConsumerGroupValue(number)


def target(number: int) -> Record:
    return groups.TargetEpochKey(G), groups.TargetEpochValue(number, 1)


def join(member: str, number: int) -> list[Record]:
    return [subscription(member), epoch(number), target(number), assignment(member, number, 0)]


def leave(member: str, number: int) -> list[Record]:
    gone = (groups.CurrentMemberKey, groups.TargetMemberKey, groups.MemberKey)
    return [*((key_type(G, member), None) for key_type in gone), epoch(number)]


def record(key: bytes, value: bytes | None, at_ms: int) -> ConsumedRecord:
    return ConsumedRecord("__consumer_offsets", 0, 0, at_ms, "CreateTime", key, value, (), 0)


def told(*batches: list[Record]) -> EpochHistory:
    """The history by batches as they are in the log, one a second."""
    history = GroupHistory(1000)
    for second, batch in enumerate(batches, 1):
        for key, value in batch:
            data = None if value is None else groups.encode_value(value)
            add_records({G: history}, [record(groups.encode_key(key), data, second * 1000)])
    return history.epochs


def test_epochs_targets_and_members_that_come_and_go() -> None:
    history = told(join("a", 2), join("b", 3), leave("a", 4), [target(4), assignment("b", 4, 3)])
    assert [(change.epoch, change.at_ms) for change in history.epochs] == [(2, 1000), (3, 2000), (4, 3000)]
    assert [change.epoch for change in history.targets] == [2, 3, 4]
    assert [change.client_id for change in history.joined] == ["app-a", "app-b"]
    assert [(change.client_id, change.at_ms) for change in history.left] == [("app-a", 3000)]
    assert set(history.subscriptions) == set(history.progress) == {"b"}
    assert history_sentences(history) == [
        "Its group epoch rose 3 times: to 2 at 1970-01-01 00:00:01 UTC, at last to 4 at 1970-01-01 00:00:03 UTC.",
        "3 target assignments came into effect, the last for epoch 4 at 1970-01-01 00:00:04 UTC.",
        "2 members joined: 'app-a' on 10.0.0.7, 'app-b' on 10.0.0.7; the last at 1970-01-01 00:00:02 UTC.",
        "1 member left: 'app-a' on 10.0.0.7; the last at 1970-01-01 00:00:03 UTC.",
    ]


def test_a_state_lasts_since_its_first_record() -> None:
    revoking = assignment("a", 2, 2, UNREVOKED)
    history = told(join("a", 2), [revoking], [subscription("a"), revoking])
    assert (history.progress["a"].state, history.progress["a"].since_ms) == (UNREVOKED, 2000)
    assert len(history.joined) == 1


def test_members_from_before_the_window_are_not_new_and_have_no_name() -> None:
    history = told([subscription("a"), epoch(9), assignment("a", 9, 8)], leave("b", 10))
    assert history.joined == []
    assert [(change.member_id, change.client_id) for change in history.left] == [("b", "")]
    assert not clients(history.left)
    assert "member id 'b'" in history_sentences(history)[1]


def test_members_of_a_group_that_becomes_classic_again_have_not_left() -> None:
    upgraded = [subscription("old", classic=True), epoch(7), assignment("old", 7, 7)]
    removed = [(key, None) for key, _ in [assignment("old", 7, 7), subscription("old"), subscription("new")]]
    history = told(upgraded, join("new", 8), [*removed, (groups.ConsumerGroupKey(G), None)])
    assert [change.client_id for change in history.joined] == ["app-new"]
    assert [change.client_id for change in history.left] == ["app-new"]
    assert history.progress == {}


def test_other_groups_and_unreadable_records_tell_nothing() -> None:
    history = GroupHistory(0)
    keys = [groups.encode_key(groups.ConsumerGroupKey("other")), encode_group_metadata_key(G)]
    keys += [groups.encode_key(groups.ConsumerGroupKey(G)), groups.encode_key(groups.MemberKey(G, "a"))]
    add_records({G: history}, [record(key, b"\0\7\1", 1) for key in keys])
    assert history.epochs == EpochHistory()
    assert not history.generations
