"""Facts that only the consumer protocol (KIP-848) has: limits of the coordinator, expressions, and a second look.

A refused request leaves its part of the facts empty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.explain.findings import shortened
from oncelog.admin.group_descriptions import CLASSIC, CONSUMER, GroupDescription, describe_group
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program
from oncelog.client.programs.steps import Sleep
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_protocol import decode_assignment, decode_subscription
from oncelog.records.patterns import Pattern, PatternRefused
from oncelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest

ASSIGNORS: Final = "group.consumer.assignors"
MIGRATION_POLICY: Final = "group.consumer.migration.policy"
MAX_SIZE: Final = "group.consumer.max.size"
CLASSIC_MAX_SIZE: Final = "group.max.size"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
# Of ``__consumer_offsets``: the records of one change of a group have to fit in one batch.
MAX_BATCH: Final = "max.message.bytes"
BROKER_KEYS: Final = (ASSIGNORS, MIGRATION_POLICY, MAX_SIZE, CLASSIC_MAX_SIZE)
RECONCILING: Final = frozenset({"Assigning", "Reconciling"})
"""States of a group whose partitions move."""
LOOK_AGAIN_MS: Final = 6_000
"""The pause before the second look: a member answers its coordinator within a heartbeat interval, by default 5 s."""
MOST_EXPRESSIONS: Final = 20
"""The most regular expressions that are compared with the topics."""


@dataclass(slots=True)
class ConsumerGroupFacts:
    """``earlier`` is a look ``LOOK_AGAIN_MS`` before the description, if there was one.

    ``settings`` are configs of the coordinator and the group. ``matches`` maps each regular expression to the visible
    topics that it matches, ``refused`` an unusable one to the reason. ``obstacles`` are the reasons for which a member
    of the other protocol cannot join.
    """

    earlier: GroupDescription | None = None
    settings: dict[str, str] = field(default_factory=dict)
    matches: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    obstacles: Sequence[str] = ()

    def number(self, key: str) -> int | None:
        text = self.settings.get(key, "")
        return int(text) if text.isascii() and text.isdigit() else None


def look_again(cluster: Cluster, described: GroupDescription) -> Program[GroupDescription]:
    """The group after a pause. Raises BrokerRefused."""
    yield Sleep(LOOK_AGAIN_MS)
    return (yield from describe_group(cluster, described.group))


def consumer_group_facts(cluster: Cluster, described: GroupDescription) -> Program[ConsumerGroupFacts]:
    facts = ConsumerGroupFacts()
    if described.protocol_type != CONSUMER or not described.has_members_shown:
        return facts
    with contextlib.suppress(ClientError):
        facts.settings = yield from _settings(cluster, ResourceType.BROKER, str(described.coordinator), BROKER_KEYS)
    if described.group_type == CONSUMER:
        with contextlib.suppress(ClientError):
            facts.settings |= yield from _settings(cluster, ResourceType.GROUP, described.group, (SESSION_TIMEOUT,))
    with contextlib.suppress(ClientError):
        facts.matches, facts.refused = yield from _expressions(cluster, described)
    if any(unassigned_matches(described, facts.matches).values()):
        with contextlib.suppress(ClientError):
            facts.settings |= yield from _settings(cluster, ResourceType.TOPIC, CONSUMER_OFFSETS, (MAX_BATCH,))
    with contextlib.suppress(ClientError):
        facts.obstacles = yield from _obstacles(cluster, described, facts)
    return facts


def _settings(cluster: Cluster, kind: ResourceType, name: str, keys: tuple[str, ...]) -> Program[dict[str, str]]:
    rows = yield from describe_configs(cluster, kind, name, keys)
    return {row.name: row.value for row in rows if row.value is not None}


def _expressions(cluster: Cluster, described: GroupDescription) -> Program[tuple[dict[str, list[str]], dict[str, str]]]:
    expressions = sorted({member.regex for member in described.members if member.regex})[:MOST_EXPRESSIONS]
    if not expressions:
        return {}, {}
    topics = sorted((yield from cluster.metadata(None)))
    matches: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for expression in expressions:
        try:
            pattern = Pattern(expression)
        except PatternRefused as error:
            refused[expression] = str(error)
        else:
            matches[expression] = [topic for topic in topics if pattern.matches(topic)]
    return matches, refused


def unassigned_matches(described: GroupDescription, matches: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The matching topics that are in no member's target, by expression."""
    targeted = {partition.topic for member in described.members for partition in member.target or ()}
    return {
        expression: missing
        for expression, topics in matches.items()
        if (missing := [topic for topic in topics if topic not in targeted])
    }


def _obstacles(cluster: Cluster, described: GroupDescription, facts: ConsumerGroupFacts) -> Program[list[str]]:
    policy = facts.settings.get(MIGRATION_POLICY, "").lower()
    if described.group_type == CONSUMER:
        return _downgrade_obstacles(described, policy, facts.number(CLASSIC_MAX_SIZE))
    if described.state != "Stable":
        return []
    response = yield from cluster.at_coordinator(described.group, DescribeGroupsRequest(groups=[described.group]))
    group = response.groups[0]
    return [] if group.error_code != ErrorCode.NONE else upgrade_obstacles(group, policy, facts.number(MAX_SIZE))


def upgrade_obstacles(group: DescribedGroup, policy: str, max_size: int | None) -> list[str]:
    """The reasons for which a classic group refuses its first member of the consumer protocol, by KIP-848's checks.

    ``policy`` is empty, and ``max_size`` None, if they are unknown.
    """
    reasons = []
    if policy in ("disabled", "downgrade"):
        reasons.append(f"{MIGRATION_POLICY} of its coordinator is {policy}")
    if max_size is not None and len(group.members) > max_size:
        reasons.append(f"it has {len(group.members)} members, and {MAX_SIZE} is {max_size}")
    custom, malformed = [], []
    for member in group.members:
        try:
            decode_subscription(member.member_metadata)
            if member.member_assignment and decode_assignment(member.member_assignment).user_data:
                custom.append(repr(member.client_id))
        except CorruptBatch:
            malformed.append(repr(member.client_id))
    if custom:
        reasons.append(
            f"its assignor {group.protocol_data!r} keeps data of its own in the assignments (user data of "
            f"{shortened(custom)}), which the coordinator would lose"
        )
    if malformed:
        reasons.append(f"the subscriptions of {shortened(malformed)} are not those of the consumer protocol")
    return reasons


def _downgrade_obstacles(described: GroupDescription, policy: str, max_size: int | None) -> list[str]:
    """The reasons for which a group whose members are all classic stays a consumer group."""
    if not described.members or any(member.member_type != CLASSIC for member in described.members):
        return []
    reasons = []
    if policy in ("disabled", "upgrade"):
        reasons.append(f"{MIGRATION_POLICY} of its coordinator is {policy}")
    if max_size is not None and len(described.members) > max_size:
        reasons.append(f"it has {len(described.members)} members, and {CLASSIC_MAX_SIZE} is {max_size}")
    return reasons
