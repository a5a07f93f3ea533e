"""The bugs that every check of exactly-once must find: they are what goes wrong in systems like this."""

from __future__ import annotations

from typing import Any, Final

from oncelog.core.producers.entry import BatchMetadata
from oncelog.core.producers.state import ProducerState
from oncelog.core.transactions import transitions
from oncelog.core.transactions.soft_state import Parking
from oncelog.node.coordinators import markers
from oncelog.node.logs.group_commit import GroupCommit
from tests.simulation.mutants.mutant import Mutant, every


def _skip_marker(right: Any) -> Any:
    now = every(7)

    def append_marker(log: Any, marker: Any, leader_epoch: Any, now_ms: int) -> Any:
        if now():
            return log.log_end_offset
        return right(log, marker, leader_epoch, now_ms)

    return append_marker


def _acknowledge_before_sync(right: Any) -> Any:
    def appended(self: GroupCommit, log: Any) -> None:
        right(self, log)
        self._advance(log, log.log_end_offset)

    return appended


def _reuse_epoch(right: Any) -> Any:
    now = every(3)

    def initialise(transaction: Any, identity: Any, last: Any, timeout_ms: int, now_ms: int) -> Any:
        if now() and identity.producer_epoch > 0:
            identity = identity._replace(producer_epoch=identity.producer_epoch - 1)
        return right(transaction, identity, last, timeout_ms, now_ms)

    return initialise


def _new_offset_for_duplicate(right: Any) -> Any:
    def duplicate(self: ProducerState, header: Any) -> BatchMetadata | None:
        result: BatchMetadata | None = right(self, header)
        if result is None:
            return None
        return result._replace(last_offset=self.end_offset + result.offset_delta)

    return duplicate


def _forget_parked(right: Any) -> Any:
    now = every(5)

    def make_ready(self: Parking, transactional_id: Any) -> None:
        if transactional_id in self._parked and now():
            for token in list(self._parked[transactional_id]):
                self.remove(token)
            return
        right(self, transactional_id)

    return make_ready


REQUIRED: Final = (
    Mutant(
        "skip-marker",
        "a marker is not written to one partition now and then",
        markers,
        "append_marker",
        _skip_marker,
    ),
    Mutant(
        "acknowledge-before-sync",
        "records are acknowledged and readable before they are on disk",
        GroupCommit,
        "appended",
        _acknowledge_before_sync,
    ),
    Mutant(
        "reuse-epoch",
        "a new producer instance gets an epoch that was given before",
        transitions,
        "initialise",
        _reuse_epoch,
    ),
    Mutant(
        "new-offset-for-duplicate",
        "a repeated batch is answered with an offset where it is not",
        ProducerState,
        "duplicate",
        _new_offset_for_duplicate,
    ),
    Mutant(
        "forget-parked",
        "a request that waits for a transaction to complete is never released",
        Parking,
        "make_ready",
        _forget_parked,
    ),
)
