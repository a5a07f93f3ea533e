"""The end of large sessions: slice by slice, and before the member's next session acquires anything."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.ids import GroupId, MemberId, TopicId
from oncelog.core.share.sessions import PartitionKey, SessionKey
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.share.session_releases import PARTITIONS_PER_SLICE, SessionReleases

KEY = SessionKey(GroupId("g"), MemberId("m"))
COUNT = 10 * PARTITIONS_PER_SLICE + 1
PARTITIONS = [(TopicId(b"t" * 16), index) for index in range(COUNT)]


class Released:
    def __init__(self) -> None:
        self.slices: list[int] = []
        self.ended: list[GroupId] = []
        self.deadlines = Deadlines()
        self.releases = SessionReleases(self.deadlines, self.release, self.ended.append)
        self.releases.begin(KEY, PARTITIONS)

    def release(self, key: SessionKey, partitions: Sequence[PartitionKey]) -> None:
        assert key == KEY
        self.slices.append(len(partitions))


def test_a_large_session_ends_in_slices() -> None:
    released = Released()
    assert (released.slices, released.releases.has_group(KEY.group_id)) == ([PARTITIONS_PER_SLICE], True)
    for now_ms in range(1, 11):
        released.deadlines.run_due(now_ms)
        assert len(released.slices) == now_ms + 1
    assert sum(released.slices) == COUNT
    assert released.ended == [KEY.group_id]
    assert not released.releases.has_group(KEY.group_id)
    assert released.deadlines.next_ms() is None


def test_a_member_that_begins_again_releases_the_rest_itself() -> None:
    released = Released()
    while released.releases.goes_on(KEY):
        pass
    assert sum(released.slices) == COUNT
    released.deadlines.run_due(1)
    assert sum(released.slices) == COUNT
    assert released.ended == [KEY.group_id]


def test_a_member_that_begins_and_goes_again_and_again_queues_each_partition_once() -> None:
    released = Released()
    for _ in range(10):
        released.releases.begin(KEY, PARTITIONS)
    assert released.releases.partition_count == COUNT
    while released.releases.goes_on(KEY):
        pass
    assert (sum(released.slices), released.releases.partition_count) == (COUNT + PARTITIONS_PER_SLICE, 0)
