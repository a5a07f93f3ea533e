"""The states of a transactional producer, and the verdict on each error code (KIP-98, 360, 447, 890, 939).

A step that ``NEXT`` lacks is refused before anything is changed or sent.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.client.machine.retry import Remedy, remedy


class State(Enum):
    # No producer id; only ``initialize``.
    UNINITIALIZED = "uninitialized"
    # InitProducerId is under way, at first or to raise the epoch after a transaction that went wrong.
    INITIALIZING = "initializing"
    # No transaction; only ``begin``.
    READY = "ready"
    # Records and offsets are taken.
    IN_TRANSACTION = "in a transaction"
    # Everything is flushed and nothing more is taken: only ``commit``, ``abort``, ``complete`` (KIP-939).
    PREPARED = "prepared"
    # EndTxn is under way; the outcome is not known until it is answered, so only ``commit`` again.
    COMMITTING = "committing"
    # EndTxn is under way; only ``abort`` again.
    ABORTING = "aborting"
    # Something failed; only ``abort``, after which the producer is usable again.
    ABORTABLE_ERROR = "to be aborted"
    # Another instance has taken over, or the producer may not go on; a new one is needed.
    FATAL_ERROR = "unusable"


NEXT: Final[dict[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.PREPARED, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset(
        {State.PREPARED, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.PREPARED: frozenset({State.COMMITTING, State.ABORTING, State.FATAL_ERROR}),
    State.COMMITTING: frozenset({State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset({State.FATAL_ERROR}),
}


class Step(Enum):
    """The requests of a transactional producer beside Produce."""

    INIT = "a producer id"
    ADD_PARTITIONS = "partitions of the transaction"
    ADD_OFFSETS = "the group of the transaction"
    COMMIT_OFFSETS = "offsets in the transaction"
    END = "the end of the transaction"


class Verdict(Enum):
    """The consequence of an error code for the producer."""

    DONE = "it was carried out"
    RETRY = "the same request after a pause"
    FIND_COORDINATOR = "look up the coordinator, then the same request"
    ABORT = "the transaction can only be aborted"
    ABORT_AND_BUMP = "as ABORT where the epoch can be raised, otherwise as FATAL"
    FATAL = "the producer cannot be used any more"


_MOVED: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_FORGOTTEN: Final = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_ABORTABLE: Final[dict[Step, tuple[ErrorCode, ...]]] = {
    Step.INIT: (ErrorCode.TRANSACTION_ABORTABLE,),
    Step.ADD_PARTITIONS: (ErrorCode.TRANSACTION_ABORTABLE,),
    Step.ADD_OFFSETS: (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    Step.COMMIT_OFFSETS: (
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    Step.END: (ErrorCode.TRANSACTION_ABORTABLE,),
}
FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
"""Errors that mean a newer instance exists; old coordinators know only the first."""
_PARTITIONS_ARE_FATAL: Final = (
    *FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
)
"""Other errors concern single partitions, and only fail the transaction."""
_PRODUCE_IS_FATAL: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNSUPPORTED_VERSION,
)


def verdict(step: Step, code: int) -> Verdict:
    """The verdict on a coordinator's answer; unknown codes are fatal, as in Apache Kafka's own client."""
    if code == ErrorCode.NONE:
        return Verdict.DONE
    if code in _MOVED or (step is Step.COMMIT_OFFSETS and code == ErrorCode.REQUEST_TIMED_OUT):
        return Verdict.FIND_COORDINATOR
    if code in _ABORTABLE[step]:
        return Verdict.ABORT
    if code in _FORGOTTEN and step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS, Step.END):
        return Verdict.ABORT_AND_BUMP
    if remedy(code) is not Remedy.FAIL:
        return Verdict.RETRY
    return Verdict.ABORT if step is Step.ADD_PARTITIONS and code not in _PARTITIONS_ARE_FATAL else Verdict.FATAL


def produce_verdict(code: int) -> Verdict:
    """The verdict on a batch that failed with ``code``."""
    return Verdict.FATAL if code in _PRODUCE_IS_FATAL else Verdict.ABORT
