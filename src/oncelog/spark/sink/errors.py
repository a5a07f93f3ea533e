"""What the sink may fail with; each text is one line for the person who runs the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.spark.errors import SparkSourceError

if TYPE_CHECKING:
    from oncelog.spark.sink.register import Listed


class SinkError(SparkSourceError):
    """Anything the sink refuses to do."""


class Superseded(SinkError):
    """Another run of the same epoch has begun since: this one stops, having changed nothing."""


class FencedDriver(SinkError):
    """Another driver of the same query is at work: this one stops."""


class NotOpen(SinkError):
    """A transaction that was to be decided is not open any more. Nothing was decided: running the query again is
    safe."""


class LostRows(SinkError):
    """A decided transaction was ended by somebody else: its rows may be missing. ``listed`` says which."""

    def __init__(self, epoch: int, listed: tuple[Listed, ...]) -> None:
        self.epoch, self.listed = epoch, listed
        rows = "; ".join(map(str, listed))
        super().__init__(
            f"epoch {epoch} is decided, but these transactions were ended by somebody else, so their rows may be "
            f"missing: {rows}. Look at the topics; to go on as things are, set the option acceptLoss={epoch}"
        )

    def __reduce__(self) -> tuple[type[LostRows], tuple[int, tuple[Listed, ...]]]:
        """Python workers send their errors pickled."""
        return type(self), (self.epoch, self.listed)
