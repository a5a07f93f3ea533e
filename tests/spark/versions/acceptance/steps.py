"""All steps by their names, in the order in which they are taken, with the reason why one is not for some versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.spark.versions.acceptance import pipelines, reading, tables, writing
from tests.spark.versions.acceptance.killed import topic_to_topic
from tests.spark.versions.acceptance.user import User


class Step(NamedTuple):
    """Something that a user does, and what has to be there then; raises whatever is wrong."""

    take: Callable[[User], None]
    why_not: Callable[[User], str | None] = lambda user: None
    """The reason why it cannot be taken; None: it can."""


def _of_tables(kind: str, make: Callable[[str], Callable[[User], None]]) -> Step:
    return Step(make(kind), lambda user: tables.why_not(kind))


KINDS: Final = (tables.PARQUET, "delta", "iceberg")
STEPS: Final = {
    "batch": Step(reading.batch),
    "bounds": Step(reading.bounds),
    "values": Step(reading.values),
    "limits": Step(reading.limits),
    "available-now": Step(reading.available_now),
    "available-now-killed": Step(reading.available_now_killed),
    "batch-sink-2pc": Step(writing.batch_two_phase),
    "batch-sink-ledger": Step(writing.batch_ledger),
    "stream-sink-2pc": Step(writing.stream_two_phase),
    "stream-sink-ledger": Step(writing.stream_ledger),
    "transactions": Step(writing.transactions),
    **{f"load-{kind}": _of_tables(kind, tables.load) for kind in KINDS},
    **{f"stream-{kind}": _of_tables(kind, tables.stream) for kind in KINDS},
    "export": Step(tables.export),
    **{
        f"killed-{trigger}-{mode}": Step(topic_to_topic(mode, trigger))
        for trigger in ("available-now", "processing-time")
        for mode in ("2pc", "ledger")
    },
    "pipeline": Step(pipelines.three_runs, pipelines.why_not),
}
