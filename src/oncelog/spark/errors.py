"""Errors of reading and loading topics: one line each, for the person who runs the query."""

from __future__ import annotations

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError


class SparkSourceError(ClientError):
    """Anything the source or a load refuses to do; the text is one line."""


class OptionError(SparkSourceError, ValueError):
    """An option is missing, unknown in its value, or contradicts another."""


class ServerLacksOncelog(SparkSourceError):
    """The Python of a Spark server or of its executors cannot import ``module``: oncelog, or what it needs."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(
            f"the Spark that runs this has no Python module {module!r}: install oncelog, in this version, for the "
            "Python of the server and of its executors (docs/deploy-spark.md)"
        )

    def __reduce__(self) -> tuple[type[ServerLacksOncelog], tuple[str]]:
        """Executors send their errors pickled."""
        return type(self), (self.module,)


class DataLoss(SparkSourceError):
    """Records in the range of a query are not in the log: removed, or not written yet.

    ``wanted`` is the offset asked for, ``available`` the nearest one that exists.
    """

    def __init__(self, partition: TopicPartition, wanted: int, available: int, reason: str) -> None:
        self.partition, self.wanted, self.available, self.reason = partition, wanted, available, reason
        super().__init__(f"{self.place}: {self.summary}. If that is acceptable, set failOnDataLoss to false.")

    @property
    def place(self) -> str:
        """Topic and partition, as an error message names them."""
        return f"topic {self.partition.topic!r}, partition {self.partition.partition}"

    @property
    def summary(self) -> str:
        """The offset asked for, the nearest that exists, and the reason."""
        return f"wanted offset {self.wanted}, available is {self.available}: {self.reason}"

    def __reduce__(self) -> tuple[type[DataLoss], tuple[TopicPartition, int, int, str]]:
        """Executors send their errors pickled."""
        return type(self), (self.partition, self.wanted, self.available, self.reason)
