"""Errors of the commit protocol: the query stops, and the text tells what was decided and how to continue."""

from __future__ import annotations

from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.register import Listed


class Superseded(SinkError):
    """Another run of the same epoch has begun. This run stops without having changed anything."""


class Behind(Superseded):
    """A later epoch was already written: the checkpoint is older than the topic, or belongs to a zombie."""

    def __init__(self, query: str, epoch: int, written: int) -> None:
        self.query, self.epoch, self.written = query, epoch, written
        super().__init__(
            f"epoch {epoch} of query {query} cannot be written, because epoch {written} already was: the checkpoint "
            "was restored, rewound or copied, or the query runs twice. A new checkpoint writes all rows again; "
            f"acceptLoss={written} continues and writes nothing up to epoch {written}"
        )


class OtherRows(SinkError):
    """An epoch was decided before with another number of rows than it has now. Nothing was written again."""


class FencedDriver(SinkError):
    """Another driver of the same query is running. This one stops."""


class NotOpen(SinkError):
    """A transaction to be decided is no longer open. Nothing was decided: the query can safely run again."""


class LostRows(SinkError):
    """Rows of a decided transaction may be missing: another client ended it, or retention removed them while it was
    open."""

    def __init__(self, epoch: int, listed: tuple[Listed, ...]) -> None:
        self.epoch, self.listed = epoch, listed
        rows = "; ".join(map(str, listed))
        super().__init__(
            f"epoch {epoch} is decided, but another client ended these transactions, or retention removed their rows "
            f"first, so rows may be missing: {rows}. Check the topics; to continue anyway, set the option "
            f"acceptLoss={epoch}"
        )
