"""Audited deletions of groups and of their offsets; the rule is that of ``audited_changes``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from oncelog.admin.group_descriptions import describe_group
from oncelog.admin.groups import delete_groups, delete_offsets, group_positions
from oncelog.admin.topics import Outcome
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, confirmed
from oncelog.console.query import NotConfirmed

_NO_MEMBERS: Final = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class Deletion:
    group: str
    topic: str  # Empty: the group itself with all its offsets.
    state: str
    offsets: dict[TopicPartition, int]
    refusal: str | None  # The reason why the coordinator would refuse.
    is_share: bool = False

    @property
    def digest(self) -> str:
        # A form carries this instead of the plan, which may have any number of offsets.
        lines = sorted(f"{topic}-{partition}={offset}" for (topic, partition), offset in self.offsets.items())
        return hashlib.sha256("\n".join((self.topic, *lines)).encode()).hexdigest()


def plan_deletion(client: Client, group: str, topic: str) -> Deletion:
    """Raises BrokerRefused for an unknown group."""
    description = describe_group(client, group)
    offsets = {
        partition: position.offset
        for partition, position in group_positions(client, group).items()
        if topic in ("", partition.topic)
    }
    members = len(description.members)
    readers = [
        member
        for member in description.members
        if topic in member.topics or any(partition.topic == topic for partition in member.partitions)
    ]
    refusal = None
    # A share group forgets states of records only without members, whatever they read.
    if (not topic or description.is_share) and description.state not in _NO_MEMBERS:
        counted = "1 member" if members == 1 else f"{members} members"
        refusal = f"the group is {description.state} and has {counted}; stop them first"
    elif readers:
        named = ", ".join(dict.fromkeys(member.client_id for member in readers[:3]))
        refusal = f"members of the group read {topic} ({named}); stop them first"
    elif topic and not offsets:
        refusal = f"the group has no offsets of {topic}"
    return Deletion(group, topic, description.state, offsets, refusal, description.is_share)


def delete_planned(
    client: Client, permit: Permit, changes: Changes, group: str, topic: str, digest: str, typed: str
) -> Deletion:
    """Raises NotConfirmed if members came or offsets moved since the plan was shown, and BrokerRefused."""
    confirmed(typed, group, "group")
    plan = plan_deletion(client, group, topic)
    if plan.refusal is not None:
        raise NotConfirmed(f"{plan.refusal}. Nothing was done")
    if plan.digest != digest:
        raise NotConfirmed(
            f"offsets of {group} have moved since the plan was shown; check the new one. Nothing was done"
        )
    offsets = [[f"{name}-{index}", offset] for (name, index), offset in sorted(plan.offsets.items())]
    details = {"group": group, **({"topic": topic} if topic else {}), "plan": offsets}
    changes.noted(permit, "delete-offsets" if topic else "delete-group", details, lambda: _delete(client, plan))
    return plan


def _delete(client: Client, plan: Deletion) -> None:
    outcomes: list[Outcome]
    outcomes = delete_offsets(client, plan.group, plan.offsets) if plan.topic else delete_groups(client, [plan.group])
    refused = [outcome for outcome in outcomes if outcome.error]
    if refused:
        # Partitions of one topic share their outcome: a member subscribes to all of them or to none.
        raise BrokerRefused(refused[0].error_code, f"{refused[0].name} of group {plan.group!r}", refused[0].error)
