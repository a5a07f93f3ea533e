"""Confirms, by the word of all brokers, that the broker which has answered leads the partition that it answered for.

That is the broker that has named an open transaction, on its data partition, and the coordinator of a transactional id,
which leads the id's partition of ``__transaction_state``.

Any replica answers DescribeProducers by what it has, and does not say what it is. A follower that is behind, and a
leader that was replaced while it was cut off from the controller, have transactions open that have ended long ago; and
metadata that name such a leader come from a broker that is behind itself, often from that very one. A coordinator that
was replaced so goes on answering from memory, without what its successor has begun, ended, or added to a transaction:
a live transaction looks as if it hung.

Rules:

1. The claim is taken from the metadata before coordinators are asked, and confirmed when the leader has been asked
   again. A leader whose epoch is still the last one then has every marker that was written before: what an earlier
   leader acknowledged is in its log, and there is no later one.
2. Every broker is asked for its metadata: a broker that wrote a marker as a later leader knows its own epoch. A later
   epoch refutes the claim; an earlier one is told by a broker that is behind, and says nothing. Where there are no
   epochs all brokers have to name the same leader.
3. A broker that does not answer may be that later leader if it has a replica, unless no answer names it any more.
4. A topic of another id, or one that a broker does not know, is not the one that was claimed.
5. Claims on ``__transaction_state`` are taken before the first coordinator is asked. A coordinator whose epoch is still
   the last one has spoken for its ids: no later one could change them. It may have spoken from an earlier epoch of its
   own only if nobody led in between: a replaced leader is elected again out of the in-sync set, and gives up what it
   coordinated when it follows the leader into it.
6. The broker that has spoken for an id has to be that of the claim. A list, FindCoordinator or metadata that came in
   between may lead to another: then its word does not count, whatever the confirmation says.
7. Where no coordinator knows a producer id, all brokers were asked for it, so a replaced one takes nothing away: its
   successor lists what it leaves out. Yet the list has a gap where a partition moves between two answers (the old
   leader is asked after it has resigned, the new one before it was elected), and where the view is that of a broker
   which was cut off before its successor joined the cluster, so that the successor is not asked. Both raise an epoch:
   such a verdict rests on the claims on all partitions.
8. Without partitions in the view (one may not describe the topic, or there is none) nothing is claimed, and nothing
   doubted for that alone. A broker that says so when the others do not, is asked to confirm a claim and does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from oncelog.admin.transactions.broker_requests import Question, Unanswered, ask
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

_WHAT: Final = "who leads the partitions"


class Claim(NamedTuple):
    """The leader of a partition by the client's view; epoch −1 where the brokers tell none."""

    leader: int
    leader_epoch: int
    topic_id: bytes


class _Told(NamedTuple):
    """A broker's word on a partition: its entry, or the error instead of one."""

    broker: int
    topic_id: bytes
    error_code: int
    entry: MetadataResponsePartition | None


class _Answers(NamedTuple):
    """Metadata by broker, and the brokers that were named and did not answer."""

    heard: dict[int, MetadataResponse]
    silent: dict[int, Unanswered]


def claims_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Claim]:
    """Leaders as the client's view has them; asks nobody."""
    claims = {}
    for partition in partitions:
        info = cluster.view.partition(partition)
        if info is not None:
            claims[partition] = Claim(info.leader, info.leader_epoch, bytes(cluster.view.topic_id(partition.topic)))
    return claims


def doubts_about(
    cluster: Cluster, claims: Mapping[TopicPartition, Claim], unanswered: list[Unanswered]
) -> Program[dict[TopicPartition, str]]:
    """The claims that are not certain, each with the reason; later leaders go into the client's view.

    Brokers that matter and did not answer are added to ``unanswered``. Asks nobody when nothing is claimed.
    """
    if not claims:
        return {}
    answers = yield from _ask_all(cluster, sorted({where.topic for where in claims}))
    told: dict[TopicPartition, list[_Told]] = {where: [] for where in claims}
    for broker, answer in answers.heard.items():
        for where, word in _words(broker, answer, claims):
            told[where].append(word)
    doubts, missed = {}, set()
    for where, claim in claims.items():
        doubt = _contradiction(cluster, where, claim, told[where])
        if doubt is None:
            missing = sorted(_replicas(told[where]) & answers.silent.keys())
            missed.update(missing)
            if missing:
                unheard = " and ".join(f"broker {broker}" for broker in missing)
                doubt = f"{unheard} may lead {_named(where)} by now and did not answer; look again"
        if doubt is not None:
            doubts[where] = doubt
    unanswered += [answers.silent[broker] for broker in sorted(missed)]
    return doubts


def _ask_all(cluster: Cluster, topics: list[str]) -> Program[_Answers]:
    """The metadata of every broker that the view or an answer names."""
    message = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )
    answers = _Answers({}, {})
    named = set(cluster.view.brokers)
    to_ask = named
    while to_ask:
        found = yield from ask(cluster, [Question(broker, message, _WHAT) for broker in sorted(to_ask)])
        for question, answer in found:
            broker = question.broker
            if isinstance(answer, Unanswered):
                answers.silent[broker] = answer
            elif answer.error_code:
                answers.silent[broker] = Unanswered(broker, _WHAT, explain(answer.error_code))
            else:
                answers.heard[broker] = answer
        named = {one.node_id for answer in answers.heard.values() for one in answer.brokers}
        to_ask = named - answers.heard.keys() - answers.silent.keys()
    if answers.heard:
        for broker in answers.silent.keys() - named:
            del answers.silent[broker]
    return answers


def _words(
    broker: int, answer: MetadataResponse, wanted: Iterable[TopicPartition]
) -> Iterator[tuple[TopicPartition, _Told]]:
    topics = {topic.name: topic for topic in answer.topics}
    entries = {
        topic.name: {partition.partition_index: partition for partition in topic.partitions} for topic in answer.topics
    }
    for where in wanted:
        topic = topics.get(where.topic)
        entry = None if topic is None or topic.error_code else entries[where.topic].get(where.partition)
        code = ErrorCode.NONE if entry is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            yield where, _Told(broker, bytes(NO_TOPIC_ID), code, None)
        else:
            yield where, _Told(broker, bytes(topic.topic_id), topic.error_code or code, entry)


def _contradiction(cluster: Cluster, where: TopicPartition, claim: Claim, told: list[_Told]) -> str | None:
    """The reason why the claim is not so, by what was told of one partition."""
    named = _named(where)
    if not told:
        return f"no broker says who leads {named}"
    newest: MetadataResponsePartition | None = None
    for word in told:
        if word.entry is None:
            return f"broker {word.broker} says of {named}: {explain(word.error_code)}"
        if word.topic_id != claim.topic_id and NO_TOPIC_ID not in (word.topic_id, claim.topic_id):
            return "the topic is another one by now; look again"
        later = word.entry.leader_epoch > claim.leader_epoch
        differs = word.entry.leader_epoch == claim.leader_epoch and word.entry.leader_id != claim.leader
        if (later or differs) and (newest is None or word.entry.leader_epoch > newest.leader_epoch):
            newest = word.entry
    if newest is None:
        return None
    if newest.leader_id == NO_LEADER:
        return f"no broker leads {named} at the moment; look again"
    cluster.view.leader_moved(where, newest.leader_id, newest.leader_epoch)
    if newest.leader_id == claim.leader:
        return f"broker {claim.leader} has become the leader of {named} just now; look again"
    who = "has answered as a coordinator" if where.topic == TRANSACTION_STATE else "has it open"
    was = f"broker {claim.leader}, which {who},"
    return f"{was} does not lead {named} any more: broker {newest.leader_id} does; look again"


def _named(where: TopicPartition) -> str:
    """The partition in a reason: that of the transaction is *the* partition, that of a coordinator has a name."""
    return str(where) if where.topic == TRANSACTION_STATE else "the partition"


def _replicas(told: list[_Told]) -> set[int]:
    """The brokers that have a replica of a partition, by the word of any."""
    return {replica for word in told if word.entry is not None for replica in word.entry.replica_nodes}


def unled_coordinators(cluster: Cluster) -> Program[list[Unanswered]]:
    """Partitions of the transaction log that nobody leads: their ids are missing though every broker answers.

    Looks the transaction log up; nothing is missing where there is none yet.
    """
    topics = yield from cluster.metadata([TRANSACTION_STATE])
    info = topics.get(TRANSACTION_STATE)
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
        Unanswered(None, f"{TRANSACTION_STATE} partition {indexes}", "nobody leads it, so its ids are known to nobody")
    ]


def coordinator_of(cluster: Cluster, transactional_id: str) -> int | None:
    """The broker that leads the id's partition of the transaction log, by the client's view; None if unseen."""
    info = cluster.view.topics.get(TRANSACTION_STATE)
    if info is None or not info.partitions:
        return None
    partition = info.partitions.get(coordinator_partition(transactional_id, len(info.partitions)))
    return None if partition is None or partition.leader < 0 else partition.leader


def claims_on_coordinators(cluster: Cluster) -> dict[TopicPartition, Claim]:
    """The leaders of all partitions of the transaction log as the view has them; asks nobody. Empty if unseen."""
    info = cluster.view.topics.get(TRANSACTION_STATE)
    partitions = () if info is None else info.partitions
    return claims_of(cluster, (TopicPartition(TRANSACTION_STATE, index) for index in partitions))


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
