"""Bugs of coordinators of consumer groups (KIP-848), most of them once in Apache Kafka. Pure tests with the numbers of
the others are in ``tests/unit/core/groups/consumer``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId
from oncelog.core.groups import commits, consumer_groups
from oncelog.core.groups.commits import Commits
from oncelog.core.groups.consumer import classic_members, heartbeat, reconciliation, records, removal
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer_groups import ConsumerGroups
from oncelog.core.groups.model import CommitReply
from oncelog.core.groups.modern.members import Partitions
from oncelog.records.internal.consumer_group_records import CurrentMemberKey, MemberKey
from oncelog.sim.workloads.group_churn import GroupChurn
from tests.simulation.mutants.mutant import Mutant


def _owners_unchecked(right: Any) -> Any:
    def owners_of(self: ConsumerGroup, topic: Any) -> dict[int, MemberId]:
        return {}

    return owners_of


def _silence_releases(right: Any) -> Any:
    def owns_any(owned: Partitions | None, partitions: Any) -> bool:
        return owned is not None and bool(right(owned, partitions))

    return owns_any


def _release_lost(right: Any) -> Any:
    def release(self: ConsumerGroup, member: Any) -> None:
        if not member.pending_revocation:
            right(self, member)

    return release


def _members_left_behind(right: Any) -> Any:
    def group_tombstones(group: Any, members: Any = None) -> Any:
        return [record for record in right(group, members) if not isinstance(record[0], MemberKey)]

    return group_tombstones


def _no_timers_after_load(right: Any) -> Any:
    def start_timers(self: ConsumerGroups, group: ConsumerGroup, now_ms: int) -> None:
        """A member that is gone stays for ever."""

    return start_timers


def _epochs_unchecked(right: Any) -> Any:
    def check_commit(*request: Any, **options: Any) -> Any:
        return lambda *partition: ErrorCode.NONE

    return check_commit


def _owner_lost(right: Any) -> Any:
    def assign(self: ConsumerGroup, member_id: Any, value: Any) -> None:
        before = self.members.get(member_id)
        right(self, member_id, value)
        for topic, partitions in ({} if before is None else before.pending_revocation).items():
            # What the member was giving up is released after it has got its new share.
            for partition in partitions.keys() & value.assigned.get(topic, {}).keys():
                del self._owners[topic][partition]

    return assign


def _removal_unnoticed(right: Any) -> Any:
    def epoch(group_id: Any, number: int, metadata_hash: int) -> Any:
        return right.epoch(group_id, number - 1, metadata_hash)

    return SimpleNamespace(**{**vars(right), "epoch": epoch})


def _refused_written(right: Any) -> Any:
    def commit(self: Commits, request: Any, now_ms: int) -> Any:
        decision = right(self, request, now_ms)
        reply = decision.reply
        if isinstance(reply, CommitReply) and reply.error_code:
            decision.records = self._write(request.group_id, request.partitions, now_ms).records
        return decision

    return commit


def _old_epochs_everywhere(right: Any) -> Any:
    def check_commit(*request: Any, **options: Any) -> Any:
        right(*request, **options)
        return lambda *partition: ErrorCode.NONE

    return check_commit


def _epoch_rises_while_delayed(right: Any) -> Any:
    def raise_epoch(update: Any, decision: Any, *, bump: bool) -> int:
        return int(right(update, decision, bump=bump or update.group.epoch > update.group.target_epoch))

    return raise_epoch


def _rejoin_before_target(right: Any) -> Any:
    def decide_classic_heartbeat(group: ConsumerGroup, request: Any) -> Any:
        decision = right(group, request)
        if group.epoch > group.members[request.member_id].epoch:
            decision.answer = ErrorCode.REBALANCE_IN_PROGRESS
        return decision

    return decide_classic_heartbeat


def _pattern_stays(right: Any) -> Any:
    def updated(member: Any, *arguments: Any) -> Any:
        return right(member, *arguments)._replace(regex=member.regex)

    return updated


def _tombstone_of_the_unknown(right: Any) -> Any:
    def apply(self: ConsumerGroup, key: Any, value: Any) -> None:
        if value is None and isinstance(key, MemberKey | CurrentMemberKey) and key.member not in self.members:
            raise ValueError(f"a tombstone of {key}, which is unknown")
        right(self, key, value)

    return apply


def _current_epoch_only(right: Any) -> Any:
    def check_commit(group: ConsumerGroup, member_id: Any, instance_id: Any, epoch: int, **options: Any) -> Any:
        check = right(group, member_id, instance_id, epoch, **options)
        member = group.members.get(member_id)
        if member is None or epoch == member.epoch:
            return check
        return lambda *partition: ErrorCode.STALE_MEMBER_EPOCH

    return check_commit


CONSUMER_GROUPS: Final = (
    Mutant(
        "owners-unchecked",
        "a partition is assigned although another member still has it",
        ConsumerGroup,
        "owners_of",
        _owners_unchecked,
    ),
    Mutant(
        "silence-releases",
        "a heartbeat without a list of owned partitions counts as a release",
        reconciliation,
        "_owns_any",
        _silence_releases,
    ),
    Mutant(
        "release-lost",
        "a partition that a member has given up stays its own (KAFKA-19862)",
        ConsumerGroup,
        "_release",
        _release_lost,
    ),
    Mutant(
        "members-left-behind",
        "a group that becomes classic leaves its members' records behind (KAFKA-20254, KAFKA-21102)",
        records,
        "group_tombstones",
        _members_left_behind,
    ),
    Mutant(
        "no-timers-after-load",
        "a loaded group has no timers",
        ConsumerGroups,
        "start_timers",
        _no_timers_after_load,
    ),
    Mutant(
        "epochs-unchecked",
        "commits of any member epoch are accepted",
        commits,
        "check_commit",
        _epochs_unchecked,
    ),
    Mutant(
        "owner-lost",
        "a partition that goes back to the member that was giving it up has no owner (KAFKA-16147)",
        ConsumerGroup,
        "_assign",
        _owner_lost,
        workload=GroupChurn,
    ),
    Mutant(
        "removal-unnoticed",
        "the group's epoch does not rise when a member leaves or is removed",
        removal,
        "records",
        _removal_unnoticed,
        workload=GroupChurn,
    ),
    Mutant(
        "refused-commit-written",
        "a refused offset commit is written all the same",
        Commits,
        "commit",
        _refused_written,
        workload=GroupChurn,
    ),
    Mutant(
        "old-epochs-everywhere",
        "a commit of an earlier epoch is accepted for the partitions of any owner",
        commits,
        "check_commit",
        _old_epochs_everywhere,
        workload=GroupChurn,
    ),
    Mutant(
        "current-epoch-only",
        "a commit of an earlier epoch is refused, although the partition is the member's still (KAFKA-20066)",
        commits,
        "check_commit",
        _current_epoch_only,
        workload=GroupChurn,
    ),
    Mutant(
        "epoch-rises-while-delayed",
        "the group's epoch rises at each heartbeat until the next target assignment (KAFKA-20291)",
        heartbeat,
        "raise_epoch",
        _epoch_rises_while_delayed,
        workload=GroupChurn,
    ),
    Mutant(
        "rejoin-before-target",
        "classic members rejoin before there is a target assignment (KAFKA-20272)",
        consumer_groups,
        "decide_classic_heartbeat",
        _rejoin_before_target,
        workload=GroupChurn,
    ),
    Mutant(
        "pattern-stays",
        "a classic member keeps the regular expression of its predecessor (KAFKA-19720)",
        classic_members,
        "_updated",
        _pattern_stays,
        workload=GroupChurn,
    ),
    Mutant(
        "tombstones-in-order",
        "a coordinator fails to load a tombstone whose record is gone (KAFKA-17306)",
        ConsumerGroup,
        "apply",
        _tombstone_of_the_unknown,
        workload=GroupChurn,
    ),
)
