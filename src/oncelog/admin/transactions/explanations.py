"""Explains why a consumer does not advance, up to the transaction that holds it: asks the cluster; ``report`` words it.

Starts from a group, a topic, a partition or a transactional id. The rule: what a group waits for is looked for in the
group's own terms first (nothing committed, records still to read, offsets pending in a transaction), because most
consumers that stand still are not held by any transaction, and the answer has to say that too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.groups import describe_group
from oncelog.admin.transactions.blocked_groups import groups_behind, pending_offsets
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.cluster_scan import HangingRow, OpenTransaction, Scope, partitions_of, scan
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of, readable_before
from oncelog.admin.transactions.report import (
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
from oncelog.base.transaction_verdicts import Verdict
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program, operation
from oncelog.client.programs.group import committed_offsets

MOST_HELD: Final = 10
"""Partitions that are reported in full; the rest are a number."""
_SEVERITY: Final = (Verdict.HANGING, Verdict.SUSPECTED, Verdict.TWO_PHASE, Verdict.LIVE)
"""The order of the report."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One thing that was explained: what it is about, the sentences in order, and what to run.

    ``clears_at_ms`` is None where nothing says when it clears by itself.
    """

    about: str
    sentences: list[str]
    advice: str = ""
    commands: list[str] = field(default_factory=list)
    verdict: str | None = None
    clears_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer: chains, the transactions behind them, and what could not be asked."""

    subject: str
    chains: list[Chain]
    transactions: list[HangingRow]
    unanswered: list[Unanswered] = field(default_factory=list)

    @property
    def hangs(self) -> bool:
        return any(transaction.verdict == Verdict.HANGING.value for transaction in self.transactions)


@operation
def explain_topic(
    cluster: Cluster, topic: str, partition: int | None = None, *, options: str = ""
) -> Program[Explanation]:
    """Explains why committed readers of a topic, or a partition, cannot read to its end. Raises UnknownTopic."""
    partitions = (TopicPartition(TopicName(topic), partition),) if partition is not None else ()
    wanted = yield from partitions_of(cluster, Scope((topic,) if partition is None else (), partitions))
    subject = f"topic {topic}" if partition is None else f"partition {partition} of topic {topic}"
    bounds, unanswered = yield from bounds_of(cluster, wanted)
    held = [one for one in wanted if one in bounds and bounds[one].held]
    if not held:
        all_of_it = "it" if len(wanted) == 1 else f"all {len(wanted)} partitions"
        text = f"Nothing is held: committed readers can read {all_of_it} to the end."
        if unanswered:
            text = "Nothing is held in what could be looked at; not everything could."
        return Explanation(subject, [Chain(subject, [text])], [], unanswered)
    return (yield from explain_held(cluster, subject, held, bounds, [], unanswered, options))


@operation
def explain_group(cluster: Cluster, group: str, *, options: str = "") -> Program[Explanation]:
    """Explains why a group does not advance. Raises BrokerRefused with GROUP_ID_NOT_FOUND."""
    described = yield from describe_group(cluster, group)
    committed = yield from committed_offsets(cluster, group)
    assigned = {partition for member in described.members for partition in member.partitions}
    topics = yield from cluster.metadata({one.topic for one in (*committed, *assigned)})
    there = [
        one
        for one in sorted({*committed, *assigned})
        if (info := topics.get(one.topic)) is not None and info.exists and one.partition in info.partitions
    ]
    bounds, unanswered = yield from bounds_of(cluster, there)
    members = f"{len(described.members)} member" + ("" if len(described.members) == 1 else "s")
    places = f"{len(committed)} partition" + ("" if len(committed) == 1 else "s")
    first = [f"Group {group!r} is {described.state} with {members} and has offsets in {places}."]
    if not described.members:
        first.append("It has no members: nobody reads for it, or its consumers assign their partitions themselves.")
    held: list[TopicPartition] = []
    for one in there:
        if one not in bounds:
            continue
        said, stuck = yield from _position(
            cluster, one, bounds[one], committed[one].offset if one in committed else None
        )
        if said:
            first.append(said)
        if stuck:
            held.append(one)
    waits, offsets = yield from group_pending(cluster, group, {*committed, *assigned}, bounds)
    first += waits
    held += offsets
    if not held:
        first.append("No transaction holds it.")
    return (yield from explain_held(cluster, f"group {group}", held, bounds, first, unanswered, options))


@operation
def explain_id(cluster: Cluster, transactional_id: str, *, options: str = "") -> Program[Explanation]:
    """Explains what an id is doing, and what its open transactions hold. Raises BrokerRefused when nobody knows the id.

    The whole cluster is looked at: a partition that hangs is on nobody's list.
    """
    found = yield from scan(cluster, min_age_ms=0)
    own = [transaction for transaction in found.transactions if transaction.transactional_id == transactional_id]
    try:
        row: TransactionRow | None = yield from describe_transaction(cluster, transactional_id)
    except ClientError:
        if not own:
            raise
        row = None
    subject = f"transactional id {transactional_id}"
    first = [_doing(row, found.now_ms) if row is not None else "Its coordinator does not know this id any more."]
    held = sorted({one.where for one in own})
    bounds, unanswered = yield from bounds_of(cluster, held)
    if not held:
        first.append("No partition has a transaction of it open; it holds nobody.")
    every = [transaction for transaction in found.transactions if transaction.where in set(held)]
    return (
        yield from explain_held(cluster, subject, held, bounds, first, [*found.unanswered, *unanswered], options, every)
    )


def explain_held(
    cluster: Cluster,
    subject: str,
    held: Sequence[TopicPartition],
    bounds: dict[TopicPartition, Bounds],
    first: list[str],
    unanswered: list[Unanswered],
    options: str,
    known: Sequence[OpenTransaction] | None = None,
) -> Program[Explanation]:
    """An explanation with a chain for each partition that is held."""
    chains = [Chain(subject, first)] if first else []
    if not held:
        return Explanation(subject, chains, [], unanswered)
    if known is None:
        found = yield from scan(cluster, Scope(partitions=tuple(held)), min_age_ms=0)
        known = found.transactions
        unanswered = [*unanswered, *found.unanswered]
    now_ms = cluster.environment.wall_ms()
    holders = {where: next((one for one in known if one.where == where), None) for where in held}
    reported = sorted(held, key=lambda where: (_SEVERITY.index(_verdict(holders[where])), where))[:MOST_HELD]
    behind, unanswered_groups = yield from groups_behind(
        cluster, {one: bounds[one] for one in reported if one in bounds}
    )
    for where in reported:
        opened = tuple(one for one in known if one.where == where)
        retention = (
            (yield from _retention(cluster, where)) if opened and opened[0].verdict is Verdict.HANGING else Retention()
        )
        if where in bounds:
            facts = Held(where, bounds[where], opened, tuple(behind.get(where, ())), retention, now_ms)
            chains.append(_chain(facts, options))
    if len(held) > len(reported):
        chains.append(
            Chain(subject, [f"{len(held) - len(reported)} more partitions are held, by nothing worse; name one."])
        )
    return Explanation(subject, chains, [one.as_row() for one in known], [*unanswered, *unanswered_groups])


def _verdict(holder: OpenTransaction | None) -> Verdict:
    return Verdict.LIVE if holder is None else holder.verdict


def _chain(held: Held, options: str) -> Chain:
    holder = held.holder
    return Chain(
        str(held.where),
        held_sentences(held),
        advice(held),
        commands(held, options),
        None if holder is None else holder.verdict.value,
        None if holder is None else clears_at_ms(holder),
    )


def group_pending(
    cluster: Cluster, group: str, known: set[TopicPartition], bounds: dict[TopicPartition, Bounds]
) -> Program[tuple[list[str], list[TopicPartition]]]:
    """Sentences about a group that waits for its own offsets, and their partition, whose ``bounds`` are added."""
    pending = yield from pending_offsets(cluster, group, known)
    offsets = (yield from offsets_partition(cluster, group)) if pending or not known else None
    if offsets is not None:
        more, _ = yield from bounds_of(cluster, [offsets])
        bounds |= more
    where = [] if offsets is None else [offsets]
    if pending:
        names = ", ".join(map(str, sorted(pending)[:5]))
        waits = "a member that starts now waits for it"
        return [f"Its offsets of {names} are pending in a transaction that has not ended; {waits}."], where
    if offsets is not None and offsets in bounds and bounds[offsets].held:
        return [
            f"It has committed nothing. Its offsets are kept in {offsets}, where a transaction is open: its first "
            "commit may be in that."
        ], where
    return [], []


def _position(
    cluster: Cluster, where: TopicPartition, bounds: Bounds, committed: int | None
) -> Program[tuple[str, bool]]:
    """A sentence about a group's position, and True if it waits for a transaction."""
    stable, end = bounds.last_stable_offset, bounds.end_offset
    if committed is None:
        return f"In {where} it has committed nothing yet.", bounds.held > 0
    if committed > stable:
        return (
            f"In {where} it is at offset {committed:,}, beyond the last stable offset {stable:,}: it reads uncommitted "
            "records, and no transaction holds it.",
            False,
        )
    if committed < stable and (yield from readable_before(cluster, where, committed, stable)):
        until = f", and from there on it will have to wait: the end is at {end:,}" if bounds.held else ""
        return (
            f"In {where} it is at offset {committed:,} and can read on up to {stable:,}: that it does not is its own "
            f"doing, no transaction's{until}.",
            bounds.held > 0,
        )
    if not bounds.held:
        return f"In {where} it is at the end, offset {committed:,}; there is nothing to read.", False
    return f"In {where} it is at offset {committed:,}, and there is nothing to read before offset {stable:,}.", True


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


def _retention(cluster: Cluster, where: TopicPartition) -> Program[Retention]:
    try:
        rows = yield from describe_configs(cluster, ResourceType.TOPIC, where.topic, ["cleanup.policy", "retention.ms"])
        values = {row.name: row.value for row in rows}
        return Retention(values.get("cleanup.policy") or "delete", int(values.get("retention.ms") or -1))
    except (ClientError, ValueError):
        return Retention()


def offsets_partition(cluster: Cluster, group: str) -> Program[TopicPartition | None]:
    """The partition that keeps a group's offsets, if we may see that."""
    topics = yield from cluster.metadata([CONSUMER_OFFSETS])
    info = topics.get(CONSUMER_OFFSETS)
    if info is None or not info.partitions:
        return None
    return TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group, len(info.partitions)))
