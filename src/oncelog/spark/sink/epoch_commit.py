"""Ends an epoch in the driver: runs the protocol's ``commit`` and ``abort`` over a client, with fault points."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from oncelog.spark.sink.fault_points import reach
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.sink_client import open_client
from oncelog.spark.sink.two_phase import protocol
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations
from oncelog.spark.sink.two_phase.operations import End, Operation, Stage, Write
from oncelog.spark.sink.two_phase.register import UNKNOWN, Attempt, Listed, RegisterState

LOG: Final = logging.getLogger("oncelog.spark.sink")


def commit(
    options: SinkOptions,
    attempt: Attempt,
    listed: tuple[Listed, ...],
    *,
    rows: int = UNKNOWN,
    forget: bool = False,
) -> None:
    """Decide, commit and sweep; ``forget`` if the query cannot run again. Raises SinkError, ClientError."""
    with open_client(options) as client, ClusterOperations(client, attempt.query) as cluster:
        program = protocol.commit(attempt, listed, rows=rows, accepted=options.accept_loss)
        committed = cluster.run(program, _fault_points(options))
        # The rows were decided by an earlier run of the same job.
        if rows > 0 and not committed:
            message = "%s (epoch %d) was written before: its %d rows were read, but not written again"
            LOG.warning(message, attempt.query, attempt.epoch, rows)
        if forget:
            cluster.forget()
    reach(options.points, "after-commit")


def abort(options: SinkOptions, attempt: Attempt) -> None:
    with open_client(options) as client, ClusterOperations(client, attempt.query) as cluster:
        cluster.run(protocol.abort(attempt))


def _fault_points(options: SinkOptions) -> Callable[[Operation], None]:
    ends = 0

    def reach_point(operation: Operation) -> None:
        nonlocal ends
        match operation:
            case Write(register) if register.state is RegisterState.DECIDED:
                reach(options.points, "before-decision")
            case End(_, True):
                reach(options.points, "after-decision" if not ends else "between-ends")
                ends += 1
            case Stage():
                reach(options.points, "before-done")

    return reach_point
