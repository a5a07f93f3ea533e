"""The causes of a standstill, from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.explain.group_causes import CONSTANT_REBALANCES, MANY_REBALANCES, group_findings
from oncelog.admin.explain.group_facts import GroupFacts, Growth, NextBatch
from oncelog.admin.explain.group_history import Commit, Generation, GroupHistory
from oncelog.admin.explain.partition_facts import PartitionFacts
from oncelog.admin.explain.uncommitted_partitions import MOST_NOTES
from oncelog.admin.groups import GroupDescription, MemberRow
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.internal.group_records import MemberMetadata

NOW = 1_800_000_000_000
MINUTE = 60_000
A, B = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
MEMBER = MemberRow("m-1", None, "app", "/10.0.0.7", (A, B))


def facts(**changes: object) -> GroupFacts:
    """A group whose one member is 100 behind in A and at the end of B, and has committed in neither for 15 minutes."""
    described = GroupDescription("g", "Stable", "classic", "consumer", "range", 1, [MEMBER])
    partition = PartitionFacts(A, leader=1, replicas=(1,), isr=(1,), log_start=0, bounds=Bounds(200, 200))
    made = GroupFacts(
        described,
        NOW,
        {A: 100, B: 200},
        {A: partition, B: replace(partition, partition=B)},
        GroupHistory(NOW - 15 * MINUTE),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def history(*, a: tuple[Commit, ...] = (), b: tuple[Commit, ...] = (), timeout_ms: int = 5 * MINUTE) -> GroupHistory:
    member = MemberMetadata("m-1", "app", "/10.0.0.7", 10_000, timeout_ms)
    made = GroupHistory(NOW - 15 * MINUTE, generations=[Generation(3, NOW - 14 * MINUTE, (member,))])
    made.commits = {where: list(found) for where, found in ((A, a), (B, b)) if found}
    return made


def causes(findings: list[Finding]) -> list[tuple[Cause, Severity]]:
    return [(finding.cause, finding.severity) for finding in findings]


def only(given: GroupFacts) -> Finding:
    [result] = group_findings(given)
    return result


def test_a_member_that_outlasts_its_poll_interval_polls_and_does_not_commit() -> None:
    fact = only(facts(history=history(a=(Commit(100, NOW - 6 * MINUTE),))))
    assert fact.cause is Cause.MEMBER_DOES_NOT_COMMIT
    assert fact.since_ms == NOW - 6 * MINUTE
    assert "longer than its max.poll.interval.ms (5 min)" in fact.sentences[1]
    assert "So it polls" in fact.sentences[1]


def test_a_member_within_its_poll_interval_may_be_at_work() -> None:
    fact = only(facts(history=history(a=(Commit(100, NOW - 2 * MINUTE),))))
    assert "Either it works on what it has been given" in fact.sentences[1]


def test_one_partition_that_stands_still_beside_others_is_told_with_its_next_record() -> None:
    moving = tuple(Commit(100 + n, NOW - (10 - n) * 1000) for n in range(10))
    given = facts(history=history(b=moving), next_batches={A: NextBatch(90, 100, 4096, 20)})
    result = only(given)
    assert result.cause is Cause.PARTITION_DOES_NOT_ADVANCE
    assert result.commands == [
        "oncelog consume --partition 0 --from 100 --count 1 t",
        "oncelog group reset-offsets --topic t:0 --to-offset 101 --execute g",
    ]
    assert "for at least 15 min" in result.sentences[0]


def test_a_record_that_may_be_too_large_is_told_with_its_size() -> None:
    moving = tuple(Commit(100 + n, NOW - (10 - n) * 1000) for n in range(10))
    large = {A: NextBatch(100, 100, 3 << 20, 1)}
    fact = only(facts(history=history(b=moving), next_batches=large))
    assert (fact.cause, fact.severity) == (Cause.LARGE_BATCH, Severity.STUCK)
    assert "3,145,728 bytes" in fact.sentences[1]
    assert causes(group_findings(facts(history=history(), next_batches=large))) == [
        (Cause.LARGE_BATCH, Severity.RISK),
        (Cause.MEMBER_DOES_NOT_COMMIT, Severity.STUCK),
    ]


def test_a_member_that_commits_is_busy_and_held_back_by_a_quota_if_its_rate_is_near_it() -> None:
    moving = (Commit(0, NOW - 100_000), Commit(50, NOW - 50_000), Commit(100, NOW - 1_000))
    given = facts(history=history(a=moving), next_batches={A: NextBatch(100, 100, 10_000, 10)})
    assert causes(group_findings(given)) == [(Cause.BUSY, Severity.NOTE)]
    given.quotas = {"app": 1_100.0}
    assert causes(group_findings(given)) == [(Cause.QUOTA, Severity.STUCK)]
    given.quotas = {"app": 1_000_000.0}
    assert causes(group_findings(given)) == [(Cause.BUSY, Severity.NOTE)]


def test_a_group_that_commits_rarely_is_not_stuck_between_two_commits() -> None:
    rare = tuple(Commit(10 * n, NOW - (12 - 3 * n) * MINUTE) for n in range(4))
    assert causes(group_findings(facts(history=history(a=rare)))) == [(Cause.BUSY, Severity.NOTE)]


def test_offsets_outside_the_log() -> None:
    partition = facts().partitions[A]
    gone = facts(partitions={A: replace(partition, log_start=150)})
    [behind] = [finding for finding in group_findings(gone) if finding.cause is Cause.BEHIND_RETENTION]
    assert "has removed 50 offsets that it has not read" in behind.sentences[0]
    assert behind.commands == ["oncelog group reset-offsets --topic t:0 --to-earliest --execute g"]
    beyond = only(facts(committed={A: 900, B: 200}))
    assert (beyond.cause, beyond.severity) == (Cause.BEYOND_END, Severity.STUCK)


def test_a_member_that_never_commits_is_stuck_once_the_partition_has_grown_for_longer_than_a_poll() -> None:
    given = facts(committed={}, history=history())
    assert causes(group_findings(given)) == [(Cause.NOTHING_COMMITTED, Severity.NOTE)], "nothing was written since"
    given.growth = {A: Growth(150, NOW - 4 * MINUTE), B: Growth(150, NOW - 4 * MINUTE)}
    assert causes(group_findings(given)) == [(Cause.NOTHING_COMMITTED, Severity.NOTE)], "it may be at its first poll"
    given.growth = {A: Growth(150, NOW - 6 * MINUTE), B: Growth(180, NOW - 7 * MINUTE)}
    stuck = only(given)
    assert (stuck.cause, stuck.severity, stuck.partitions) == (Cause.NOTHING_COMMITTED, Severity.STUCK, (A, B))
    assert stuck.since_ms == NOW - 7 * MINUTE
    assert "At least 70 offsets were written while it had them" in stuck.sentences[0]
    assert "max.poll.interval.ms (5 min)" in stuck.sentences[1]
    given.growth = {A: Growth(150, NOW - 6 * MINUTE)}
    given.committed = {B: 200}
    assert only(given).partitions == (A,), "one that is paused from the start, while others advance"


def test_what_a_member_has_to_read_is_unknown_until_it_commits() -> None:
    given = facts(committed={}, history=history())
    assert given.uncommitted == {A, B}
    assert given.had_since_ms("m-1") == NOW - 14 * MINUTE, "since the last rebalance"
    empty = PartitionFacts(A, leader=1, replicas=(1,), isr=(1,), log_start=200, bounds=Bounds(200, 200))
    given.partitions = {A: empty, B: replace(empty, partition=B)}
    assert not given.uncommitted, "an empty partition has nothing to read"
    assert group_findings(given) == []


def test_holes_and_markers_are_no_loss() -> None:
    assert causes(group_findings(facts(only_markers=frozenset({A})))) == [(Cause.ONLY_MARKERS_LEFT, Severity.NOTE)]
    given = facts(history=None, next_batches={A: NextBatch(120, 130, 100, 1)})
    assert causes(group_findings(given)) == [(Cause.COMPACTED_HOLE, Severity.NOTE)]


def test_a_partition_without_a_member_is_told() -> None:
    given = facts()
    given.description.members[:] = [replace(MEMBER, partitions=(B,))]
    assert causes(group_findings(given)) == [(Cause.NOT_ASSIGNED, Severity.STUCK)]


def test_a_group_without_members_is_stuck_only_if_there_is_something_to_read() -> None:
    given = facts()
    given.description.members.clear()
    assert only(given).severity is Severity.STUCK
    given.committed = {A: 200, B: 200}
    assert only(given).severity is Severity.NOTE


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_members_of_a_classic_group_stop_while_it_rebalances(state: str) -> None:
    given = facts()
    given.description = replace(given.description, state=state)
    assert causes(group_findings(given)) == [(Cause.REBALANCING, Severity.STUCK)]
    assert "no member may commit" in only(given).sentences[0]


@pytest.mark.parametrize("state", ["Assigning", "Reconciling"])
def test_members_of_the_consumer_protocol_go_on_while_partitions_move(state: str) -> None:
    given = facts(history=history(a=(Commit(100, NOW - 6 * MINUTE),)))
    given.description = replace(given.description, state=state, group_type="consumer")
    assert causes(group_findings(given)) == [
        (Cause.RECONCILING, Severity.NOTE),
        (Cause.MEMBER_DOES_NOT_COMMIT, Severity.STUCK),
    ]
    given.description.members[:] = [replace(MEMBER, partitions=(B,))]
    assert "read and committed meanwhile" in only(given).sentences[1], "a partition on its way is not unassigned"


def generations(*names: str) -> GroupHistory:
    """One generation after the other, each with the members whose letters it is given."""
    made = GroupHistory(NOW - 15 * MINUTE)
    for number, members in enumerate(names):
        known = tuple(
            MemberMetadata(f"{member}-{number}" if member == "x" else member, member, "/10.0.0.9", 10_000, MINUTE)
            for member in members
        )
        made.generations.append(Generation(number, NOW - (len(names) - number) * 10_000, known))
    return made


def test_the_member_that_makes_a_group_rebalance_is_named() -> None:
    assert MANY_REBALANCES == 4
    result = next(finding for finding in group_findings(facts(history=generations("ax", "ax", "ax", "ax"))))
    assert (result.cause, result.severity) == (Cause.REBALANCES_REPEATEDLY, Severity.RISK)
    assert "Client 'x' on 10.0.0.9 came as a new member 3 times" in result.sentences[1]
    often = group_findings(facts(history=generations(*["ax"] * CONSTANT_REBALANCES)))
    assert often[0].severity is Severity.STUCK
    same = group_findings(facts(history=generations("a", "a", "a", "a")))
    assert "The members stayed the same" in same[0].sentences[1]
    deployed = group_findings(facts(history=generations("a", "", "a", "a")))
    assert Cause.REBALANCES_REPEATEDLY not in {finding.cause for finding in deployed}


def test_members_that_have_not_committed_yet_are_counted_after_the_first() -> None:
    """A group of 1,000 members that begins has committed nowhere: the report must not be 1,000 findings."""
    given = facts(committed={})
    partitions = [TopicPartition(TopicName("t"), number) for number in range(1000)]
    member = given.description.members[0]
    members = [replace(member, member_id=f"m{tp.partition}", partitions=[tp]) for tp in partitions]
    given.description = replace(given.description, members=members)
    given.partitions = {partition: replace(given.partitions[A], partition=partition) for partition in partitions}
    results = [finding for finding in group_findings(given) if finding.cause is Cause.NOTHING_COMMITTED]
    assert len(results) == MOST_NOTES + 1
    assert [finding.about for finding in results[:2]] == ["t-0", "t-1"]
    assert results[-1].about == "t-20, t-21, t-22, t-23, t-24 and 975 more"
    assert "nothing has been committed yet by 980 more members" in results[-1].sentences[0]
