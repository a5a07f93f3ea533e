"""Errors of the commit protocol: the query stops, and the text says what was decided and how to go on."""

from __future__ import annotations

from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.register import Listed


class Superseded(SinkError):
    """Another run of the same epoch has begun since: this one stops, having changed nothing."""


class Behind(Superseded):
    """A later epoch than this one was written before: the checkpoint is older than the topic, or a zombie's."""

    def __init__(self, query: str, epoch: int, written: int) -> None:
        self.query, self.epoch, self.written = query, epoch, written
        super().__init__(
            f"epoch {epoch} of query {query} is to be written, but epoch {written} was before: the checkpoint was "
            "restored, rewound or copied, or the query runs twice. With a new checkpoint everything is written as a "
            f"new query's; acceptLoss={written} goes on and writes nothing up to epoch {written}"
        )


class OtherRows(SinkError):
    """An epoch was decided before, with another number of rows than it has now. Nothing was written again."""


class FencedDriver(SinkError):
    """Another driver of the same query is at work: this one stops."""


class NotOpen(SinkError):
    """A transaction that was to be decided is not open any more. Nothing was decided: running the query again is
    safe."""


class LostRows(SinkError):
    """A decided transaction was ended by somebody else, or its rows fell to retention while it was open: they may be
    missing. ``listed`` says which."""

    def __init__(self, epoch: int, listed: tuple[Listed, ...]) -> None:
        self.epoch, self.listed = epoch, listed
        rows = "; ".join(map(str, listed))
        super().__init__(
            f"epoch {epoch} is decided, but these transactions were ended by somebody else, or retention took their "
            f"rows first, so they may be missing: {rows}. Look at the topics; to go on as things are, set the option "
            f"acceptLoss={epoch}"
        )
