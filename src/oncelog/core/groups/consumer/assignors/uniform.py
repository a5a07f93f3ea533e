"""The ``uniform`` assignor: as many partitions for each member as for the others, with as few moves as possible.

Rules:

1. A member keeps what it has of its topics, up to its quota.
2. Of members with the same topics none has two partitions more than another.
3. With different topics: a partition moves from a member to another that subscribes to its topic while that one has at
   least two less.
4. The result follows from the input alone: ids break every tie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.consumer.assignors.spec import Assignment, GroupSpec

NAME: Final = "uniform"
_MOST_ROUNDS: Final = 16
"""Rounds over all topics before an assignment of different subscriptions counts as balanced enough."""


def assign(group: GroupSpec) -> Assignment:
    subscriptions = {member.topics for member in group.members.values()}
    shares, assigned = _kept(group)
    if len(subscriptions) == 1:
        _even_out(group, shares, assigned, next(iter(subscriptions)))
    else:
        _balance(group, shares)
    return {
        member_id: {topic: frozenset(share[topic]) for topic in sorted(share) if share[topic]}
        for member_id, share in shares.items()
    }


_Shares = dict[MemberId, dict[TopicId, set[int]]]
_Assigned = dict[TopicId, set[int]]


def _kept(group: GroupSpec) -> tuple[_Shares, _Assigned]:
    """The partitions of subscribed topics that members keep, by member in order of ids, and all together."""
    shares: _Shares = {}
    assigned: _Assigned = {topic: set() for topic in group.partition_counts}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        shares[member_id] = share = {}
        for topic, partitions in member.assigned.items():
            if topic in member.topics:
                # A damaged log may have given a partition to two members: the first one keeps it.
                share[topic] = set(partitions) - assigned[topic]
                assigned[topic] |= share[topic]
    return shares, assigned


def _even_out(group: GroupSpec, shares: _Shares, assigned: _Assigned, topics: Iterable[TopicId]) -> None:
    """Assign to members with the same topics: the most loaded ones get the larger quotas, the others the rest."""
    total = sum(group.partition_counts[topic] for topic in topics)
    quota, larger = divmod(total, len(shares))
    sizes = {member_id: sum(map(len, share.values())) for member_id, share in shares.items()}
    by_size = sorted(shares, key=lambda member_id: (-sizes[member_id], member_id))
    quotas = {member_id: quota + (rank < larger) for rank, member_id in enumerate(by_size)}
    for member_id, share in shares.items():
        for topic in sorted(share):
            if len(share[topic]) > quotas[member_id]:
                moving = set(sorted(share[topic])[quotas[member_id] :])
                share[topic] -= moving
                assigned[topic] -= moving
            quotas[member_id] -= len(share[topic])
    takers = (member_id for member_id in shares if quotas[member_id])
    taker = next(takers, None)
    for topic in sorted(topics):
        free: Sequence[int] = range(group.partition_counts[topic])
        if assigned[topic]:
            free = sorted(set(free) - assigned[topic])
        while taker is not None and free:
            taken, free = free[: quotas[taker]], free[quotas[taker] :]
            shares[taker][topic] = shares[taker].get(topic, set()).union(taken)
            quotas[taker] -= len(taken)
            if not quotas[taker]:
                taker = next(takers, None)


def _balance(group: GroupSpec, shares: _Shares) -> None:
    """Assign to members with different topics: the least loaded subscriber first, then moves between subscribers."""
    subscribers: dict[TopicId, list[MemberId]] = {}
    for member_id in shares:
        for topic in group.members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    sizes = {member_id: sum(map(len, share.values())) for member_id, share in shares.items()}

    def scarcity(topic: TopicId) -> tuple[float, int, TopicId]:
        # Topics with many partitions for each of few subscribers first: later ones can still even out.
        return -group.partition_counts[topic] / len(subscribers[topic]), len(subscribers[topic]), topic

    topics = sorted(subscribers, key=scarcity)
    for topic in topics:
        _assign_free(topic, group.partition_counts[topic], subscribers[topic], shares, sizes)
    for _ in range(_MOST_ROUNDS):
        if not sum(_move_between(group, topic, subscribers[topic], shares, sizes) for topic in topics):
            return


def _assign_free(
    topic: TopicId, partitions: int, subscribers: list[MemberId], shares: _Shares, sizes: dict[MemberId, int]
) -> None:
    assigned = set().union(*(shares[member_id].get(topic, ()) for member_id in subscribers))
    if len(assigned) == partitions:
        return
    least_loaded = [(sizes[member_id], member_id) for member_id in subscribers]
    heapify(least_loaded)
    for partition in range(partitions):
        if partition not in assigned:
            size, member_id = least_loaded[0]
            shares[member_id].setdefault(topic, set()).add(partition)
            sizes[member_id] = size + 1
            heapreplace(least_loaded, (size + 1, member_id))


def _move_between(
    group: GroupSpec, topic: TopicId, subscribers: list[MemberId], shares: _Shares, sizes: dict[MemberId, int]
) -> int:
    """Move partitions of a topic from its most to its least loaded subscribers; the number of moves."""
    moves = 0
    most_loaded = [(-sizes[member_id], member_id) for member_id in subscribers if shares[member_id].get(topic)]
    least_loaded = [(sizes[member_id], member_id) for member_id in subscribers]
    heapify(most_loaded)
    heapify(least_loaded)
    to_give: dict[MemberId, list[int]] = {}
    # From the most to the least loaded, one by one: a giver that gives too much would have to take again.
    while most_loaded:
        giver, taker = most_loaded[0][1], least_loaded[0][1]
        if -most_loaded[0][0] != sizes[giver]:
            heapreplace(most_loaded, (-sizes[giver], giver))
        elif least_loaded[0][0] != sizes[taker]:
            heapreplace(least_loaded, (sizes[taker], taker))
        elif sizes[giver] - sizes[taker] < 2:
            break
        elif not shares[giver][topic]:
            heappop(most_loaded)
        else:
            if giver not in to_give:
                # Last what moves anyway: partitions that the giver did not have before.
                before = group.members[giver].assigned.get(topic, frozenset())
                to_give[giver] = sorted(
                    shares[giver][topic], key=lambda partition: (partition not in before, partition)
                )
            partition = to_give[giver].pop()
            shares[giver][topic].remove(partition)
            shares[taker].setdefault(topic, set()).add(partition)
            sizes[giver] -= 1
            sizes[taker] += 1
            moves += 1
    return moves
