"""Bugs of coordinators in clusters: markers to other brokers, loading, what a replaced one sends."""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.core.producers import state
from oncelog.core.producers.checks import ProducerRefusal
from oncelog.handlers.groups import offset_fetch
from oncelog.node.brokers.requests.batched import MarkerRequests
from oncelog.node.brokers.requests.listings import AwaitedMarkers
from oncelog.node.coordinators.runner import Coordinators
from oncelog.sim.workloads.old_copiers import OldCopiers
from tests.simulation.mutants.mutant import Mutant


def _unanswered_is_written(right: Any) -> Any:
    def answered(self: MarkerRequests, broker_id: Any, sent: Any, response: Any) -> None:
        if response is not None:
            right(self, broker_id, sent, response)
            return
        self._under_way.discard(broker_id)
        for queued in sent:
            queued.answer(ErrorCode.NONE)

    return answered


def _remote_decisions_passed_over(right: Any) -> Any:
    def send(self: AwaitedMarkers, broker_id: Any, message: Any, answered: Any) -> Any:
        answered(None)
        return lambda: None

    return send


def _retry_refused(right: Any) -> Any:
    def check_marker(entry: Any, epoch: int, coordinator_epoch: int, transaction_version: int, offset: int) -> None:
        right(entry, epoch, coordinator_epoch, transaction_version, offset)
        is_written = entry.transaction_first_offset is None and epoch == entry.epoch
        if is_written and coordinator_epoch == entry.coordinator_epoch:
            raise ProducerRefusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "the marker is there")

    return check_marker


def _zombie_marker_written(right: Any) -> Any:
    def check_marker(entry: Any, epoch: int, coordinator_epoch: int, transaction_version: int, offset: int) -> None:
        right(entry, epoch, max(coordinator_epoch, entry.coordinator_epoch), transaction_version, offset)

    return check_marker


def _loaded_again(right: Any) -> Any:
    def follow(self: Any, topic: Any) -> None:
        for index, partition in enumerate(() if topic is None else topic.partitions):
            hosted = self._hosted.get(index)
            if hosted is None or not hosted.shard.is_loaded or not self._partitions.roles.leads(partition):
                continue
            self._lead(index, partition.leader_epoch)
        right(self, topic)

    return follow


def _unconfirmed(right: Any) -> Any:
    def until_confirmed(partitions: Any, deadline_ms: int) -> Any:
        return right((), deadline_ms)

    return until_confirmed


COORDINATORS: Final = (
    Mutant(
        "unanswered-marker-counts",
        "a marker to another broker counts as written when no answer comes",
        MarkerRequests,
        "_answered",
        _unanswered_is_written,
        ("killed-before-marker",),
    ),
    Mutant(
        "remote-decisions-passed-over",
        "a group coordinator does not ask other brokers which transactions are decided and lack their markers",
        AwaitedMarkers,
        "send",
        _remote_decisions_passed_over,
        ("frozen-at-end-txn",),
    ),
    Mutant(
        "marker-retry-refused",
        "a leader refuses a marker that it has, when the same coordinator sends it again (KAFKA-19999)",
        state,
        "check_marker",
        _retry_refused,
        ("broker-cut", "broker-isolated"),
    ),
    Mutant(
        "zombie-marker-written",
        "a leader writes a marker of a coordinator that was replaced by one that has written there (KIP-98)",
        state,
        "check_marker",
        _zombie_marker_written,
        ("frozen-at-end-txn",),
    ),
    Mutant(
        "loaded-again",
        "a coordinator that is loaded is loaded again at each change in the cluster, in the same epoch (KAFKA-15468)",
        Coordinators,
        "follow",
        _loaded_again,
    ),
    Mutant(
        "offsets-unconfirmed",
        "a group coordinator tells committed offsets without asking whether another coordinates the group by now",
        offset_fetch,
        "UntilConfirmed",
        _unconfirmed,
        ("replaced-unheard",),
        OldCopiers,
    ),
)
