"""Explains why a consumer does not advance, back to the transaction that holds it; ``report`` writes the sentences.

Starts from a group, a topic, a partition or a transactional id. The rule: causes within the group come first (nothing
committed, unread records, offsets pending in a transaction), because most consumers that stand still are not held by a
transaction, and the report has to say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.group_descriptions import describe_group
from oncelog.admin.transactions.blocked_groups import groups_behind, pending_offsets
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.cluster_scan import HangingRow, OpenTransaction, Scope, partitions_of, scan
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.history.lost_markers import LostMarker, find_lost_marker
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of, readable_before
from oncelog.admin.transactions.report import (
    MOST_NAMED,
    Held,
    Retention,
    advice,
    clears_at_ms,
    commands,
    held_sentences,
)
from oncelog.admin.transactions.transactional_ids import TransactionRow, describe_transaction
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program, operation
from oncelog.client.programs.group import committed_offsets

MOST_HELD: Final = 10
"""Partitions that are reported in full; the rest are only counted."""
_SEVERITY: Final = (Verdict.HANGING, Verdict.SUSPECTED, Verdict.TWO_PHASE, Verdict.LIVE)
"""Verdicts in report order."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One explained subject: the sentences in order, and the commands to run.

    ``clears_at_ms`` is None if nothing says when it clears by itself.
    """

    about: str
    sentences: list[str]
    advice: str = ""
    commands: list[str] = field(default_factory=list)
    verdict: str | None = None
    clears_at_ms: int | None = None
    is_overdue: bool = False
    """The transaction is live, and its coordinator should have ended it by its time-out."""
    partition: TopicPartition | None = None
    producer_id: int | None = None
    groups: tuple[str, ...] = ()
    """Groups that wait, furthest behind first, as many as the sentences name."""
    lost_marker: LostMarker | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    subject: str
    chains: list[Chain]
    transactions: list[HangingRow]
    unanswered: list[Unanswered] = field(default_factory=list)

    @property
    def hangs(self) -> bool:
        return any(transaction.verdict == Verdict.HANGING.value for transaction in self.transactions)


@operation
def explain_topic(
    cluster: Cluster, topic: str, partition: int | None = None, *, options: str = "", min_age_ms: int | None = None
) -> Program[Explanation]:
    """Explain why committed readers of a topic, or a partition, cannot read to its end. Raises UnknownTopic.

    ``min_age_ms`` as in ``scan``.
    """
    partitions = (TopicPartition(TopicName(topic), partition),) if partition is not None else ()
    selected = yield from partitions_of(cluster, Scope((topic,) if partition is None else (), partitions))
    subject = f"topic {topic}" if partition is None else f"partition {partition} of topic {topic}"
    bounds, unanswered = yield from bounds_of(cluster, selected)
    held = [tp for tp in selected if tp in bounds and bounds[tp].held]
    if not held:
        all_of_it = "it" if len(selected) == 1 else f"all {len(selected)} partitions"
        text = f"Nothing is held: committed readers can read {all_of_it} to the end."
        if unanswered:
            text = "Nothing is held in what could be looked at; not everything could."
        return Explanation(subject, [Chain(subject, [text])], [], unanswered)
    return (yield from explain_held(cluster, subject, held, bounds, [], unanswered, options, min_age_ms=min_age_ms))


@operation
def explain_group(
    cluster: Cluster, group: str, *, options: str = "", min_age_ms: int | None = None
) -> Program[Explanation]:
    """Explain why a group does not advance. Raises BrokerRefused with GROUP_ID_NOT_FOUND."""
    described = yield from describe_group(cluster, group)
    if described.is_share:
        # It commits nothing, and waits for transactions only if its isolation level says so.
        sentence = f"Group {group!r} is a share group: oncelog explain group{options} {argument(group)} explains it."
        return Explanation(f"group {group}", [Chain(f"group {group}", [sentence])], [], [])
    committed = yield from committed_offsets(cluster, group)
    assigned = {partition for member in described.members for partition in member.partitions}
    topics = yield from cluster.metadata({tp.topic for tp in (*committed, *assigned)})
    existing = [
        tp
        for tp in sorted({*committed, *assigned})
        if (info := topics.get(tp.topic)) is not None and info.exists and tp.partition in info.partitions
    ]
    bounds, unanswered = yield from bounds_of(cluster, existing)
    members = f"with {counted(len(described.members), 'member')}"
    if not described.has_members_shown:
        members = f"(a {described.group_type} group, whose members are not shown)"
    places = counted(len(committed), "partition")
    first = [f"Group {group!r} is {described.state} {members} and has offsets in {places}."]
    if described.has_members_shown and not described.members:
        first.append("It has no members: no consumer runs, or its consumers assign their partitions themselves.")
    held: list[TopicPartition] = []
    for tp in existing:
        if tp not in bounds:
            continue
        sentences, stuck = yield from _position(
            cluster, tp, bounds[tp], committed[tp].offset if tp in committed else None
        )
        if sentences:
            first.append(sentences)
        if stuck:
            held.append(tp)
    waits, offsets = yield from group_pending(cluster, group, {*committed, *assigned}, bounds)
    first += waits
    held += offsets
    if not held:
        first.append("No transaction holds it.")
    subject = f"group {group}"
    return (yield from explain_held(cluster, subject, held, bounds, first, unanswered, options, min_age_ms=min_age_ms))


@operation
def explain_id(
    cluster: Cluster, transactional_id: str, *, options: str = "", min_age_ms: int | None = None
) -> Program[Explanation]:
    """Explain what an id is doing, and what its open transactions hold. Raises BrokerRefused if no coordinator knows
    it.

    Scans the whole cluster: a coordinator does not list a hanging partition.
    """
    scanned = yield from scan(cluster, min_age_ms=min_age_ms)
    own = [transaction for transaction in scanned.transactions if transaction.transactional_id == transactional_id]
    try:
        row: TransactionRow | None = yield from describe_transaction(cluster, transactional_id)
    except ClientError:
        # The id is unknown, and nothing open names it.
        if not own:
            raise
        row = None
    subject = f"transactional id {transactional_id}"
    first = [_doing(row, scanned.now_ms) if row is not None else "Its coordinator does not know this id any more."]
    held = sorted({partition.topic_partition for partition in own})
    bounds, unanswered = yield from bounds_of(cluster, held)
    if not held:
        first.append("It has no open transaction on any partition, so no consumer waits for it.")
    holders = [transaction for transaction in scanned.transactions if transaction.topic_partition in set(held)]
    return (
        yield from explain_held(
            cluster, subject, held, bounds, first, [*scanned.unanswered, *unanswered], options, holders
        )
    )


def explain_held(
    cluster: Cluster,
    subject: str,
    held: Sequence[TopicPartition],
    bounds: dict[TopicPartition, Bounds],
    first: list[str],
    unanswered: list[Unanswered],
    options: str,
    open_transactions: Sequence[OpenTransaction] | None = None,
    min_age_ms: int | None = None,
) -> Program[Explanation]:
    """An explanation with a chain for each held partition."""
    chains = [Chain(subject, first)] if first else []
    if not held:
        return Explanation(subject, chains, [], unanswered)
    if open_transactions is None:
        scanned = yield from scan(cluster, Scope(partitions=tuple(held)), min_age_ms=min_age_ms)
        open_transactions = scanned.transactions
        unanswered = [*unanswered, *scanned.unanswered]
    now_ms = cluster.environment.wall_ms()
    holders = {
        partition: next(
            (transaction for transaction in open_transactions if transaction.topic_partition == partition), None
        )
        for partition in held
    }
    # The worst first: only these are explained in full.
    reported = sorted(held, key=lambda partition: (_SEVERITY.index(_verdict(holders[partition])), partition))[
        :MOST_HELD
    ]
    behind, unanswered_groups = yield from groups_behind(
        cluster, {partition: bounds[partition] for partition in reported if partition in bounds}
    )
    for partition in reported:
        opened = tuple(transaction for transaction in open_transactions if transaction.topic_partition == partition)
        retention = (
            (yield from _retention(cluster, partition))
            if opened and (opened[0].is_confirmed or opened[0].verdict is Verdict.HANGING)
            else Retention()
        )
        if partition in bounds:
            lost = (yield from find_lost_marker(cluster, opened[0])) if opened else None
            groups = tuple(behind.get(partition, ()))
            facts = Held(partition, bounds[partition], opened, groups, retention, now_ms, lost)
            chains.append(_chain(facts, options))
    if len(held) > len(reported):
        chains.append(
            Chain(subject, [f"{len(held) - len(reported)} more partitions are held, by nothing worse; name one."])
        )
    return Explanation(
        subject, chains, [transaction.as_row() for transaction in open_transactions], [*unanswered, *unanswered_groups]
    )


def _verdict(holder: OpenTransaction | None) -> Verdict:
    return Verdict.LIVE if holder is None else holder.verdict


def _chain(held: Held, options: str) -> Chain:
    holder = held.holder
    return Chain(
        str(held.partition),
        held_sentences(held),
        advice(held),
        commands(held, options),
        None if holder is None else holder.verdict.value,
        None if holder is None else clears_at_ms(holder),
        holder is not None and holder.overdue_ms > 0,
        held.partition,
        None if holder is None else holder.producer.producer_id,
        tuple(group.group for group in held.groups[:MOST_NAMED]),
        held.lost,
    )


def group_pending(
    cluster: Cluster, group: str, partitions: set[TopicPartition], bounds: dict[TopicPartition, Bounds]
) -> Program[tuple[list[str], list[TopicPartition]]]:
    """Sentences about a group that waits for its own offsets, and their partition, whose bounds are added to
    ``bounds``.
    """
    pending = yield from pending_offsets(cluster, group, partitions)
    offsets = (yield from offsets_partition(cluster, group)) if pending or not partitions else None
    if offsets is not None:
        more, _ = yield from bounds_of(cluster, [offsets])
        bounds |= more
    partition = [] if offsets is None else [offsets]
    if pending:
        names = ", ".join(map(str, sorted(pending)[:5]))
        waits = "a member that starts now waits for it"
        return [f"Its offsets of {names} are pending in a transaction that has not ended; {waits}."], partition
    if offsets is not None and offsets in bounds and bounds[offsets].held:
        return [
            f"It has committed nothing. Its offsets are kept in {offsets}, where a transaction is open: its first "
            "commit may be in that."
        ], partition
    return [], []


def _position(
    cluster: Cluster, partition: TopicPartition, bounds: Bounds, committed: int | None
) -> Program[tuple[str, bool]]:
    """A sentence about a group's position, and True if it waits for a transaction."""
    stable, end = bounds.last_stable_offset, bounds.end_offset
    if committed is None:
        return f"In {partition} it has committed nothing yet.", bounds.held > 0
    if committed > stable:
        return (
            f"In {partition} it is at offset {committed:,}, beyond the last stable offset {stable:,}: it reads "
            "uncommitted records, and no transaction holds it.",
            False,
        )
    if committed < stable and (yield from readable_before(cluster, partition, committed, stable)):
        until = f", and from there on it will have to wait: the end is at {end:,}" if bounds.held else ""
        return (
            f"In {partition} it is at offset {committed:,} and can read on up to {stable:,}: that it does not is its "
            f"own doing, no transaction's{until}.",
            bounds.held > 0,
        )
    if not bounds.held:
        return f"In {partition} it is at the end, offset {committed:,}; there is nothing to read.", False
    return f"In {partition} it is at offset {committed:,}, and there is nothing to read before offset {stable:,}.", True


def _doing(row: TransactionRow, now_ms: int) -> str:
    text = (
        f"Its coordinator, broker {row.coordinator}, has it {row.state}: producer id {row.producer_id}, epoch "
        f"{row.producer_epoch}, "
    )
    text += "two-phase commit (no time-out)" if row.is_two_phase else f"time-out {duration_text(row.timeout_ms)}"
    if row.start_ms is None or not row.partitions:
        return text + ", no transaction open."
    ago = duration_text(max(0, now_ms - row.start_ms))
    listed = ", ".join(map(str, sorted(row.partitions)[:8])) + (", …" if len(row.partitions) > 8 else "")
    return f"{text}, begun {ago} ago ({moment_text(row.start_ms)}), with {listed}."


def _retention(cluster: Cluster, partition: TopicPartition) -> Program[Retention]:
    try:
        rows = yield from describe_configs(
            cluster, ResourceType.TOPIC, partition.topic, ["cleanup.policy", "retention.ms"]
        )
        values = {row.name: row.value for row in rows}
        return Retention(values.get("cleanup.policy") or "delete", int(values.get("retention.ms") or -1))
    # The topic's configuration may not be read.
    except (ClientError, ValueError):
        return Retention()


def offsets_partition(cluster: Cluster, group: str) -> Program[TopicPartition | None]:
    """The partition that stores a group's offsets, if it may be seen."""
    topics = yield from cluster.metadata([CONSUMER_OFFSETS])
    info = topics.get(CONSUMER_OFFSETS)
    if info is None or not info.partitions:
        return None
    return TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group, len(info.partitions)))
