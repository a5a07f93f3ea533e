"""Finds subscriptions and protocols that give a consumer nothing: expressions, assignors, conversions (KIP-848). Pure.

A refusal leaves no trace in the group: ``open_questions`` tells what the coordinator would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from oncelog.admin.explain.consumer_group_facts import (
    ASSIGNORS,
    MAX_BATCH,
    MIGRATION_POLICY,
    RECONCILING,
    unassigned_matches,
)
from oncelog.admin.explain.findings import Cause, Finding, Severity, kafka_options, shortened
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.group_descriptions import CLASSIC, CONSUMER, MemberRow
from oncelog.admin.transactions.durations import moment_text
from oncelog.base.ids import CONSUMER_OFFSETS
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.text import counted
from oncelog.records.internal.consumer_group_records import RegexValue

_LEAST_TOPIC_BYTES: Final = 22  # its id, and the count and number of one partition, in the record of a target


def subscription_findings(facts: GroupFacts, options: str = "") -> Iterator[Finding]:
    yield from _expressions(facts, options)
    yield from _assignors(facts, options)
    if facts.consumer.obstacles:
        yield _conversion(facts)


def open_questions(facts: GroupFacts) -> list[str]:
    """Questions that a group of the consumer protocol leaves open, with the means to answer them."""
    described, settings = facts.description, facts.consumer.settings
    questions = [
        f"Whether {expression!r} matches a topic: {reason}." for expression, reason in facts.consumer.refused.items()
    ]
    # A refusal is answered and recorded nowhere. It matters where no other member is.
    if described.group_type == CONSUMER and not described.members:
        text = "Whether its coordinator refuses consumers that join: it records no refusal; their logs have its words."
        if ASSIGNORS in settings:
            text += (
                f" It has the assignors {settings[ASSIGNORS]} ({ASSIGNORS}): a consumer with another "
                "group.remote.assignor gets UNSUPPORTED_ASSIGNOR."
            )
        if settings.get(MIGRATION_POLICY, "").lower() == "disabled":
            text += f" Its {MIGRATION_POLICY} is disabled: a classic consumer gets INCONSISTENT_GROUP_PROTOCOL."
        questions.append(text)
    return questions


def _expressions(facts: GroupFacts, options: str) -> Iterator[Finding]:
    """Regular expressions that give their members nothing, or less than the asker sees."""
    described = facts.description
    # A new expression takes effect when it is resolved, and its topics reach the members one target later.
    if described.state in RECONCILING:
        return
    missing = unassigned_matches(described, facts.consumer.matches)
    for expression, topics in facts.consumer.matches.items():
        subscribers = [member for member in described.members if member.regex == expression]
        has_target = any(member.target for member in subscribers)
        if (unassigned := missing.get(expression)) and (size := _batch_over_limit(facts, topics, unassigned)):
            yield _records_too_large(facts, expression, subscribers, topics, size, options)
        elif missing.get(expression):
            yield _not_resolved(facts, expression, subscribers, missing[expression], options)
        elif not topics and not has_target:
            yield _matches_nothing(facts, expression, subscribers, options)


def _matches_nothing(facts: GroupFacts, expression: str, subscribers: list[MemberRow], options: str) -> Finding:
    resolved = facts.epochs.expressions.get(expression)
    return Finding(
        Cause.REGEX_MATCHES_NOTHING,
        Severity.RISK,
        f"expression {expression}",
        [
            f"{_names(subscribers)} to topics by the regular expression {expression!r}, which matches no topic that "
            "can be seen from here, and get none.",
            "An expression must match the whole name of a topic, in the syntax of RE2: 'orders' does not match "
            "'orders.eu', 'orders.*' does.",
            *_resolution(resolved),
        ],
        evidence={"regex": expression, "members": len(subscribers), "matches": 0},
        since_ms=None if resolved is None else resolved.timestamp_ms,
        no_since="no request tells when the coordinator resolved the expression",
        clears="It clears when such a topic is created, within the refresh interval of expressions (10 min).",
        advice="To see the topics that can be seen:",
        commands=[f"oncelog topic list{options}"],
    )


def _not_resolved(
    facts: GroupFacts, expression: str, subscribers: list[MemberRow], missing: list[str], options: str
) -> Finding:
    resolved = facts.epochs.expressions.get(expression)
    sentences = [
        f"{_names(subscribers)} to topics by the regular expression {expression!r}. It matches "
        f"{shortened(missing)}, and no member is given a partition of {'it' if len(missing) == 1 else 'them'}.",
        "The coordinator leaves out topics that the members' principal may not Describe; it looks again when topics "
        "are created, and every 10 min.",
    ]
    sentences += _resolution(resolved)
    denied = [denial.name for denial in facts.denied if denial.operation == "Describe" and denial.name in missing]
    if denied:
        sentences.append(f"{facts.denied[0].principal} may not Describe {shortened(denied)}.")
    return Finding(
        Cause.REGEX_HIDDEN_TOPICS,
        # A topic of the last moments looks the same until the coordinator looks again.
        Severity.STUCK if denied else Severity.RISK,
        f"expression {expression}",
        sentences,
        evidence={"regex": expression, "missing": len(missing), "denied": len(denied)},
        since_ms=None if resolved is None else resolved.timestamp_ms,
        no_since="no request tells when the coordinator resolved the expression",
        clears="It clears when the principal may Describe the topics, at the next look of the coordinator.",
        advice="" if denied else "To check the permissions of the members, name their principal:",
        commands=[f"oncelog explain group --principal USER{options} {argument(facts.description.group)}"]
        if not denied
        else [],
    )


def _batch_over_limit(facts: GroupFacts, topics: Sequence[str], unassigned: Sequence[str]) -> int | None:
    # The least size of the batch that would give members these topics; None if it fits.
    # Either the record of the expression's topics, or a target with an id and a partition for each topic.
    size = max(sum(len(name.encode()) + 1 for name in topics), _LEAST_TOPIC_BYTES * len(unassigned))
    limit = facts.consumer.number(MAX_BATCH)
    return size if limit is not None and size > limit else None


def _records_too_large(
    facts: GroupFacts, expression: str, subscribers: list[MemberRow], topics: Sequence[str], size: int, options: str
) -> Finding:
    limit = facts.consumer.number(MAX_BATCH) or 0
    return Finding(
        Cause.RECORDS_TOO_LARGE,
        Severity.STUCK,
        f"expression {expression}",
        [
            f"{_names(subscribers)} to topics by the regular expression {expression!r}, which matches "
            f"{counted(len(topics), 'topic')}: their record or target takes at least {size:,} bytes, and "
            f"{MAX_BATCH} of {CONSUMER_OFFSETS} is {limit:,}.",
            "Its coordinator cannot write what it decides, and the group stays as it is: members keep the partitions "
            "that they have, and new ones get none.",
        ],
        evidence={"regex": expression, "matches": len(topics), "least_bytes": size, "max_message_bytes": limit},
        no_since="a refused batch leaves no record",
        affected=[member.client_id for member in subscribers],
        clears="It clears when the expression matches fewer topics, or the limit is raised.",
        advice="To raise the limit:",
        commands=[f"oncelog topic alter {option('--config', f'{MAX_BATCH}={4 * size}')}{options} {CONSUMER_OFFSETS}"],
    )


def _resolution(resolved: RegexValue | None) -> list[str]:
    if resolved is None:
        return []
    topics = f": {shortened(resolved.topics)}" if resolved.topics else ""
    moment = moment_text(resolved.timestamp_ms)
    return [f"At {moment} the coordinator found {counted(len(resolved.topics), 'topic')}{topics}."]


def _assignors(facts: GroupFacts, options: str) -> Iterator[Finding]:
    """Members whose assignor the coordinator does not have: it accepted it once, or another coordinator did."""
    available = [name.strip() for name in facts.consumer.settings.get(ASSIGNORS, "").split(",") if name.strip()]
    # A class name is a custom assignor, whose own name no request tells.
    if not available or any("." in name for name in available):
        return
    present = {member.member_id: member for member in facts.description.members}
    missing: dict[str, list[MemberRow]] = {}
    for member_id, subscription in facts.epochs.subscriptions.items():
        if subscription.assignor and subscription.assignor not in available and member_id in present:
            missing.setdefault(subscription.assignor, []).append(present[member_id])
    for assignor, members in missing.items():
        yield Finding(
            Cause.ASSIGNOR_NOT_SUPPORTED,
            Severity.STUCK,
            facts.description.group,
            [
                f"{shortened([member.client_id for member in members])} asked for the assignor {assignor!r}, which "
                f"broker {facts.description.coordinator} does not have; it has {', '.join(available)} ({ASSIGNORS}).",
                "A member that joins with it is refused with UNSUPPORTED_ASSIGNOR; a target that needs it cannot be "
                "computed.",
            ],
            evidence={"assignor": assignor, "available": ",".join(available), "members": len(members)},
            no_since="no request tells when the coordinator's configuration changed",
            affected=[member.client_id for member in members],
            clears=f"It clears when {ASSIGNORS} has it again, or when its members start without it.",
            advice="To see the coordinator's assignors:",
            commands=[
                f"kafka-configs{kafka_options(options)} --describe --all --entity-type brokers "
                f"{option('--entity-name', str(facts.description.coordinator))}"
            ],
        )


def _conversion(facts: GroupFacts) -> Finding:
    described, reasons = facts.description, facts.consumer.obstacles
    if described.group_type == CLASSIC:
        text = (
            "A consumer with group.protocol=consumer is refused by this classic group (GROUP_ID_NOT_FOUND): "
            f"{'; '.join(reasons)}."
        )
        clears = "It clears when that changes, or when the group is empty: then any protocol may take it over."
    else:
        text = f"All its members are classic, and it stays a group of the consumer protocol: {'; '.join(reasons)}."
        clears = "It clears when that changes and a member leaves, or when the group is empty."
    return Finding(
        Cause.CONVERSION_REFUSED,
        Severity.NOTE,
        described.group,
        [text, "Its present members are not held up by that."],
        evidence={"reasons": len(reasons), "policy": facts.consumer.settings.get(MIGRATION_POLICY)},
        clears=clears,
    )


def _names(members: list[MemberRow]) -> str:
    if len(members) == 1:
        return f"Member {members[0].client_id!r} on {members[0].host.lstrip('/')} subscribes"
    return f"{counted(len(members), 'member')} ({shortened([member.client_id for member in members])}) subscribe"
