"""A target opened for a load or a stream: made or checked, described, and held where a file system can hold it.

The rule: a directory is held by an flock, so that a second writer is refused before it reads anything; on an object
store there is no such lock, and the commit itself refuses whoever is second (``table_target``, rule 2).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from oncelog.spark.jobs.load_job import check_same_table
from oncelog.spark.jobs.load_report import LoadRequest
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.table.directory import Role, TableBusy, TableError
from oncelog.spark.table.formats import other_format
from oncelog.spark.targets.address import TableAddress
from oncelog.spark.targets.quarantine import Quarantine, QuarantineTable, QuarantineTopic
from oncelog.spark.targets.table_target import TableMoved, Target


def open_target(address: TableAddress) -> Target:
    """The table at an address, which may not be there yet. Raises OptionError if the format's package is missing."""
    try:
        if address.kind == "delta":
            from oncelog.spark.targets.delta import DeltaTarget

            return DeltaTarget(address)
        from oncelog.spark.targets.iceberg import IcebergTarget

        return IcebergTarget(address)
    except ImportError as error:
        raise OptionError(
            f"a table in {address.kind} needs a package: pip install 'oncelog[{address.kind}]' ({error})"
        ) from None


class TargetDescription:
    """A target's description, as ``check_same_table`` reads and changes it; changes wait until the table is there."""

    def __init__(self, target: Target) -> None:
        self.path = target.name
        self._target = target
        self.now = target.describe()
        self._changed = False

    def describe(self) -> dict[str, Any]:
        """See ``DescribedTable``."""
        return self.now

    def describe_as(self, description: Mapping[str, Any]) -> None:
        """See ``DescribedTable``: from ``prepare`` on it is the table's."""
        self.now, self._changed = dict(description), True

    def check(self, topic_ids: Mapping[str, str], options: SourceOptions, request: LoadRequest) -> None:
        """Refuse to continue a table of other topics, or with other columns. Raises TableError."""
        check_same_table(self, topic_ids, options, request)

    def prepare(self, schema: pa.Schema, partition_by: str | None) -> None:
        """Make the table, or give it the columns that it lacks; record the description. Raises TableError."""
        self._target.prepare(schema, partition_by, self.now)
        if not self._changed:
            return
        recorded = self._target.describe()
        if recorded.get("id", self.now["id"]) != self.now["id"]:
            raise TableMoved(f"another load has made {self.path} meanwhile: run it again")
        if recorded != self.now:
            self._target.describe_as(self.now)
        self._changed = False


def open_quarantine(
    address: TableAddress, target: Target, description: TargetDescription, options: SourceOptions, topic: str | None
) -> Quarantine:
    """The place of a table's bad rows: the table beside it, or a topic."""
    if topic is None:
        return QuarantineTable(open_target(address.quarantine))
    return QuarantineTopic(topic, description.now["id"], options, target)


@contextmanager
def held(address: TableAddress, role: Role = "append") -> Iterator[None]:
    """Hold the table in a role, if it is in a directory. Raises TableBusy."""
    if not address.is_directory:
        yield
        return
    root = Path(address.place)
    if (other := other_format(root, address.kind)) is not None:
        raise TableError(other)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(f"{root} cannot be used as a table's directory: {error.strerror}") from None
    name = ".oncelog-lock" if role == "append" else f".oncelog-lock-{role}"
    descriptor = os.open(root / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TableBusy(f"another load is writing to {address}") from None
        yield
    finally:
        os.close(descriptor)
