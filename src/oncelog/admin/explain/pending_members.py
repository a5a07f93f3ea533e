"""Finds a member id that holds up a classic group's rebalance because its client never joined with it. Pure."""

# KIP-394: a new member's first JoinGroup is answered MEMBER_ID_REQUIRED with an id, and it joins again with that. The
# coordinator waits for an id that it gave out until the session time-out that the client named (by default 45 s), and
# no member may read meanwhile. A client that asks twice (librdkafka #5569) or dies in between leaves one behind.
# DescribeGroups shows no such ids. oncelog's coordinators add them, and the members that have not joined again. For
# others there is one proof: a member that the last generation does not have has joined just now, so if there are no
# older ones, nothing but such an id is left to wait for.

from __future__ import annotations

from typing import Final

from oncelog.admin.explain.findings import Cause, Finding, Severity, joined
from oncelog.admin.explain.group_facts import GroupFacts
from oncelog.admin.group_descriptions import CLASSIC, GroupDescription
from oncelog.admin.transactions.durations import duration_text
from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted

SESSION_MS: Final = 45_000
"""The default of session.timeout.ms."""
_PREPARING: Final = "PreparingRebalance"
_UUID_CHARS: Final = 37
_MOST_NAMED: Final = 3
_MEANING: Final = (
    "The client was given that id (KIP-394) and did not join with it: it asked for an id twice and uses the second "
    "(librdkafka #5569), or it died in between."
)


def pending_member(facts: GroupFacts, options: str = "") -> Finding | None:
    described = facts.description
    if described.group_type != CLASSIC or described.state != _PREPARING:
        return None
    if described.pending:
        return _shown(facts, options)
    if described.awaited or not described.members or not _have_all_joined(facts):
        return None
    sentences = [
        "It is rebalancing (PreparingRebalance), and all its members have joined: none is of the last generation.",
        "So its coordinator waits for a member id that it has given out and that no description shows, unless it has "
        "been waiting for a few seconds only (group.initial.rebalance.delay.ms).",
        _MEANING,
    ]
    return _finding(described, sentences, f"after {duration_text(SESSION_MS)} by default (session.timeout.ms)", options)


def _shown(facts: GroupFacts, options: str) -> Finding:
    described = facts.description
    last_ms = max(pending.until_ms for pending in described.pending)
    names = [
        f"{pending.member_id!r} (client {pending.member_id[:-_UUID_CHARS]!r} on {pending.host.lstrip('/')})"
        for pending in described.pending[:_MOST_NAMED]
    ]
    more = len(described.pending) - len(names)
    sentences = [
        f"It is rebalancing (PreparingRebalance), and its coordinator waits for "
        f"{counted(len(described.pending), 'member id')} that it has given out and that never joined: {joined(names)}"
        f"{f' and {more} more' if more else ''}.",
        f"Until then none of its {counted(len(described.members), 'member')} has a partition. {_MEANING}",
    ]
    if described.awaited:
        sentences.append(f"It also waits for {counted(len(described.awaited), 'member')} to join again.")
    left = f"in {duration_text(max(0, last_ms - facts.now_ms))}, when the session of that id ends"
    return _finding(described, sentences, left, options)


def _finding(described: GroupDescription, sentences: list[str], when: str, options: str) -> Finding:
    return Finding(
        Cause.PENDING_MEMBER,
        Severity.STUCK,
        described.group,
        sentences,
        evidence={"state": described.state, "members": len(described.members), "pending": len(described.pending)},
        no_since="no request tells when a rebalance began",
        affected=sorted({member.client_id for member in described.members}),
        clears=f"It clears by itself {when}.",
        advice="A shorter session.timeout.ms bounds it, and group.instance.id or the consumer protocol avoid it. To "
        "see who has joined:",
        commands=[f"oncelog group describe --members{options} {argument(described.group)}"],
    )


def _have_all_joined(facts: GroupFacts) -> bool:
    generations = [] if facts.history is None else facts.history.generations
    if not generations:
        return False
    earlier = {member.member_id for member in generations[-1].members}
    return all(member.member_id not in earlier for member in facts.description.members)
