"""Member ids that were given out and never used, as oncelog shows them and as they can be proven elsewhere."""

from __future__ import annotations

from dataclasses import replace

from oncelog.admin.explain.findings import Cause
from oncelog.admin.explain.group_causes import group_findings
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.explain.group_history import Generation, GroupHistory
from oncelog.admin.explain.pending_members import pending_member
from oncelog.admin.group_descriptions import PendingMember
from oncelog.records.internal.group_records import MemberMetadata
from tests.unit.admin.explain.test_group_causes import MEMBER, NOW, facts

LOST = PendingMember("app-0f8fad5b-d9cb-469f-a165-70867728950e", NOW + 30_000, "/10.0.0.8")


def rebalancing(*earlier: str, pending: tuple[PendingMember, ...] = (), awaited: tuple[str, ...] = ()) -> GroupFacts:
    """A group with the member m-1; ``earlier`` are the members of its last generation."""
    made = facts()
    made.description = replace(
        made.description,
        state="PreparingRebalance",
        members=[replace(MEMBER, partitions=())],
        pending=pending,
        awaited=awaited,
    )
    members = tuple(MemberMetadata(name, "app", "/10.0.0.7", 10_000, 10_000) for name in earlier)
    made.later = made.description
    made.history = GroupHistory(NOW - 60_000, generations=[Generation(1, NOW - 50_000, members)])
    return made


def test_a_coordinator_that_shows_them_is_believed() -> None:
    told = pending_member(rebalancing("m-1", pending=(LOST,), awaited=("m-1",)))
    assert told is not None
    assert "(client 'app' on 10.0.0.8)" in told.sentences[0]
    assert told.sentences[2] == "It also waits for 1 member to join again."
    assert told.clears == "It clears by itself in 30 s, when the session of that id ends."


def test_members_of_the_last_generation_leave_it_open() -> None:
    assert pending_member(rebalancing("m-1")) is None
    causes = {finding.cause: finding for finding in group_findings(rebalancing("m-1"))}
    assert "KIP-394" in causes[Cause.REBALANCING].sentences[-1]


def test_new_members_alone_prove_it() -> None:
    told = pending_member(rebalancing("m-0"))
    assert told is not None
    assert told.evidence["pending"] == 0
    without_history = rebalancing()
    without_history.history = None
    assert pending_member(without_history) is None
    stable = rebalancing("m-0", pending=(LOST,))
    stable.description = stable.later = replace(stable.description, state="Stable")
    assert pending_member(stable) is None


def test_a_healthy_rebalance_is_none() -> None:
    """Each client has such an id for a moment, and a group that had no members waits for more of them."""
    passing = [rebalancing("m-1", pending=(LOST,)), rebalancing(), rebalancing("m-0"), rebalancing("m-0")]
    passing[0].later = replace(passing[0].description, pending=())
    passing[1].later = replace(passing[1].description, state="Stable")
    passing[2].later = replace(passing[2].description, members=[MEMBER, replace(MEMBER, member_id="m-2")])
    passing[3].later = None  # it was not described again
    for group in passing:
        assert pending_member(group) is None
        assert Cause.REBALANCING in {finding.cause for finding in group_findings(group)}


def test_only_ids_that_stay_are_named() -> None:
    young = PendingMember("new-0f8fad5b-d9cb-469f-a165-70867728950f", NOW + 40_000, "/10.0.0.9")
    group = rebalancing("m-1", pending=(LOST, young))
    group.later = replace(group.description, pending=(LOST,))
    told = pending_member(group)
    assert told is not None
    assert (told.evidence["pending"], "10.0.0.9" in told.sentences[0]) == (1, False)
