"""Decides the leader and the in-sync set of one partition after brokers join or leave.

Invariants:
1. A leader is alive, not fenced, in the in-sync set, and in the registration it was elected in. Only a partition's
   single replica leads on after a restart, since no other could have led.
2. Only a member of the in-sync set is elected; if none is alive, an eligible leader; if the topic allows unclean
   elections, any live replica.
3. The last members of the in-sync set stay in it when they die: one of them has to come back ("last replica standing").
4. The leader epoch rises with each election, the loss of a leader, and a reassignment that removes a replica. Nothing
   else raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from oncelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch
from oncelog.core.controller.image.cluster_image import Brokers, is_alive
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH, PartitionImage
from oncelog.core.controller.replicas.replica_sets import is_full, with_isr


class ElectionRules(NamedTuple):
    min_isr: int
    unclean: bool = False


def settled(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    """The partition adjusted to these live brokers; the same object if nothing changes.

    Dead, fenced and stopping brokers leave the in-sync set if others remain; completed reassignments end, and missing
    leaders are elected.
    """
    if is_settled(partition, brokers):
        return partition
    # Order matters: a reassignment completes only with live in-sync replicas, and a leader is elected from the rest.
    after = _without_departed(partition, brokers, rules)
    after = finished_reassignment(after, brokers)
    after = without_removed(partition, with_leader(after, brokers, rules))
    return partition if after == partition else after


def is_settled(partition: PartitionImage, brokers: Brokers) -> bool:
    """A fast check that nothing has to change: the leader is valid and the in-sync set alive."""
    leader = brokers.get(partition.leader)
    if leader is None or not leader.may_lead or partition.adding or partition.removing:
        return False
    # Invariant 1: a restarted leader needs a new election.
    if leader.epoch != partition.leader_broker_epoch and len(partition.replicas) > 1:
        return False
    for replica in partition.isr:
        broker = brokers.get(replica)
        if broker is None or not broker.may_lead:
            return False
    return not partition.elr or all(_may_lead(brokers, replica) for replica in partition.elr if replica in brokers)


def needs_election(partition: PartitionImage, brokers: Brokers) -> bool:
    """True unless the leader is alive, not fenced, and in the registration in which it was elected."""
    leader = brokers.get(partition.leader)
    if leader is None or leader.fenced or leader.broker_id not in partition.isr:
        return True
    return leader.epoch != partition.leader_broker_epoch and len(partition.replicas) > 1


def with_leader(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    if not needs_election(partition, brokers) and not _has_better(partition, brokers):
        return partition
    leader = _first(partition.replicas, brokers, lambda replica: replica in partition.isr)
    if leader is not None:
        return elected(partition, leader, brokers)
    # Beside a full set eligible leaders may lack committed records (KIP-966).
    if not is_full(partition.isr, partition.replicas, rules.min_isr):
        leader = _first(partition.replicas, brokers, lambda replica: replica in partition.elr)
        if leader is not None:
            return elected(with_isr(partition, (leader,), rules.min_isr), leader, brokers)
    if rules.unclean:
        leader = _first(partition.replicas, brokers, lambda _replica: True)
        if leader is not None:
            return elected(partition._replace(isr=(leader,), elr=()), leader, brokers)
    # Already leaderless: the epoch must not rise again (invariant 4).
    if partition.leader == NO_BROKER:
        return partition
    epoch = LeaderEpoch(partition.leader_epoch + 1)
    return partition._replace(leader=NO_BROKER, leader_epoch=epoch, leader_broker_epoch=UNKNOWN_BROKER_EPOCH)


def elected(partition: PartitionImage, leader: BrokerId, brokers: Brokers) -> PartitionImage:
    """The partition led by a live broker in a new epoch."""
    return partition._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        leader_broker_epoch=brokers[leader].epoch,
    )


def finished_reassignment(partition: PartitionImage, brokers: Brokers) -> PartitionImage:
    """The partition without removed replicas, once all added ones are in sync (KIP-455)."""
    if not partition.adding and not partition.removing:
        return partition
    isr = tuple(replica for replica in partition.isr if replica not in partition.removing)
    # All added replicas must be in sync, and one of the remaining alive, before the others go.
    if not set(partition.adding) <= set(isr) or not any(is_alive(brokers, replica) for replica in isr):
        return partition
    return partition._replace(
        replicas=tuple(replica for replica in partition.replicas if replica not in partition.removing),
        isr=isr,
        elr=tuple(replica for replica in partition.elr if replica not in partition.removing),
        adding=(),
        removing=(),
    )


def without_removed(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """``after`` in a new epoch, if it lost a replica of ``before`` in the same epoch."""
    if after.leader_epoch > before.leader_epoch or set(before.replicas) <= set(after.replicas):
        return after
    # Late requests of the removed replica then have an old epoch.
    return after._replace(leader_epoch=LeaderEpoch(before.leader_epoch + 1))


def _without_departed(partition: PartitionImage, brokers: Brokers, rules: ElectionRules) -> PartitionImage:
    fenced = {replica for replica in partition.replicas if replica in brokers and brokers[replica].fenced}
    alive = [replica for replica in partition.isr if is_alive(brokers, replica)]
    staying = [replica for replica in alive if _may_lead(brokers, replica)]
    if staying or alive:
        return with_isr(partition, staying or alive, rules.min_isr, fenced)
    # Invariant 3: dead members stay, as the last replicas standing.
    absent = [replica for replica in partition.isr if replica not in fenced]
    if absent or fenced.isdisjoint((*partition.isr, *partition.elr)):
        return with_isr(partition, absent, rules.min_isr, fenced)
    if any(replica not in fenced for replica in partition.elr):
        return with_isr(partition, (), rules.min_isr, fenced)
    return with_isr(partition, _last_standing(partition, brokers), rules.min_isr, fenced)


def _last_standing(partition: PartitionImage, brokers: Brokers) -> Iterable[BrokerId]:
    """The single replica to continue with when all candidates are fenced."""
    if len(partition.replicas) == 1:
        return partition.isr
    # A replica with a new directory has none of the log.
    candidates = [r for r in (*partition.isr, *partition.elr) if not brokers[r].is_new_directory]
    return candidates[:1]


def _first(replicas: Iterable[BrokerId], brokers: Brokers, eligible: Callable[[BrokerId], bool]) -> BrokerId | None:
    """The first live replica that may lead; a stopping one only if there is no other."""
    usable = [replica for replica in replicas if is_alive(brokers, replica) and eligible(replica)]
    staying = [replica for replica in usable if _may_lead(brokers, replica)]
    return next(iter(staying or usable), None)


def _has_better(partition: PartitionImage, brokers: Brokers) -> bool:
    """True if the leader is stopping or being removed, and another in-sync replica is not."""
    if partition.leader in partition.replicas and brokers[partition.leader].may_lead:
        return False
    return any(_may_lead(brokers, replica) for replica in partition.isr if replica in partition.replicas)


def _may_lead(brokers: Brokers, replica: BrokerId) -> bool:
    broker = brokers.get(replica)
    return broker is not None and broker.may_lead
