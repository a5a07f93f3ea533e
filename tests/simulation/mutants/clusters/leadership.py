"""Bugs of leadership: in-sync sets, elections, resignation, the right to write to the tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oncelog.admin.transactions import recheck as second_look
from oncelog.base.ids import TopicPartition
from oncelog.base.tree import Check, CommitOutcome
from oncelog.core.controller.brokers import registration
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.model import UNKNOWN_BROKER_EPOCH
from oncelog.core.liveness.silence import Silence
from oncelog.core.replicas.leader import LeaderReplicas
from oncelog.handlers.logs import list_offsets
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.controller.duties import ControllerDuties
from oncelog.node.replication import in_sync_sets
from oncelog.node.replication.leadership_check import LeadershipChecker
from oncelog.node.replication.roles import ReplicaRoles
from oncelog.sim.workloads.hangs import HangingTransactions
from tests.simulation.mutants.mutant import Mutant


def _below_epoch_start(right: Any) -> Any:
    def may_join(self: LeaderReplicas, replica: Any) -> bool:
        follower = self._followers.get(replica)
        return follower is not None and replica not in self._maximal() and follower.end >= 0

    return may_join


def _whatever_registration(right: Any) -> Any:
    def may_be_in_sync(image: Any, replica: Any, broker_epoch: int) -> bool:
        return replica in image.brokers

    return may_be_in_sync


def _while_it_stops(right: Any) -> Any:
    def may_be_in_sync(image: Any, replica: Any, broker_epoch: int) -> bool:
        broker = image.brokers.get(replica)
        return broker is not None and broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)

    return may_be_in_sync


def _unnamed_registrations(right: Any) -> Any:
    def change_in_sync(image: Any, partition: TopicPartition, in_sync: Any, leader_epoch: int) -> Any:
        operations = right(image, partition, in_sync, leader_epoch)
        if operations is None:
            return None
        followers = [member for member in in_sync if member != image.partition(partition).leader]
        named = {path(member) for member in followers for path in (layout.broker_path, layout.broker_record_path)}
        return [operation for operation in operations if not (isinstance(operation, Check) and operation.path in named)]

    return change_in_sync


def _read_once(right: Any) -> Any:
    known: dict[Any, tuple[int, frozenset[Any]]] = {}

    def change_in_sync(image: Any, partition: TopicPartition, in_sync: Any, leader_epoch: int) -> Any:
        operations = right(image, partition, in_sync, leader_epoch)
        if operations is None:
            return None
        result, key = image.partition(partition), (image.topics[partition.topic].topic_id, partition, leader_epoch)
        version, proposed = known.get(key, (result.version, frozenset()))
        if frozenset(result.isr) == proposed:
            version = result.version
        known[key] = version, frozenset(in_sync)
        return [*operations[:-1], replace(operations[-1], expected_version=version)]

    return change_in_sync


def _unknown_is_refused(right: Any) -> Any:
    def written(self: MetadataLog, event: Any) -> None:
        if event.outcome is CommitOutcome.UNKNOWN:
            event = replace(event, outcome=CommitOutcome.CONFLICT)
        right(self, event)

    return written


def _by_ids(right: Any) -> Any:
    def follow(self: ControllerDuties, delta: Any, before: Any) -> None:
        known, brokers = before.brokers, delta.image.brokers
        if known.keys() == brokers.keys():
            changed = [broker_id for broker_id, broker in brokers.items() if broker != known[broker_id]]
            if all(brokers[broker_id].epoch != known[broker_id].epoch for broker_id in changed):
                delta = delta._replace(brokers=False)
        right(self, delta, before)

    return follow


def _own_node_refused(right: Any) -> Any:
    def replaced(image: Any, broker: Any) -> Any:
        return right(image, broker._replace(directory_id=""))

    return replaced


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


def _stale_image(right: Any) -> Any:
    def position_at_once(self: LeadershipChecker) -> int | None:
        return None if right(self) is None else self.metadata.position

    return position_at_once


def _believed(right: Any) -> Any:
    def doubts_about(cluster: Any, claims: Any, unanswered: Any) -> Any:
        yield from ()
        return {}

    return doubts_about


def _silence_is_enough(right: Any) -> Any:
    def is_frozen(self: Silence, now_ms: int, limit_ms: int) -> bool:
        return self.silent_ms(now_ms) >= limit_ms

    return is_frozen


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
        "joins-while-it-stops",
        "a follower that is about to stop, or fenced, joins the in-sync set again (KAFKA-14140)",
        in_sync_sets,
        "may_be_in_sync",
        _while_it_stops,
        ("restart", "rolling-restart"),
    ),
    Mutant(
        "joins-unregistered",
        "a change of the in-sync set does not name the registrations of those who join (KAFKA-14617, KIP-903)",
        in_sync_sets,
        "change_in_sync",
        _unnamed_registrations,
        ("tree-slow", "rolling-restart"),
    ),
    Mutant(
        "state-read-once",
        "a leader whose change of the in-sync set met another goes on from the version it knew (KAFKA-2729)",
        in_sync_sets,
        "change_in_sync",
        _read_once,
        ("kill",),
    ),
    Mutant(
        "bounce-unnoticed",
        "the controller does not notice that a broker has registered anew between two looks (KAFKA-7235)",
        ControllerDuties,
        "follow",
        _by_ids,
        ("power-cut",),
    ),
    Mutant(
        "own-node-refused",
        "a broker does not start while the registration of its last life is there (KAFKA-7165)",
        registration,
        "_replaced",
        _own_node_refused,
        ("kill",),
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
        ("replaced-unheard",),
    ),
    Mutant(
        "stale-image-believed",
        "beside a near tree a leader asks its image who leads, whether it is as new as the tree or not",
        LeadershipChecker,
        "position_at_once",
        _stale_image,
        ("replaced-unheard",),
    ),
    Mutant(
        "silence-is-enough",
        "a broker that accepts no connection counts as frozen when it does not answer",
        Silence,
        "is_frozen",
        _silence_is_enough,
        ("broker-isolated",),
    ),
    Mutant(
        "leaders-believed",
        "the tool does not ask all brokers who leads",
        second_look,
        "doubts_about",
        _believed,
        ("replaced-unheard",),
        HangingTransactions,
    ),
)
