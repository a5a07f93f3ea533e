"""The outcome of a request to a consumer group, or of a timer: an answer, records, and changes of timers.

A decision changes nothing. The shard appends its records as one batch, applies each, and then carries out the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from oncelog.base.ids import MemberId
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import Epochs
from oncelog.core.groups.consumer.records import AnyRecord
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.model import JoinReply, SyncReply
from oncelog.core.groups.modern.members import MemberState

AnswerT = TypeVar("AnswerT")


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat; ``assignment`` is None where it is as the member knows it."""

    member_id: MemberId
    epoch: int
    assignment: Epochs | None = None


class MemberTimer(Enum):
    """The timers of a member. Each removes the member when it expires."""

    SESSION = "the member sent no heartbeat"
    REBALANCE = "the member did not give up partitions within its rebalance time-out"
    JOIN = "the classic member did not rejoin within its rebalance time-out"
    SYNC = "the classic member joined, but did not fetch its assignment within its rebalance time-out"


class TimerChange(NamedTuple):
    """A timer to restart; ``timeout_ms`` None cancels it."""

    member_id: MemberId
    timer: MemberTimer
    timeout_ms: int | None = None
    keeps_running: bool = False
    """A timer that runs already keeps its deadline."""


class Downgrade(NamedTuple):
    """The classic group that a consumer group becomes with the decision's records."""

    group: ClassicGroup
    """Stable, with the protocols that its members offer: more than its record holds. It replaces the applied group,
    and each member's session restarts.
    """
    rebalances: bool
    """True if its members have to rejoin at once: their assignment is not the newest."""


@dataclass(slots=True)
class ConsumerDecision(Generic[AnswerT]):
    """A decision. Whatever else it holds takes effect after its records are applied."""

    answer: AnswerT
    records: list[AnyRecord] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    to_resolve: frozenset[str] = frozenset()
    """Expressions to resolve off the loop; ``decide_resolution`` takes the result."""
    released: list[tuple[int, JoinReply | SyncReply]] = field(default_factory=list)
    """Replies to requests parked in a classic group that this decision upgrades, by token."""
    downgrade: Downgrade | None = None

    def start(self, member_id: MemberId, timer: MemberTimer, timeout_ms: int, *, keeps_running: bool = False) -> None:
        self.timers.append(TimerChange(member_id, timer, timeout_ms, keeps_running))

    def cancel(self, member_id: MemberId, *timers: MemberTimer) -> None:
        """Cancel some of a member's timers, or all."""
        self.timers += (TimerChange(member_id, timer) for timer in timers or MemberTimer)


def timers_after_load(group: ConsumerGroup, limits: GroupLimits) -> list[TimerChange]:
    """The timers of all members when a coordinator starts to serve a group."""
    timers = []
    for member in group.members.values():
        # Apache Kafka gives classic members the new protocol's time-out, and could fence one that chose a longer one.
        timeout_ms = limits.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        timers.append(TimerChange(member.member_id, MemberTimer.SESSION, timeout_ms))
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            timers.append(TimerChange(member.member_id, MemberTimer.REBALANCE, member.rebalance_timeout_ms))
    return timers
