"""A flipped bit in one replica: nobody copies it, and the replica gets what it lost from another."""

from __future__ import annotations

from oncelog.base.ids import NO_BROKER, TopicName, TopicPartition
from oncelog.sim.virtual.files import MemoryFiles
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import PARTITION, create_replicated, replica, state, write
from tests.unit.storage.replication import log_bytes

IN_THE_RECORDS = 66
"""Bytes from the beginning of a batch: behind its header."""


OTHER = TopicPartition(TopicName("other"), 0)


def flip(driver: ClusterDriver, partition: TopicPartition = PARTITION) -> None:
    """Flip a bit in the first batch of a partition, on the disk of a broker."""
    files = driver.files
    assert isinstance(files, MemoryFiles)
    files.flip_bit(f"{partition}/00000000000000000000.log", 8 * IN_THE_RECORDS)


def killed_with_damage(cluster: Cluster, broker_id: int, partition: TopicPartition) -> None:
    """Kill a broker, whose durable records of one partition are damaged before it comes back."""
    cluster[broker_id].node.logs.checkpoints()
    cluster.kill(broker_id)
    flip(cluster[broker_id], partition)


def behind(cluster: Cluster) -> bytes:
    """A partition led by broker 1, with 2 in sync, and 3 dead before anything was written; what its log holds."""
    create_replicated(cluster.connect(1), [1, 2, 3])
    cluster.kill(3)
    for value in (b"a", b"b", b"c"):
        assert write(cluster, 1, value)[0] == 0
    return log_bytes(replica(cluster[2]))


def test_a_leader_whose_records_are_damaged_lets_another_lead_and_copies_them() -> None:
    cluster = Cluster(3)
    whole = behind(cluster)
    flip(cluster[1])
    cluster.start(3)
    cluster.advance(5_000)
    result = state(cluster[2])
    assert (result.leader, set(result.isr)) == (2, {1, 2, 3})
    assert [log_bytes(replica(cluster[broker])) for broker in (1, 2, 3)] == [whole] * 3
    (told,) = [report for report in cluster[1].reports if "damaged" in report]
    assert told == (
        "records of t-0 at offset 0 are damaged on this broker's disk: another replica in sync will lead, and they are "
        "copied from it"
    )
    assert write(cluster, 2, b"d") == (0, 3)


def test_where_nobody_else_may_lead_what_is_sound_is_served() -> None:
    cluster = Cluster(3)
    behind(cluster)
    cluster.kill(2)
    flip(cluster[1])
    cluster.start(3)
    cluster.advance(40_000)
    assert (state(cluster[1]).leader, state(cluster[1]).isr) == (1, (1,))
    assert replica(cluster[3]).log_end_offset == 0, "nothing damaged is copied"
    tries = [report for report in cluster[3].reports if "cannot append what the leader of t-0 sent" in report]
    assert 40 <= len(tries) <= 50, "one a second, as replica.fetch.backoff.ms says, after the first few"
    assert write(cluster, 1, b"d") == (0, 3)
    cluster.start(2)  # not in sync, but it has the records
    cluster.advance(5_000)
    result = state(cluster[2])
    assert (result.leader, set(result.isr)) == (2, {1, 2, 3})
    assert log_bytes(replica(cluster[1])) == log_bytes(replica(cluster[2])) == log_bytes(replica(cluster[3]))


def test_a_broker_that_finds_its_durable_records_damaged_is_in_no_set_until_it_has_copied_them() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3])
    assert write(cluster, 1, b"a") == (0, 0)
    whole = log_bytes(replica(cluster[2]))
    cluster[1].node.logs.checkpoints()
    cluster.kill(1, session_ends=False)
    flip(cluster[1])
    cluster.start(1)
    assert state(cluster[2]).leader == 2, "another led from the moment at which it was known again"
    cluster.advance(5_000)
    assert state(cluster[2]).leader != 1
    assert set(state(cluster[2]).isr) == {1, 2, 3}
    assert log_bytes(replica(cluster[1])) == whole


def test_what_a_broker_has_lost_of_one_partition_does_not_count_in_another() -> None:
    """Broker 2 alone has the records of one partition sound, and broker 1 those of the other: each leads what it has,
    though both have lost something."""
    cluster = Cluster(3)
    for name in ("t", "other"):
        create_replicated(cluster.connect(3), [1, 2], name, min_insync_replicas="2")
    for name in ("t", "other"):
        assert write(cluster, 1, b"a", topic=name) == (0, 0)
    whole = {partition: log_bytes(replica(cluster[1], partition)) for partition in (PARTITION, OTHER)}
    killed_with_damage(cluster, 2, OTHER)
    assert (state(cluster[3]).isr, state(cluster[3]).elr) == ((1,), (2,))
    killed_with_damage(cluster, 1, PARTITION)
    cluster.start(2)
    cluster.advance(5_000)
    assert (state(cluster[3]).leader, state(cluster[3], OTHER).leader) == (2, NO_BROKER)
    cluster.start(1)
    cluster.advance(5_000)
    for partition in (PARTITION, OTHER):
        assert set(state(cluster[3], partition).isr) == {1, 2}
        assert [log_bytes(replica(cluster[broker], partition)) for broker in (1, 2)] == [whole[partition]] * 2


def test_the_last_replica_leads_with_what_is_left_of_it() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(3), [1, 2], min_insync_replicas="2")
    assert write(cluster, 1, b"a") == (0, 0)
    killed_with_damage(cluster, 2, PARTITION)
    killed_with_damage(cluster, 1, PARTITION)
    cluster.start(2)
    cluster.start(1)
    cluster.advance(5_000)
    assert set(state(cluster[3]).isr) == {1, 2}
    assert write(cluster, state(cluster[3]).leader, b"b") == (0, 0)
