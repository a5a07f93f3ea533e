"""Metadata changes of handlers: decide, commit, and decide again after a conflict. Not an API."""

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
"""Each conflict means that another request's change was committed; more in a row than this will not end."""

TOPICS_PER_COMMIT: Final = 1000
"""The most topics in one commit; fewer if they are large."""

CONTENDED: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT, "The change conflicted with other metadata changes too often; try again."
)

UNAVAILABLE: Final = Refusal(ErrorCode.REQUEST_TIMED_OUT, "The cluster's metadata cannot be changed now; try again.")

TIMEOUT_NOT_POSITIVE: Final = Refusal(ErrorCode.REQUEST_TIMED_OUT)
"""The answer to each item of a request whose timeout is not above 0: nothing is done."""

_NOT_REFUSED: Final = Refusal(ErrorCode.NONE)

CLUSTER_DENIED: Final = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def committed(decide: Callable[[], Decided[T]], *, dry_run: bool = False) -> Steps[Sequence[T | Refusal]]:
    """Call ``decide`` with the newest image until its operations are committed; with ``dry_run`` only decide. Returns
    its outcomes, all refused with ``UNAVAILABLE`` if the tree cannot be changed, or ``CONTENDED`` after too many
    conflicts.
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
    """Decide and commit each batch in turn, on the image that the one before left. Returns all outcomes."""
    outcomes: list[T | Refusal] = []
    for number, batch in enumerate(batches):
        if number:
            # Other requests run in between.
            yield NextSlice()
        outcomes += yield from committed(partial(decide, batch), dry_run=dry_run)
    return outcomes


class Answer(Protocol):
    """A response, or a part of one, with an error code and a message."""

    error_code: int
    error_message: str | None


A = TypeVar("A", bound=Answer)


def with_outcome(answer: A, outcome: object) -> A:
    """Set the error and message of ``answer``: those of a refusal, none for any other outcome."""
    refusal = outcome if isinstance(outcome, Refusal) else _NOT_REFUSED
    answer.error_code, answer.error_message = refusal.error_code, refusal.message
    return answer
