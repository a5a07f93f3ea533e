"""Finds a member id that holds up a classic group's rebalance because its client never joined with it."""

# KIP-394: a new member's first JoinGroup is answered MEMBER_ID_REQUIRED with an id, and it joins again with that. The
# coordinator waits for an id that it gave out until the session time-out that the client named (by default 45 s), and
# no member may read meanwhile. A client that asks twice (librdkafka #5569) or dies in between leaves one behind.
# DescribeGroups shows no such ids. oncelog's coordinators add them, and the members that have not joined again. For
# others there is one proof: a member that the last generation does not have has joined just now, so if there are no
# older ones, nothing but such an id is left to wait for.
#
# A healthy rebalance looks the same for a moment: while its clients join, and for group.initial.rebalance.delay.ms
# (3 s by default) in a group that had no members. So a finding needs two looks between which the group stood still.

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from oncelog.admin.explain.consumer_group_facts import LOOK_AGAIN_MS
from oncelog.admin.explain.findings import Cause, Finding, Severity, joined
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.group_descriptions import CLASSIC, GroupDescription, PendingMember, describe_group
from oncelog.admin.transactions.durations import duration_text
from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program, Sleep, parallel

SESSION_MS: Final = 45_000
"""The default of session.timeout.ms."""
_PREPARING: Final = "PreparingRebalance"
_UUID_CHARS: Final = 37
_MOST_NAMED: Final = 3
_MOST_SUSPECTS: Final = 40
_MEANING: Final = (
    "The client was given that id (KIP-394) and did not join with it: it asked for an id twice and uses the second "
    "(librdkafka #5569), or it died in between."
)


def look_twice(cluster: Cluster, groups: Sequence[GroupFacts]) -> Program[None]:
    # Describe the groups that seem to wait for such an id again, after a pause.
    suspects = [facts for facts in groups if _seems_to_wait(facts)][:_MOST_SUSPECTS]

    def look(facts: GroupFacts) -> Program[None]:
        with contextlib.suppress(ClientError):
            facts.later = yield from describe_group(cluster, facts.description.group)

    if suspects:
        yield Sleep(LOOK_AGAIN_MS)
        yield from parallel(look(facts) for facts in suspects)


def pending_member(facts: GroupFacts, options: str = "") -> Finding | None:
    # Only of a group that stood still between ``facts.description`` and ``facts.later``.
    described, later = facts.description, facts.later
    if later is None or later.state != described.state or not _seems_to_wait(facts):
        return None
    if described.pending:
        still = {pending.member_id for pending in later.pending}
        waiting = [pending for pending in described.pending if pending.member_id in still]
        return _shown(facts, waiting, options) if waiting else None
    if later.pending or _member_ids(later) != _member_ids(described):
        return None
    sentences = [
        "It is rebalancing (PreparingRebalance), and all its members have joined: none is of the last generation.",
        f"So its coordinator waits for a member id that it has given out and that no description shows: nothing "
        f"changed in {duration_text(LOOK_AGAIN_MS)}, more than the default of group.initial.rebalance.delay.ms (3 s).",
        _MEANING,
    ]
    return _finding(
        described, 0, sentences, f"after {duration_text(SESSION_MS)} by default (session.timeout.ms)", options
    )


def _shown(facts: GroupFacts, waiting: Sequence[PendingMember], options: str) -> Finding:
    described = facts.description
    last_ms = max(pending.until_ms for pending in waiting)
    names = [
        f"{pending.member_id!r} (client {pending.member_id[:-_UUID_CHARS]!r} on {pending.host.lstrip('/')})"
        for pending in waiting[:_MOST_NAMED]
    ]
    more = len(waiting) - len(names)
    sentences = [
        f"It is rebalancing (PreparingRebalance), and its coordinator waits for "
        f"{counted(len(waiting), 'member id')} that it has given out and that never joined: {joined(names)}"
        f"{f' and {more} more' if more else ''}.",
        f"Until then none of its {counted(len(described.members), 'member')} has a partition. {_MEANING}",
    ]
    if described.awaited:
        sentences.append(f"It also waits for {counted(len(described.awaited), 'member')} to join again.")
    left = f"in {duration_text(max(0, last_ms - facts.now_ms))}, when the session of that id ends"
    return _finding(described, len(waiting), sentences, left, options)


def _finding(described: GroupDescription, pending: int, sentences: list[str], when: str, options: str) -> Finding:
    return Finding(
        Cause.PENDING_MEMBER,
        Severity.STUCK,
        described.group,
        sentences,
        evidence={"state": described.state, "members": len(described.members), "pending": pending},
        no_since="no request tells when a rebalance began",
        affected=sorted({member.client_id for member in described.members}),
        clears=f"It clears by itself {when}.",
        advice="A shorter session.timeout.ms bounds it, and group.instance.id or the consumer protocol avoid it. To "
        "see who has joined:",
        commands=[f"oncelog group describe --members{options} {argument(described.group)}"],
    )


def _seems_to_wait(facts: GroupFacts) -> bool:
    described = facts.description
    if described.group_type != CLASSIC or described.state != _PREPARING:
        return False
    return bool(described.pending or (described.members and not described.awaited and _have_all_joined(facts)))


def _member_ids(described: GroupDescription) -> set[str]:
    return {member.member_id for member in described.members}


def _have_all_joined(facts: GroupFacts) -> bool:
    generations = [] if facts.history is None else facts.history.generations
    if not generations:
        return False
    earlier = {member.member_id for member in generations[-1].members}
    return all(member.member_id not in earlier for member in facts.description.members)
