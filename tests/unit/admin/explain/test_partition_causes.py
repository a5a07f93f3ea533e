"""Replicas that hold a partition up, from facts alone."""

from __future__ import annotations

from dataclasses import replace

from oncelog.admin.eligible_leaders import Eligible
from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity, worst_first
from oncelog.admin.explain.partition_causes import partition_findings
from oncelog.admin.explain.partition_facts import PartitionFacts
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicName, TopicPartition

A = TopicPartition(TopicName("t"), 0)


def test_a_healthy_partition_has_no_findings() -> None:
    facts = PartitionFacts(A, leader=1, replicas=(1, 2), isr=(1, 2), min_isr=2, bounds=Bounds(5, 5), ends={1: 5, 2: 5})
    assert partition_findings(facts) == []


def test_an_unclean_election_is_offered_only_where_another_copy_exists() -> None:
    [result] = partition_findings(PartitionFacts(A, replicas=(1, 2), isr=(2,), offline=(2,)), " -b x")
    assert result.cause is Cause.NO_LEADER
    assert result.commands == ["oncelog topic elect --unclean -b x t:0"]
    [alone] = partition_findings(PartitionFacts(A, replicas=(2,), isr=(2,)))
    assert alone.commands == ["oncelog cluster status"]


def test_an_eligible_leader_has_all_records_and_one_after_an_unclean_shutdown_may_not() -> None:
    facts = PartitionFacts(A, replicas=(1, 2), isr=(), eligible=Eligible((2,), ()))
    [result] = partition_findings(facts)
    assert "Only broker 2 may lead it without loss (an eligible leader" in result.sentences[1]
    assert "broker 1 has a copy that was not in sync" in result.sentences[2]
    [alone] = partition_findings(replace(facts, replicas=(2,)))
    assert (len(alone.sentences), alone.commands) == (2, ["oncelog cluster status"])
    [unclean] = partition_findings(replace(facts, replicas=(2,), eligible=Eligible((), (2,))))
    assert "restarted without a clean shutdown" in unclean.sentences[1]
    assert unclean.commands == ["oncelog topic elect --unclean t:0"]


def test_too_few_in_sync_stop_writers_fewer_than_all_are_a_risk() -> None:
    facts = PartitionFacts(A, leader=1, replicas=(1, 2, 3), isr=(1,), min_isr=2, ends={1: 90, 3: 60})
    [result] = partition_findings(facts)
    assert (result.cause, result.severity) == (Cause.UNDER_MIN_ISR, Severity.STUCK)
    assert "brokers 2 and 3 (2 does not answer; 3 is 30 records behind)" in result.sentences[1]
    facts = PartitionFacts(A, leader=1, replicas=(1, 2, 3), isr=(1, 3), min_isr=2, ends={1: 90, 3: 90})
    [result] = partition_findings(facts)
    assert (result.cause, result.severity) == (Cause.UNDER_REPLICATED, Severity.RISK)


def test_records_that_wait_for_a_replica_in_sync_name_it() -> None:
    facts = PartitionFacts(
        A, leader=1, replicas=(1, 2), isr=(1, 2), min_isr=1, bounds=Bounds(50, 50), ends={1: 90, 2: 50}
    )
    [result] = partition_findings(facts)
    assert result.cause is Cause.SLOW_FOLLOWER
    assert "They wait for broker 2, which is in sync by the books (2 is 40 records behind)." in result.sentences


def test_a_partition_that_is_gone() -> None:
    [result] = partition_findings(PartitionFacts(A, exists=False))
    assert result.cause is Cause.TOPIC_GONE


def test_since_when_is_the_first_record_that_a_replica_lacks_or_said_to_be_unknown() -> None:
    facts = PartitionFacts(A, leader=1, replicas=(1, 2), isr=(1,), ends={1: 50, 2: 10}, lacks_since_ms=1_000)
    [result] = partition_findings(facts)
    assert (result.cause, result.since_ms) == (Cause.UNDER_REPLICATED, 1_000)
    [result] = partition_findings(replace(facts, lacks_since_ms=None))
    assert result.since_ms is None
    assert "no time" in result.no_since


def test_partitions_that_lack_the_same_replica_are_one_finding() -> None:
    partitions = [A._replace(partition=n) for n in range(6)]
    facts = PartitionFacts(A, leader=1, replicas=(1, 2), isr=(1,), min_isr=2, ends={1: 90})
    alike = [finding for tp in partitions for finding in partition_findings(replace(facts, partition=tp))]
    other = partition_findings(replace(facts, partition=A._replace(partition=9), replicas=(1, 3)))
    merged = worst_first([*alike, *other])
    assert [(finding.about, len(finding.partitions)) for finding in merged] == [
        ("t-0, t-1, t-2 and 3 more", 6),
        ("t-9", 1),
    ]
    assert merged[0].sentences[-1] == "The same holds for 5 more partitions: t-1, t-2, t-3, t-4, t-5."
    assert merged[0].commands == ["oncelog cluster status"]


def test_partitions_that_one_transaction_holds_are_one_finding() -> None:
    def held(index: int, producer_id: int) -> Finding:
        at = A._replace(partition=index)
        evidence: Evidence = {"verdict": "hanging", "producer_id": producer_id}
        command = f"oncelog txn abort --partition {index}"
        return Finding(
            Cause.HELD_BY_TRANSACTION,
            Severity.STUCK,
            str(at),
            ["It hangs."],
            evidence=evidence,
            commands=[command],
            partitions=(at,),
        )

    merged = worst_first([held(0, 7), held(1, 8), held(2, 7)])
    assert [finding.about for finding in merged] == ["t-0, t-2", "t-1"]
    assert merged[0].commands == ["oncelog txn abort --partition 0", "oncelog txn abort --partition 2"]
