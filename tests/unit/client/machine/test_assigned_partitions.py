"""The partitions that a member holds, the identity it commits with, and the positions it begins at."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.assigned_partitions import AUTO_COMMIT_MS, AssignedPartitions, Reset
from oncelog.client.machine.offsets import Committed, Membership
from oncelog.client.machine.positions import Fetched

A, B = (TopicPartition(TopicName("t"), index) for index in range(2))


def held(reset: Reset = "earliest") -> AssignedPartitions:
    assigned = AssignedPartitions("g", "i", reset, 0)
    assigned.assign([A], 7, "m")
    return assigned


def test_only_what_is_held_and_was_processed_is_committed_and_in_time() -> None:
    assigned = held()
    assert not assigned.is_commit_due(AUTO_COMMIT_MS)
    assigned.processed(A, 3)
    assigned.processed(B, 4)
    assert not assigned.is_commit_due(AUTO_COMMIT_MS - 1)
    assert assigned.is_commit_due(AUTO_COMMIT_MS)
    assert assigned.begin_commit(AUTO_COMMIT_MS) == {A: Committed(3)}
    assigned.end_commit({A: Committed(3)})
    assert not assigned.has_uncommitted


def test_offsets_stay_until_their_commit_was_answered() -> None:
    assigned = held()
    assigned.processed(A, 3)
    offsets = assigned.begin_commit(AUTO_COMMIT_MS)
    assert assigned.has_uncommitted  # an interrupt now loses nothing
    assert not assigned.is_commit_due(2 * AUTO_COMMIT_MS - 1)
    assigned.processed(A, 4)
    assigned.end_commit(offsets)
    assert assigned.begin_commit(2 * AUTO_COMMIT_MS) == {A: Committed(4)}


def test_who_has_given_up_stays_who_it_was_until_it_holds_again() -> None:
    assigned = held()
    assigned.processed(A, 3)
    assigned.revoke()
    assert (assigned.owned, assigned.is_assigned, assigned.has_uncommitted) == ((), False, False)
    assert assigned.metadata == ("g", 7, "m", "i")
    assigned.assign([B], 8, "n")
    assert assigned.membership == Membership(8, "n", "i")


def test_where_to_begin() -> None:
    assert held().start([A, B], {A: Committed(5)}) == ({A: 5}, {B: -2})
    assert held("latest").start([A, B], {}) == ({}, {A: -1, B: -1})
    with pytest.raises(ClientError, match="no offset for t-1"):
        held("none").start([A, B], {A: Committed(5)})


def test_an_offset_that_is_gone_is_reset_and_other_errors_are_raised() -> None:
    def fetched(code: int) -> Fetched:
        return Fetched(A, memoryview(b""), 0, 0, 0, [], code, 9, 9)

    assert not held().is_out_of_range(fetched(0))
    assert held().is_out_of_range(fetched(ErrorCode.OFFSET_OUT_OF_RANGE))
    with pytest.raises(BrokerRefused):
        held("none").is_out_of_range(fetched(ErrorCode.OFFSET_OUT_OF_RANGE))
    with pytest.raises(BrokerRefused):
        held().is_out_of_range(fetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
