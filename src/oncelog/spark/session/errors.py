"""Errors of reading, loading and writing topics; each message is one line for the user who runs the query."""

from __future__ import annotations

import pickle
from typing import Any, Self

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError, ConfigError


class SparkSourceError(ClientError):
    """Base of the errors of sources, sinks and loads; the text is one line. Pickled errors keep their constructor's
    arguments."""

    _arguments: tuple[Any, ...]

    def __new__(cls, *arguments: Any) -> Self:
        error = super().__new__(cls, *arguments)
        error._arguments = arguments
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments, self.__dict__


class OptionError(SparkSourceError, ConfigError, ValueError):
    """An option is missing, has an unknown value, or contradicts another."""


class ServerLacksOncelog(SparkSourceError):
    """The Python of a Spark server or its executors cannot import ``module``."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(
            f"the Spark cluster has no Python module {module!r}: install this version of oncelog for the Python of the "
            "server and of its executors (docs/deploy-spark.md)"
        )


class SparkLostWorker(SparkSourceError):
    """Spark 4.0 lost a Python worker that it had counted in another pool (SPARK-52642).

    It happens when one task reads and writes with Python, as in a Connect server's ``foreachBatch``.
    """

    def __init__(self) -> None:
        super().__init__(
            "Spark lost one of its Python workers, a defect of 4.0 that 4.1 does not have (SPARK-52642): start Spark, "
            "or its Connect server, with --conf spark.python.worker.reuse=false, and run it again"
        )


class SparkWorkerLate(SparkSourceError):
    def __init__(self) -> None:
        super().__init__(
            "Python worker failed to connect back: the Python process of the stream's source did not start within the "
            "ten seconds that Spark allows, probably because this machine is busy. Nothing was read or written: run it "
            "again"
        )


class OncelogVersionMismatch(SparkSourceError):
    """A process of a job has another release than its sender."""

    def __init__(self, driver_release: str, local_release: str) -> None:
        self.sent, self.here = driver_release, local_release
        super().__init__(
            f"the driver of this job has oncelog {driver_release}, and a Python process that works for it has "
            f"oncelog {local_release}: install the same release for the driver, the server and all executors "
            "(docs/deploy-spark.md)"
        )


class DataLoss(SparkSourceError):
    """Records in the range of a query are not in the log (removed, or not written yet); ``available`` is the nearest
    offset."""

    def __init__(self, partition: TopicPartition, requested: int, available: int, reason: str) -> None:
        self.partition, self.requested, self.available, self.reason = partition, requested, available, reason
        super().__init__(f"{self.place}: {self.summary}. If that is acceptable, set failOnDataLoss to false.")

    @property
    def place(self) -> str:
        return f"topic {self.partition.topic!r}, partition {self.partition.partition}"

    @property
    def summary(self) -> str:
        return f"requested offset {self.requested}, available is {self.available}: {self.reason}"


class SinkError(SparkSourceError):
    """Base of the sink's errors."""


class WriteRefused(SinkError, pickle.PickleError):
    """A write was rejected while its writer was pickled for the tasks. PySpark re-raises only PickleErrors as they
    are."""


def first_line(error: BaseException) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
