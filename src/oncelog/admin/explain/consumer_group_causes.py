"""Finds the causes that only members of the consumer protocol have (KIP-848). Pure.

A member first gives up what its target lacks, and says so; then the partition goes to its next owner. A description
shows owners and targets, the coordinator's log (``facts.history``) since when.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from oncelog.admin.explain.consumer_group_facts import LOOK_AGAIN_MS, RECONCILING, SESSION_TIMEOUT
from oncelog.admin.explain.consumer_group_history import EpochChange, clients
from oncelog.admin.explain.findings import Cause, Evidence, Finding, Severity, kafka_options, shortened
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.group_descriptions import CLASSIC, MemberRow
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted

PATIENCE_MS: Final = 15_000
"""The longest heartbeat interval that a coordinator gives by default: a member that takes longer holds others up."""
MANY_EPOCHS: Final = 8
"""Epochs within the window that count as many; deploying one member makes two."""
MANY_RETURNS: Final = 3
"""How often one client leaves and joins within the window until it counts as coming back again and again."""
MOST_MEMBERS: Final = 20
"""The most members that get a finding of one kind."""
_UNREVOKED: Final = 1
_STATES: Final = {
    "Assigning": "its coordinator has yet to compute a target assignment for the newest members and topics",
    "Reconciling": "its members follow the newest target assignment, each in its own time",
}
_TOOLS: Final = {"streams": "kafka-streams-groups"}


def consumer_group_findings(facts: GroupFacts, options: str = "") -> Iterator[Finding]:
    """Findings about members and epochs; none for groups that cannot have the cause."""
    described = facts.description
    if not described.has_members_shown:
        yield _other_type(facts, options)
        return
    if described.state in RECONCILING:
        yield _reconciling(facts)
    yield from _held_partitions(facts, options)
    away = [member for member in described.members if member.is_away]
    for member in away[:MOST_MEMBERS]:
        yield _away(facts, member, options)
    yield from _many_epochs(facts, options)


def _other_type(facts: GroupFacts, options: str) -> Finding:
    described = facts.description
    tool = _TOOLS.get(described.group_type)
    return Finding(
        Cause.OTHER_GROUP_TYPE,
        Severity.NOTE,
        described.group,
        [
            f"It is a {described.group_type} group in state {described.state}. Its members and their progress are not "
            "looked into here; offsets that it has committed are."
        ],
        evidence={"group_type": described.group_type, "state": described.state},
        advice="To see its members, with Apache Kafka's own tool:" if tool else "",
        commands=[f"{tool}{kafka_options(options)} --describe {option('--group', described.group)}"] if tool else [],
    )


def _reconciling(facts: GroupFacts) -> Finding:
    described, history = facts.description, facts.epochs
    moving = [handover.partition for handover in described.handovers]
    sentences = [f"It is {described.state}: {_STATES[described.state]}."]
    since_ms = _began(history.epochs, described.epoch)
    if described.state == "Reconciling":
        since_ms = _began(history.targets, described.target_epoch)
    if moving:
        sentences.append(f"On the way to another member: {shortened(moving)}.")
    sentences.append(
        "Partitions that stay with their member are read and committed meanwhile; a partition that moves has no "
        "reader from when one member gives it up until another one takes it."
    )
    return Finding(
        Cause.RECONCILING,
        Severity.NOTE,
        described.group,
        sentences,
        evidence={
            "state": described.state,
            "members": len(described.members),
            "epoch": described.epoch,
            "target_epoch": described.target_epoch,
            "moving": len(moving),
            "givers": len({handover.giver for handover in described.handovers} - {None}),
        },
        since_ms=since_ms,
        clears="It clears by itself when every member has given up, and taken, its partitions.",
    )


def _began(changes: list[EpochChange], epoch: int | None) -> int | None:
    return next((change.at_ms for change in changes if change.epoch == epoch), None)


def _held_partitions(facts: GroupFacts, options: str) -> Iterator[Finding]:
    members = {member.member_id: member for member in facts.description.members}
    by_giver: dict[str, dict[str, list[TopicPartition]]] = {}
    for handover in facts.description.handovers:
        giver, receiver = handover.giver, handover.receiver
        # A member that is away gives nothing up, and is a finding of its own.
        if giver is not None and receiver is not None and not members[giver].is_away:
            by_giver.setdefault(giver, {}).setdefault(receiver, []).append(handover.partition)
    for giver, waiting in islice(by_giver.items(), MOST_MEMBERS):
        yield _held(facts, members[giver], {members[receiver]: parts for receiver, parts in waiting.items()}, options)


def _held(facts: GroupFacts, giver: MemberRow, waiting: dict[MemberRow, list[TopicPartition]], options: str) -> Finding:
    since_ms, was_told = _held_since(facts, giver)
    subscription = facts.epochs.subscriptions.get(giver.member_id)
    timeout_ms = None if subscription is None else subscription.rebalance_timeout_ms
    partitions = sorted(partition for parts in waiting.values() for partition in parts)
    waits = "; ".join(f"{shortened(parts)} to {_name(receiver)}" for receiver, parts in waiting.items())
    sentences = [
        f"Member {_client(giver)} has {shortened(partitions)}, which the target assignment (epoch "
        f"{facts.description.target_epoch}) gives to others: {waits}.",
        _why_held(giver, was_told),
    ]
    if facts.consumer.earlier is not None:
        sentences.append(_both_looks(facts, giver, partitions))
    is_classic = giver.member_type == CLASSIC
    is_overdue = since_ms is not None and facts.now_ms - since_ms >= PATIENCE_MS
    evidence: Evidence = {
        "member_id": giver.member_id,
        "client_id": giver.client_id,
        "host": giver.host,
        "member_type": giver.member_type,
        "member_epoch": giver.epoch,
        "target_epoch": facts.description.target_epoch,
        "partitions": len(partitions),
        "rebalance_timeout_ms": timeout_ms,
    }
    return Finding(
        Cause.CLASSIC_MEMBER_HOLDS_UP if is_classic else Cause.HOLDS_PARTITIONS,
        Severity.STUCK if is_overdue else Severity.RISK,
        f"member {giver.client_id}",
        sentences,
        evidence=evidence,
        since_ms=since_ms,
        no_since="a description has no times, and the records of this change are not within the window",
        affected=[f"{_name(receiver)} ({shortened(parts)})" for receiver, parts in waiting.items()],
        clears=_until(since_ms if was_told or is_classic else None, timeout_ms),
        advice="Its own log says what it does; stopped, it leaves its partitions to the others. To see who waits:",
        commands=[describe_command(facts, options)],
    )


def _held_since(facts: GroupFacts, giver: MemberRow) -> tuple[int | None, bool | None]:
    """When the member had to give up something, and whether the coordinator has told it so; None if unknown."""
    history = facts.epochs
    progress = history.progress.get(giver.member_id)
    if progress is not None and progress.state == _UNREVOKED:
        return progress.since_ms, True
    target_ms = _began(history.targets, facts.description.target_epoch)
    if giver.member_type == CLASSIC:
        return target_ms, None
    # A member that was told before the window writes no record until it confirms.
    return target_ms, None if progress is None or target_ms is None else False


def _why_held(giver: MemberRow, was_told: bool | None) -> str:
    if giver.member_type == CLASSIC:
        return (
            "It is a classic member of a mixed group: its heartbeat tells it to join again, which it does in its next "
            "poll. Until then it keeps everything that it has."
        )
    if was_told:
        return (
            "Its coordinator has told it, and it has not confirmed: it works on what it has read and does not poll, "
            "or its callback for revoked partitions has not returned."
        )
    if was_told is False:
        return "It has sent no heartbeat since that target was made: it is slow, cut off, or dead."
    return "Either it has sent no heartbeat since that target was made, or it was told and has not confirmed."


def _both_looks(facts: GroupFacts, giver: MemberRow, partitions: list[TopicPartition]) -> str:
    members = [] if facts.consumer.earlier is None else facts.consumer.earlier.members
    earlier = next((member for member in members if member.member_id == giver.member_id), None)
    if earlier is not None and set(partitions) <= set(earlier.to_give_up):
        return f"It had to give them up {duration_text(LOOK_AGAIN_MS)} before, too."
    return f"It did not have to {duration_text(LOOK_AGAIN_MS)} before: this may be an ordinary change."


def _until(since_ms: int | None, timeout_ms: int | None) -> str:
    text = "It clears when the member gives them up. Otherwise the coordinator removes the member "
    if since_ms is not None and timeout_ms is not None and timeout_ms > 0:
        return (
            f"{text}at about {moment_text(since_ms + timeout_ms)}, by its rebalance time-out of "
            f"{duration_text(timeout_ms)} (max.poll.interval.ms), counted again if the coordinator moves."
        )
    return (
        f"{text}when its rebalance time-out (max.poll.interval.ms) has passed since it was told, or its session "
        f"time-out ({SESSION_TIMEOUT} for a member of the consumer protocol) without a heartbeat; no request tells "
        "when that is."
    )


def _away(facts: GroupFacts, member: MemberRow, options: str) -> Finding:
    """A static member that has left for a while: its partitions wait for its successor."""
    progress = facts.epochs.progress.get(member.member_id)
    since_ms = progress.since_ms if progress is not None and progress.epoch == member.epoch else None
    timeout_ms = facts.consumer.number(SESSION_TIMEOUT)
    unread = sum(facts.to_read(partition) for partition in member.partitions)
    has = shortened(member.partitions) if member.partitions else "no partition"
    sentences = [
        f"Static member {member.instance_id!r} ({_name(member)}) has left and not come back. It keeps {has}, and "
        "no other member gets them meanwhile."
    ]
    if unread:
        sentences.append(f"There {'is' if unread == 1 else 'are'} {counted(unread, 'offset')} to read.")
    clears = "It clears when a consumer with that group.instance.id starts. Otherwise its partitions go to the others "
    if timeout_ms is None:
        clears += f"when its session ends, {SESSION_TIMEOUT} after it left."
    elif since_ms is None:
        clears += f"when its session ends, {duration_text(timeout_ms)} after it left ({SESSION_TIMEOUT})."
    else:
        clears += f"at about {moment_text(since_ms + timeout_ms)}, {duration_text(timeout_ms)} after it left."
    return Finding(
        Cause.STATIC_MEMBER_AWAY,
        Severity.STUCK if unread else Severity.NOTE,
        f"member {member.instance_id}",
        sentences,
        evidence={
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "session_timeout_ms": timeout_ms,
            "to_read": unread,
        },
        since_ms=since_ms,
        no_since="it left before the window, or the coordinator's log may not be read",
        affected=[f"everything that waits for {shortened(member.partitions)}"] if unread else [],
        clears=clears,
        advice="To see all members:" if unread else "",
        commands=[describe_command(facts, options)] if unread else [],
    )


def _many_epochs(facts: GroupFacts, options: str) -> Iterator[Finding]:
    history, described = facts.epochs, facts.description
    # Several members of one client id on one host are no returns: each return follows a leave.
    returns = (clients(history.joined) & clients(history.left)).most_common(1)
    is_returning = bool(returns) and returns[0][1] >= MANY_RETURNS
    if history.epochs and (len(history.epochs) >= MANY_EPOCHS or is_returning):
        first, last = history.epochs[0], history.epochs[-1]
        sentences = [
            f"Its group epoch has risen {counted(len(history.epochs), 'time')} within "
            f"{duration_text(facts.now_ms - first.at_ms)}, to {last.epoch:,}."
        ]
        evidence: Evidence = {"epochs": len(history.epochs), "epoch": last.epoch}
        if is_returning:
            (client_id, host), count = returns[0]
            evidence |= {"client_id": client_id, "host": host, "joined_anew": count}
            sentences.append(
                f"Client {client_id!r} on {host.lstrip('/')} came as a new member {counted(count, 'time')}: it starts "
                "again and again, loses its session, or takes longer between two polls than max.poll.interval.ms. Its "
                "log says which; with group.instance.id a restart of it would not change the group."
            )
        elif not history.joined and not history.left:
            sentences.append("The members stayed the same: subscriptions change, or topics that they subscribe to.")
        yield _epochs_finding(facts, sentences, evidence, first.at_ms, options)
        return
    earlier = facts.consumer.earlier
    if earlier is None or earlier.epoch is None or described.epoch is None or described.epoch - earlier.epoch < 2:
        return
    before = {member.member_id: member for member in earlier.members}
    now = {member.member_id: member for member in described.members}
    joined = [_name(member) for member_id, member in now.items() if member_id not in before]
    left = [_name(member) for member_id, member in before.items() if member_id not in now]
    sentences = [
        f"Its group epoch has risen from {earlier.epoch:,} to {described.epoch:,} within "
        f"{duration_text(LOOK_AGAIN_MS)}."
    ]
    sentences += [f"Joined since: {shortened(joined)}."] if joined else []
    sentences += [f"Left since: {shortened(left)}."] if left else []
    yield _epochs_finding(facts, sentences, {"epochs": described.epoch - earlier.epoch}, None, options)


def _epochs_finding(
    facts: GroupFacts, sentences: list[str], evidence: Evidence, since_ms: int | None, options: str
) -> Finding:
    return Finding(
        Cause.REBALANCES_REPEATEDLY,
        Severity.RISK,
        facts.description.group,
        [*sentences, "Each rise makes a new target assignment, and partitions that move are not read meanwhile."],
        evidence=evidence,
        since_ms=since_ms,
        affected=sorted({member.client_id for member in facts.description.members}),
        clears="It clears when no member comes or goes, and no subscription or topic changes.",
        advice="To see its members and epochs now:",
        commands=[describe_command(facts, options)],
    )


def _name(member: MemberRow) -> str:
    return f"member {_client(member)}"


def _client(member: MemberRow) -> str:
    return f"{member.client_id!r} on {member.host.lstrip('/')}"


def describe_command(facts: GroupFacts, options: str) -> str:
    return f"oncelog group describe --members{options} {argument(facts.description.group)}"
