"""Bugs of leadership: in-sync sets, elections, resignation, the right to write to the tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oncelog.admin.transactions import second_look
from oncelog.base.ids import TopicPartition
from oncelog.base.tree import CommitOutcome
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.handlers import list_offsets
from oncelog.node.metadata_log import MetadataLog
from oncelog.node.partitions.roles import ReplicaRoles
from oncelog.node.replication import in_sync_sets
from oncelog.sim.mutants.mutant import Mutant

# The in-sync set


def _below_epoch_start(right: Any) -> Any:
    def may_join(self: LeaderReplicas, replica: Any) -> bool:
        follower = self._followers.get(replica)
        return follower is not None and replica not in self._maximal() and follower.end >= 0

    return may_join


def _whatever_registration(right: Any) -> Any:
    def may_be_in_sync(image: Any, replica: Any, broker_epoch: int) -> bool:
        return replica in image.brokers

    return may_be_in_sync


def _unknown_is_refused(right: Any) -> Any:
    def written(self: MetadataLog, event: Any) -> None:
        if event.outcome is CommitOutcome.UNKNOWN:
            event = replace(event, outcome=CommitOutcome.CONFLICT)
        right(self, event)

    return written


# Leadership


def _same_epoch_again(right: Any) -> Any:
    def leads(self: ReplicaRoles, image: Any) -> bool:
        return bool(image.leader == self._metadata.broker_id)

    return leads


def _half_resignation(right: Any) -> Any:
    def resign(self: ReplicaRoles, partition: TopicPartition) -> None:
        self._in_sync_sets.resign(partition)

    return resign


def _unconfirmed(right: Any) -> Any:
    def until_confirmed(answers: Any, asked_ms: int, context: Any) -> Any:
        yield from ()

    return until_confirmed


def _believed(right: Any) -> Any:
    def doubts_about(client: Any, claims: Any, unanswered: Any) -> Any:
        return {}

    return doubts_about


LEADERSHIP: Final = (
    Mutant(
        "joins-below-epoch-start",
        "a follower joins the in-sync set wherever it is (KAFKA-7128)",
        LeaderReplicas,
        "may_join",
        _below_epoch_start,
        ("killed-ahead", "joiner-frozen"),
    ),
    Mutant(
        "stale-broker-epoch-joins",
        "a follower joins by a fetch of an earlier registration (KAFKA-14139)",
        in_sync_sets,
        "may_be_in_sync",
        _whatever_registration,
        ("lose-disk-unheard",),
    ),
    Mutant(
        "unknown-is-refused",
        "a commit to the tree whose outcome is not known counts as refused",
        MetadataLog,
        "written",
        _unknown_is_refused,
        ("join-unheard",),
    ),
    Mutant(
        "leads-again-in-its-epoch",
        "a leader that was restarted leads on in the epoch of its last life",
        ReplicaRoles,
        "leads",
        _same_epoch_again,
        ("power-cut", "power-cut-at-sync"),
    ),
    Mutant(
        "half-resignation",
        "a broker that does not lead a partition any more goes on answering for it (KAFKA-9307)",
        ReplicaRoles,
        "_resign",
        _half_resignation,
    ),
    Mutant(
        "ends-unconfirmed",
        "a leader tells where a log ends without asking whether another leads by now",
        list_offsets,
        "until_confirmed",
        _unconfirmed,
        ("tree-isolated",),
    ),
    Mutant(
        "leaders-believed",
        "the tool does not ask all brokers who leads",
        second_look,
        "doubts_about",
        _believed,
        ("tree-isolated",),
    ),
)
