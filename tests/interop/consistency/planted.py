"""`oncelog` with a fault planted in it: `python -m tests.interop.consistency.planted FAULT serve …`.

What the checker has to find. A proof that never fails proves nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.cli.main import invoke
from oncelog.core.groups import commits
from oncelog.core.groups.consumer.offset_checks import PartitionCheck
from oncelog.core.transactions import decisions
from oncelog.core.transactions.transitions import Transaction
from oncelog.node.coordinators.markers import MarkerSender, MarkerToSend
from oncelog.storage.log import append as log_append
from oncelog.storage.log.partition_log import PartitionLog
from tests.interop.consistency.copying_client import COPY

_DIES_AT_BATCH: Final = 40
_UNTIL_ANSWERED_S: Final = 0.05
_KILLED: Final = 137


def skip_a_marker() -> None:
    """One partition's markers are reported as written, and are not."""
    send = MarkerSender._send

    def skips(self: MarkerSender, sending: MarkerToSend) -> None:
        if sending.partition == (COPY, 2):
            self._done(sending)
        else:
            send(self, sending)

    MarkerSender._send = skips  # type: ignore[method-assign]  # the fault


def answer_before_append() -> None:
    """A batch is acknowledged, and the broker dies before it is written."""
    write = log_append._write
    seen = 0

    def forgets(log: PartitionLog, *arguments: Any) -> None:
        nonlocal seen
        seen += log.partition.topic == COPY
        if seen == _DIES_AT_BATCH:
            seen += 1
            asyncio.get_running_loop().call_later(_UNTIL_ANSWERED_S, os._exit, _KILLED)
        else:
            write(log, *arguments)

    log_append._write = forgets  # type: ignore[assignment]  # the fault


def reuse_an_epoch() -> None:
    """A new instance is given the epoch of the one before it, which so is not fenced."""
    fence = decisions.fence

    def ends_as_it_is(transaction: Transaction, *told: Any) -> tuple[Transaction, ...]:
        return tuple(item._replace(identity=transaction.identity) for item in fence(transaction, *told))

    decisions._raised = lambda current, producer_id: current
    decisions.fence = ends_as_it_is  # type: ignore[assignment]  # the fault


def ignore_the_generation() -> None:
    """A member that was thrown out of its group still commits offsets with its transaction (KIP-447), whichever
    protocol the group is of."""
    check = commits.check_commit

    def accepts(*arguments: Any, is_transactional: bool = False, **others: Any) -> PartitionCheck:
        return (lambda *_: ErrorCode.NONE) if is_transactional else check(*arguments, **others)

    commits._transactional_refusal = lambda group, request: ErrorCode.NONE
    commits.check_commit = accepts


FAULTS: Final[dict[str, Callable[[], None]]] = {
    "skip-a-marker": skip_a_marker,
    "answer-before-append": answer_before_append,
    "reuse-an-epoch": reuse_an_epoch,
    "ignore-the-generation": ignore_the_generation,
}


def command(fault: str) -> list[str]:
    """The program to use instead of `oncelog`."""
    return [sys.executable, "-m", "tests.interop.consistency.planted", fault]


def main() -> int:
    """Plant, and serve."""
    FAULTS[sys.argv[1]]()
    return invoke(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
