from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, TopicId
from oncelog.base.units import INT32_MAX
from oncelog.core.share import sessions
from oncelog.core.share.sessions import Begun, SessionKey, ShareSessions, next_epoch

ORDERS = TopicId(b"o" * 16)
KEY = SessionKey(GroupId("workers"), MemberId("m1"))
OTHER = SessionKey(GroupId("workers"), MemberId("m2"))


def fetch(
    kept: ShareSessions, epoch: int, *requested: int, forgotten=(), key=KEY, connection=1, acknowledges=False
) -> Begun:
    return kept.fetch(
        key,
        epoch,
        [(ORDERS, index) for index in requested],
        [(ORDERS, index) for index in forgotten],
        connection,
        acknowledges=acknowledges,
    )


def indexes(begun: Begun) -> list[int]:
    return [index for _, index in begun.partitions]


def test_a_session_goes_on_by_epochs_and_adds_and_forgets_partitions() -> None:
    kept = ShareSessions(10)
    assert indexes(fetch(kept, 0, 0, 1)) == [0, 1]
    assert indexes(fetch(kept, 1)) == [0, 1]
    assert indexes(fetch(kept, 2, 2, forgotten=[0])) == [1, 2]
    assert kept.acknowledge(KEY, 3, 1) == ErrorCode.NONE
    assert indexes(fetch(kept, 4)) == [1, 2]
    assert (len(kept), kept.partition_count) == (1, 2)


def test_a_partition_acknowledged_and_forgotten_by_one_request_is_not_in_the_session() -> None:
    kept = ShareSessions(10)
    fetch(kept, 0, 0)
    assert indexes(fetch(kept, 1, 5, forgotten=[5], acknowledges=True)) == [0]


def test_wrong_epochs() -> None:
    kept = ShareSessions(10)
    assert fetch(kept, 1, 0).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert fetch(kept, -1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert kept.acknowledge(KEY, 1, 1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert kept.acknowledge(KEY, 0, 1) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    fetch(kept, 0, 0)
    assert fetch(kept, 2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert kept.acknowledge(KEY, 3, 1) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert fetch(kept, 1).error_code == ErrorCode.NONE
    assert fetch(kept, 1).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH  # the same connection repeats nothing
    assert kept.acknowledge(KEY, -1, 1) == ErrorCode.NONE


def test_the_first_request_acknowledges_nothing() -> None:
    kept = ShareSessions(10)
    assert fetch(kept, 0, 0, acknowledges=True).error_code == ErrorCode.INVALID_REQUEST
    assert len(kept) == 0


def test_epochs_wrap_past_zero() -> None:
    assert [next_epoch(epoch) for epoch in (0, INT32_MAX, -1)] == [1, 1, -1]


def test_a_request_whose_answer_was_lost_is_repeated_on_another_connection() -> None:
    kept = ShareSessions(10)
    fetch(kept, 0, 0)
    first = fetch(kept, 1)
    again = fetch(kept, 1, connection=2)
    assert again.error_code == ErrorCode.NONE
    assert kept.is_current(again)
    assert not kept.is_current(first)
    assert kept.close(1) == []  # the old connection's end is noticed late: the session is the new one's
    assert fetch(kept, 2, connection=2).error_code == ErrorCode.NONE
    assert not kept.is_current(first)
    assert [session.key for session in kept.close(2)] == [KEY]


def test_a_new_session_replaces_the_members_old_one() -> None:
    kept = ShareSessions(10)
    old = fetch(kept, 0, 0, 1)
    assert indexes(fetch(kept, 0, 2, connection=2)) == [2]
    assert not kept.is_current(old)
    assert kept.close(1) == []
    assert (len(kept), kept.partition_count) == (1, 1)


def test_the_limit_on_sessions() -> None:
    kept = ShareSessions(1)
    fetch(kept, 0, 0)
    assert fetch(kept, 0, 0, key=OTHER).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert fetch(kept, 0, 0).error_code == ErrorCode.NONE  # the member's own is replaced
    kept.remove(KEY)
    assert fetch(kept, 0, 0, key=OTHER).error_code == ErrorCode.NONE


def test_the_limit_on_partitions(monkeypatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_PARTITIONS", 3)
    kept = ShareSessions(10)
    fetch(kept, 0, 0, 1)
    assert fetch(kept, 0, 0, 1, key=OTHER).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert fetch(kept, 0, 0, key=OTHER).error_code == ErrorCode.NONE
    assert fetch(kept, 1, 2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (len(kept), kept.partition_count) == (2, 3)
    assert indexes(fetch(kept, 1)) == [0, 1]  # nothing changed


def test_partitions_of_ended_sessions_count_until_they_are_released(monkeypatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_PARTITIONS", 3)
    left = [2]
    kept = ShareSessions(10, releasing=lambda: left[0])
    assert fetch(kept, 0, 0, 1).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    left[0] = 1
    assert fetch(kept, 0, 0, 1).error_code == ErrorCode.NONE


def test_the_limit_on_partitions_of_one_session(monkeypatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_SESSION_PARTITIONS", 2)
    kept = ShareSessions(10)
    assert fetch(kept, 0, 0, 1, 2).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    fetch(kept, 0, 0, 1)
    assert fetch(kept, 1, 2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert indexes(fetch(kept, 1)) == [0, 1]  # nothing changed


def test_sessions_end_with_their_connection() -> None:
    kept = ShareSessions(10)
    fetch(kept, 0, 0)
    fetch(kept, 0, 0, key=OTHER)
    assert kept.has_group(GroupId("workers"))
    assert {session.key for session in kept.close(1)} == {KEY, OTHER}
    assert not kept.has_group(GroupId("workers"))
    assert (len(kept), kept.partition_count, kept.evictions) == (0, 0, 2)


def test_an_answer_has_what_is_new() -> None:
    kept = ShareSessions(10)
    fetch(kept, 0, 0, 1)
    session = fetch(kept, 1, 2).session
    assert session is not None

    def must_answer(index: int, *, has_records=False, has_error=False) -> bool:
        return session.must_answer((ORDERS, index), has_records=has_records, has_error=has_error)

    assert [must_answer(index) for index in (0, 1, 2)] == [False, False, True]  # partition 2 was added
    assert not must_answer(2)
    assert must_answer(0, has_records=True)
    assert list(session.partitions) == [(ORDERS, 1), (ORDERS, 2), (ORDERS, 0)]  # the others are read first next time
    assert must_answer(1, has_error=True)
    assert must_answer(1)  # the first success after an error
    assert not must_answer(1)
