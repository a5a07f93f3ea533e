"""One transaction of a program, from begin to end, with all that is known of it in the history."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping

from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import TransactionFailed
from oncelog.sim.checkers.history import GroupPartition, Outcome, Transaction
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.workload import WorkloadContext

Fill = Callable[[Writes], Awaitable[None]]


async def one_transaction(
    context: WorkloadContext,
    host: ClientHost,
    producer: AsyncTransactionalProducer,
    fill: Fill,
    *,
    entropy: random.Random,
    aborts: float,
    offsets: Mapping[GroupPartition, int] | None = None,
) -> bool:
    """Begin, let ``fill`` send, flush, and commit, or abort by chance. Whether it was committed.

    ``offsets``: what ``fill`` commits of groups. What can be aborted is; anything else is raised.
    """
    kernel = context.world.kernel
    writes, outcome, ending_at = Writes(kernel), Outcome.ABORTED, None
    producer.on_outcome = writes.take
    name = f"{host.name}@{kernel.now_us}"
    try:
        producer.begin()
        await fill(writes)
        await producer.flush()
        if entropy.random() < aborts:
            await producer.abort()
        else:
            ending_at, outcome = kernel.now_us, Outcome.UNKNOWN
            await producer.commit()
            outcome = Outcome.COMMITTED
    except TransactionFailed:
        await producer.abort()
    finally:
        ended = Transaction(name, host.name, writes.all(), outcome, ending_at, offsets or {})
        context.recorder.transactions.append(ended)
    return outcome is Outcome.COMMITTED
