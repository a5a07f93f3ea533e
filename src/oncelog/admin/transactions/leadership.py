"""Confirms with all brokers that a broker which answered leads the partition that it answered for.

Claims concern the leader that lists an open transaction, or the coordinator of a transactional id, which leads the id's
partition of ``__transaction_state``. Any replica answers DescribeProducers from its own state: a lagging follower, or a
replaced leader that is cut off from the controller, shows transactions that ended long ago, and a broker that lags
itself names such a leader in metadata. A replaced coordinator lacks its successor's changes: a live transaction then
looks as if it hung.

1. A claim is taken from metadata before coordinators are queried, and confirmed after the leader was queried again. A
   leader whose epoch is still the latest has every marker written before: earlier leaders' acknowledged markers are in
   its log, and there is no later leader.
2. Every broker is asked for metadata: a broker that wrote a marker as a later leader knows its own epoch.
3. A broker that does not answer may be that later leader if it has a replica, unless no answer names it any more.

The other rules are beside the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from oncelog.admin.transactions.broker_requests import BrokerRequest, Unanswered, send_requests
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import NO_TOPIC_ID, TRANSACTION_STATE, TopicPartition
from oncelog.client.errors import explain
from oncelog.client.machine.metadata import NO_LEADER
from oncelog.client.programs import Cluster, Program
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

_LEADERS_TEXT: Final = "who leads the partitions"


class Claim(NamedTuple):
    """The leader of a partition in the client's view; epoch −1 if the brokers report none."""

    leader: int
    leader_epoch: int
    topic_id: bytes


class _LeaderReport(NamedTuple):
    broker: int
    topic_id: bytes
    error_code: int
    entry: MetadataResponsePartition | None


class _Answers(NamedTuple):
    """Metadata by broker, and the brokers that were named but did not answer."""

    answered: dict[int, MetadataResponse]
    silent: dict[int, Unanswered]


def claims_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim]:
    """The leaders in the client's view, without a request."""
    # Without a partition in the view (its topic is absent or may not be described) nothing is claimed, and nothing
    # doubted for that alone.
    claims = {}
    for partition in partitions:
        info = cluster.view.partition(partition)
        if info is not None:
            claims[partition] = Claim(info.leader, info.leader_epoch, bytes(cluster.view.topic_id(partition.topic)))
    return claims


def doubts_about(
    cluster: Cluster, claims: Mapping[TopicPartition, Claim], unanswered: list[Unanswered]
) -> Program[dict[TopicPartition, str]]:
    """The claims that are not certain, each with the reason; later leaders are applied to the client's view.

    Relevant brokers that did not answer are added to ``unanswered``.
    """
    if not claims:
        return {}
    answers = yield from _query_all(cluster, sorted({partition.topic for partition in claims}))
    reports: dict[TopicPartition, list[_LeaderReport]] = {partition: [] for partition in claims}
    for broker, answer in answers.answered.items():
        for partition, report in _reports_of(broker, answer, claims):
            reports[partition].append(report)
    doubts, missed = {}, set()
    for partition, claim in claims.items():
        doubt = _contradiction(cluster, partition, claim, reports[partition])
        if doubt is None:
            # Rule 3.
            missing = sorted(_replicas(reports[partition]) & answers.silent.keys())
            missed.update(missing)
            if missing:
                unheard = " and ".join(f"broker {broker}" for broker in missing)
                doubt = f"{unheard} may lead {_named(partition)} by now and did not answer; look again"
        if doubt is not None:
            doubts[partition] = doubt
    unanswered += [answers.silent[broker] for broker in sorted(missed)]
    return doubts


def _query_all(cluster: Cluster, topics: list[str]) -> Program[_Answers]:
    message = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )
    answers = _Answers({}, {})
    named = set(cluster.view.brokers)
    to_ask = named
    while to_ask:
        results = yield from send_requests(
            cluster, [BrokerRequest(broker, message, _LEADERS_TEXT) for broker in sorted(to_ask)]
        )
        for request, answer in results:
            broker = request.broker
            if isinstance(answer, Unanswered):
                answers.silent[broker] = answer
            elif answer.error_code:
                answers.silent[broker] = Unanswered(broker, _LEADERS_TEXT, explain(answer.error_code))
            else:
                answers.answered[broker] = answer
        named = {broker.node_id for answer in answers.answered.values() for broker in answer.brokers}
        to_ask = named - answers.answered.keys() - answers.silent.keys()
    if answers.answered:
        # Rule 3: no answer names it any more.
        for broker in answers.silent.keys() - named:
            del answers.silent[broker]
    return answers


def _reports_of(
    broker: int, answer: MetadataResponse, partitions_: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, _LeaderReport]]:
    topics = {topic.name: topic for topic in answer.topics}
    entries = {
        topic.name: {partition.partition_index: partition for partition in topic.partitions} for topic in answer.topics
    }
    for tp in partitions_:
        topic = topics.get(tp.topic)
        entry = None if topic is None or topic.error_code else entries[tp.topic].get(tp.partition)
        code = ErrorCode.NONE if entry is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            yield tp, _LeaderReport(broker, bytes(NO_TOPIC_ID), code, None)
        else:
            yield tp, _LeaderReport(broker, bytes(topic.topic_id), topic.error_code or code, entry)


def _contradiction(
    cluster: Cluster, partition: TopicPartition, claim: Claim, reports: list[_LeaderReport]
) -> str | None:
    """Why the claim is wrong according to the answers about one partition, or None."""
    named = _named(partition)
    if not reports:
        return f"no broker says who leads {named}"
    newest: MetadataResponsePartition | None = None
    for report in reports:
        if report.entry is None:
            return f"broker {report.broker} says of {named}: {explain(report.error_code)}"
        # A broker that does not know the topic, or reports another id, does not confirm the claim.
        if report.topic_id != claim.topic_id and NO_TOPIC_ID not in (report.topic_id, claim.topic_id):
            return "the topic is another one by now; look again"
        # A later epoch refutes the claim; an earlier one comes from a lagging broker and says nothing. Without epochs,
        # all brokers have to name the same leader.
        later = report.entry.leader_epoch > claim.leader_epoch
        differs = report.entry.leader_epoch == claim.leader_epoch and report.entry.leader_id != claim.leader
        if (later or differs) and (newest is None or report.entry.leader_epoch > newest.leader_epoch):
            newest = report.entry
    if newest is None:
        return None
    if newest.leader_id == NO_LEADER:
        return f"no broker leads {named} at the moment; look again"
    cluster.view.leader_moved(partition, newest.leader_id, newest.leader_epoch)
    if newest.leader_id == claim.leader:
        return f"broker {claim.leader} has become the leader of {named} just now; look again"
    who = "has answered as a coordinator" if partition.topic == TRANSACTION_STATE else "has it open"
    was = f"broker {claim.leader}, which {who},"
    return f"{was} does not lead {named} any more: broker {newest.leader_id} does; look again"


def _named(partition: TopicPartition) -> str:
    """The partition in a reason: "the partition" for the transaction's, its name for a coordinator's."""
    return str(partition) if partition.topic == TRANSACTION_STATE else "the partition"


def _replicas(reports: list[_LeaderReport]) -> set[int]:
    return {replica for report in reports if report.entry is not None for replica in report.entry.replica_nodes}


def unled_coordinators(cluster: Cluster) -> Program[list[Unanswered]]:
    """Partitions of the transaction log without a leader: their ids are missing although every broker answers. Reads
    its metadata; nothing is missing if the topic does not exist yet."""
    topics = yield from cluster.metadata([TRANSACTION_STATE])
    info = topics.get(TRANSACTION_STATE)
    # It is created with the first transactional id.
    if info is None or info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if info.error_code:
        return [Unanswered(None, f"partitions of {TRANSACTION_STATE}", explain(info.error_code))]
    unled = [
        partition.partition for partition in info.partitions.values() if partition.leader not in cluster.view.brokers
    ]
    if not unled:
        return []
    indexes = ", ".join(map(str, unled[:5])) + (", …" if len(unled) > 5 else "")
    return [
        Unanswered(
            None, f"{TRANSACTION_STATE} partition {indexes}", "it has no leader, so its transactional ids are unknown"
        )
    ]


def coordinator_of(cluster: Cluster, transactional_id: str) -> int | None:
    """The broker that leads the id's partition of the transaction log in the client's view; None if unknown."""
    info = cluster.view.topics.get(TRANSACTION_STATE)
    if info is None or not info.partitions:
        return None
    partition = info.partitions.get(coordinator_partition(transactional_id, len(info.partitions)))
    return None if partition is None or partition.leader < 0 else partition.leader


def claims_on_coordinators(cluster: Cluster) -> dict[TopicPartition, Claim]:
    """The leaders of all partitions of the transaction log in the client's view; empty if unknown."""
    # To be called before the first coordinator is queried. A coordinator whose epoch is still the latest answered for
    # its ids: no later one could change them. It may have answered under an earlier epoch of its own only if no other
    # broker led in between: a replaced leader is elected again only from the in-sync set, and gives up its coordination
    # when it follows the new leader into that set.
    info = cluster.view.topics.get(TRANSACTION_STATE)
    partitions = () if info is None else info.partitions
    return claims_of(cluster, (TopicPartition(TRANSACTION_STATE, index) for index in partitions))


def supporting_claims(
    answered_by: Mapping[str, int], claims: Mapping[TopicPartition, Claim]
) -> dict[TopicPartition, Claim]:
    """The claims that a finding rests on: those of the ids in ``answered_by`` (id → broker that answered), or all if
    there are none."""
    # No coordinator knows the producer id, and all brokers were queried: a successor lists what a replaced one omits.
    # But the list has a gap if a partition moves between two answers (the old leader answers after it resigned, the new
    # one before its election), or if the view comes from a broker that was cut off before the successor joined the
    # cluster. Both raise an epoch.
    if not answered_by:
        return dict(claims)
    partitions = {_partition_of(name, claims) for name in answered_by} if claims else ()
    return {partition: claims[partition] for partition in partitions if partition in claims}


def doubt_about_coordinators(
    answered_by: Mapping[str, int], claims: Mapping[TopicPartition, Claim], doubts: Mapping[TopicPartition, str]
) -> str | None:
    """Why the brokers that answered may not have been the coordinators, or None."""
    for name, broker in answered_by.items() if claims else ():
        claim = claims.get(_partition_of(name, claims))
        # A list, FindCoordinator or newer metadata may have led to another broker, whose answer does not count.
        if claim is not None and claim.leader != broker:
            return f"broker {broker} has answered for {name!r} and was not its coordinator a moment before; look again"
    return next(
        (doubts[partition] for partition in supporting_claims(answered_by, claims) if partition in doubts), None
    )


def _partition_of(transactional_id: str, claims: Mapping[TopicPartition, Claim]) -> TopicPartition:
    """The id's partition; a transaction log has as many as there are claims."""
    return TopicPartition(TRANSACTION_STATE, coordinator_partition(transactional_id, len(claims)))
