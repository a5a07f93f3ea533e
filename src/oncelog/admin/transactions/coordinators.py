"""The brokers that coordinate transactional ids, by the client's view, and the doubts about those that were asked.

The coordinator of an id leads the id's partition of ``__transaction_state``. One that was replaced while it was cut off
from the controller goes on answering from memory, without what its successor has begun, ended, or added to a
transaction; so a transaction that lives looks as if it hung.

Rules:

1. The claims, who leads each partition of ``__transaction_state``, are taken before the first coordinator is asked, and
   confirmed after the last, together with those on data partitions (``leadership``, the same questions). A coordinator
   whose epoch is still the last one has spoken for its ids: no later one could change them. It may have spoken from an
   earlier epoch of its own only if nobody led in between: who was replaced is elected again out of the in-sync set, and
   gives up what it coordinated when it follows the leader into it.
2. The broker that has spoken for an id has to be that of the claim. A list, FindCoordinator or metadata that came in
   between may lead to another: then its word does not count, whatever the confirmation says.
3. Where no coordinator knows a producer id, all brokers were asked for it, so one that was replaced takes nothing away:
   what it leaves out its successor lists. Yet the list has a gap where a partition moves between two answers (the old
   leader is asked after it has resigned, the new one before it was elected), and where the view is that of a broker
   which was cut off before its successor joined the cluster, so that the successor is not asked. Both raise an epoch:
   such a verdict rests on the claims on all partitions.
4. Without partitions in the view (one may not describe the topic, or there is none) nothing is claimed, and nothing
   doubted for that alone. A broker that says so when the others do not, is asked to confirm a claim and does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.leadership import Claim, claims_of
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import TRANSACTION_STATE, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import explain


def unled_coordinators(client: Client) -> list[Unanswered]:
    """Partitions of the transaction log that nobody leads: their ids are missing though every broker answers.

    Looks the transaction log up; nothing is missing where there is none yet.
    """
    info = client.metadata([TRANSACTION_STATE]).get(TRANSACTION_STATE)
    if info is None or info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if info.error_code:
        return [Unanswered(None, f"partitions of {TRANSACTION_STATE}", explain(info.error_code))]
    unled = [one.partition for one in info.partitions.values() if one.leader not in client.view.brokers]
    if not unled:
        return []
    indexes = ", ".join(map(str, unled[:5])) + (", …" if len(unled) > 5 else "")
    return [
        Unanswered(None, f"{TRANSACTION_STATE} partition {indexes}", "nobody leads it, so its ids are known to nobody")
    ]


def coordinator_of(client: Client, transactional_id: str) -> int | None:
    """The broker that leads the id's partition of the transaction log, by the client's view; None if unseen."""
    info = client.view.topics.get(TRANSACTION_STATE)
    if info is None or not info.partitions:
        return None
    partition = info.partitions.get(coordinator_partition(transactional_id, len(info.partitions)))
    return None if partition is None or partition.leader < 0 else partition.leader


def claims_on_coordinators(client: Client) -> dict[TopicPartition, Claim]:
    """The leaders of all partitions of the transaction log as the view has them; asks nobody. Empty if unseen."""
    info = client.view.topics.get(TRANSACTION_STATE)
    partitions = () if info is None else info.partitions
    return claims_of(client, (TopicPartition(TRANSACTION_STATE, index) for index in partitions))


def claims_behind(spoke: Mapping[str, int], claims: Mapping[TopicPartition, Claim]) -> dict[TopicPartition, Claim]:
    """The claims that a finding rests on: those of the ids in ``spoke`` (id → the broker that has answered for it), or
    all where nobody had an id to speak of. ``claims`` are those on the whole transaction log."""
    if not spoke:
        return dict(claims)
    wanted = {_partition_of(name, claims) for name in spoke} if claims else ()
    return {where: claims[where] for where in wanted if where in claims}


def doubt_about_coordinators(
    spoke: Mapping[str, int], claims: Mapping[TopicPartition, Claim], doubts: Mapping[TopicPartition, str]
) -> str | None:
    """The reason why those that have spoken may not have been the coordinators; ``doubts`` are those about claims."""
    for name, broker in spoke.items() if claims else ():
        claim = claims.get(_partition_of(name, claims))
        if claim is not None and claim.leader != broker:
            return f"broker {broker} has answered for {name!r} and was not its coordinator a moment before; look again"
    return next((doubts[where] for where in claims_behind(spoke, claims) if where in doubts), None)


def _partition_of(transactional_id: str, claims: Mapping[TopicPartition, Claim]) -> TopicPartition:
    """The id's partition of a transaction log that has as many partitions as there are claims."""
    return TopicPartition(TRANSACTION_STATE, coordinator_partition(transactional_id, len(claims)))
