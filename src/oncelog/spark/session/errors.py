"""Errors of reading, loading and writing topics: one line each, for the person who runs the query."""

from __future__ import annotations

import pickle
from typing import Any, Self

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError, ConfigError


class SparkSourceError(ClientError):
    """Anything the source or a load refuses to do; the text is one line.

    Executors and Python workers send their errors pickled: each is made again of the arguments that it was made of.
    """

    _arguments: tuple[Any, ...]

    def __new__(cls, *arguments: Any) -> Self:
        made = super().__new__(cls, *arguments)
        made._arguments = arguments
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments, self.__dict__


class OptionError(SparkSourceError, ConfigError, ValueError):
    """An option is missing, unknown in its value, or contradicts another."""


class ServerLacksOncelog(SparkSourceError):
    """The Python of a Spark server or of its executors cannot import ``module``: oncelog, or what it needs."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(
            f"the Spark that runs this has no Python module {module!r}: install oncelog, in this version, for the "
            "Python of the server and of its executors (docs/deploy-spark.md)"
        )


class SparkLostWorker(SparkSourceError):
    """Spark 4.0 counts a Python worker among another pool's and then does not find it (SPARK-52642).

    It happens where one task reads and writes with Python, in the batches of a Connect server's ``foreachBatch``.
    """

    def __init__(self) -> None:
        super().__init__(
            "this Spark has mislaid one of its Python workers, a defect of 4.0 that 4.1 does not have (SPARK-52642): "
            "start Spark, or its Connect server, with --conf spark.python.worker.reuse=false, and run it again"
        )


class SparkWorkerLate(SparkSourceError):
    """The Python process of a streaming source was not there in the ten seconds that Spark waits for it."""

    def __init__(self) -> None:
        super().__init__(
            "Python worker failed to connect back: Spark gives the Python process of a stream's source ten seconds to "
            "start, which were too few on this busy machine. Nothing was read or written: run it again"
        )


class OtherOncelog(SparkSourceError):
    """A process of a job has another release of oncelog than the process that sent it its work."""

    def __init__(self, sent: str, here: str) -> None:
        self.sent, self.here = sent, here
        super().__init__(
            f"the driver of this job has oncelog {sent}, and a Python process that works for it has oncelog {here}: "
            "install one release for the driver, the server and all executors (docs/deploy-spark.md)"
        )


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


class SinkError(SparkSourceError):
    """Anything the sink refuses to do."""


class WriteRefused(SinkError, pickle.PickleError):
    """The refusal of a write whose writer is being pickled to the tasks. It is an error of pickle, too: PySpark passes
    those on, and reports every other as an object that could not be serialized."""
