"""Shared by the handlers that change metadata: decide, commit, decide again on a conflict. Not an API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.tree import CommitOutcome
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.handlers.broker.waits import CommitMetadata, NextSlice, Steps

T = TypeVar("T")
Item = TypeVar("Item")

ATTEMPTS: Final = 50
"""Each conflict means that another request's change was committed; more in a row than this is not going to end."""

TOPICS_PER_COMMIT: Final = 1000
"""The most topics in one commit; of large ones there are fewer."""

CONTENDED: Final = Refusal(ErrorCode.REQUEST_TIMED_OUT, "Other changes kept coming in between; try again.")

UNAVAILABLE: Final = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The cluster's metadata cannot be changed now; try again.")

TIMEOUT_NOT_POSITIVE: Final = Refusal(ErrorCode.REQUEST_TIMED_OUT)
"""The answer to every item of a request that gives no time at all: nothing is done."""

_NOT_REFUSED: Final = Refusal(ErrorCode.NONE)

CLUSTER_DENIED: Final = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def committed(decide: Callable[[], Decided[T]], *, dry_run: bool = False) -> Steps[Sequence[T | Refusal]]:
    """The outcomes of ``decide``, called with the newest image until its operations are committed. Items are refused
    with ``UNAVAILABLE`` when the tree cannot be changed.

    ``dry_run``: decided, not committed. After too many conflicts every item is refused with ``CONTENDED``.
    """
    decided = decide()
    for _ in range(ATTEMPTS):
        if dry_run or not decided.operations:
            return decided.outcomes
        outcome: CommitOutcome = yield CommitMetadata(decided.operations)
        if outcome is CommitOutcome.COMMITTED:
            return decided.outcomes
        if outcome is CommitOutcome.UNAVAILABLE:
            return [UNAVAILABLE for _ in decided.outcomes]
        decided = decide()
    return [CONTENDED for _ in decided.outcomes]


def committed_in_batches(
    batches: Iterable[Sequence[Item]], decide: Callable[[Sequence[Item]], Decided[T]], *, dry_run: bool = False
) -> Steps[Sequence[T | Refusal]]:
    """The outcomes of ``decide`` for each batch of items, one commit after the other; other requests have their turn in
    between. Each is decided on the image that the one before it leaves."""
    outcomes: list[T | Refusal] = []
    for number, batch in enumerate(batches):
        if number:
            yield NextSlice()
        outcomes += yield from committed(partial(decide, batch), dry_run=dry_run)
    return outcomes


class Answer(Protocol):
    """An answer, or a part of one, that has an error and a message."""

    error_code: int
    error_message: str | None


A = TypeVar("A", bound=Answer)


def with_outcome(answer: A, outcome: object) -> A:
    """``answer`` with the error and the message of an outcome: those of a refusal, none of anything else."""
    refusal = outcome if isinstance(outcome, Refusal) else _NOT_REFUSED
    answer.error_code, answer.error_message = refusal.error_code, refusal.message
    return answer
