"""A Delta Lake table as a target, through delta-rs (PyPI's ``deltalake``; no JVM package).

The rule: each commit carries a ``txn`` action for every partition it adds to: application id
``oncelog/<topic>/<partition>``, version = the next offset. That is the protocol's own idempotence record: Delta's
writers, Spark's among them, refuse two concurrent commits of one application id, and nothing else holds the offsets.
Files that Spark wrote are added as they are; no row passes through here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction

from oncelog.base.ids import TopicPartition
from oncelog.spark.table.parquet_files import levels
from oncelog.spark.targets.table_target import NewFile, NextOffsets

PREFIX: Final = "oncelog/"
_LEVELS: Final[dict[str, pa.Field[Any]]] = {"day": pa.field("day", pa.date32()), "hour": pa.field("hour", pa.int32())}


class DeltaTarget:
    """A Delta table in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def next_offsets(self, partitions: Sequence[TopicPartition]) -> NextOffsets:
        """The versions of our application ids, from the table's log."""
        table = self._table()
        if table is None:
            return {}
        found = {one: table.transaction_version(application_id(one)) for one in partitions}
        return {one: version for one, version in found.items() if version is not None}

    def columns(self) -> pa.Schema | None:
        """The table's columns; None if there is no table yet."""
        table = self._table()
        return None if table is None else _columns(table)

    def commit(self, files: Sequence[NewFile], ends: NextOffsets, schema: pa.Schema, partition_by: str | None) -> None:
        """Write one version of the table: its files and the offsets; new columns are added before it."""
        outside = levels(partition_by) if partition_by else ()
        fields: list[pa.Field[Any]] = [one.with_nullable(True) for one in schema]
        wanted = pa.schema([*fields, *(_LEVELS[name] for name in outside)])
        table = self._table()
        if table is None:
            self.root.mkdir(parents=True, exist_ok=True)
            table = DeltaTable.create(self.root, schema=Schema.from_arrow(wanted), partition_by=list(outside) or None)
        has = set(_columns(table).names)
        if new := [one for one in Schema.from_arrow(wanted).fields if one.name not in has]:
            table.alter.add_columns(new)
            table = DeltaTable(self.root)
        if not ends:
            return
        table.create_write_transaction(
            [self._add(one) for one in files],
            "append",
            table.schema(),
            partition_by=list(outside) or None,
            commit_properties=CommitProperties(
                custom_metadata={"oncelog.offsets": json.dumps({application_id(p): end for p, end in ends.items()})},
                app_transactions=[Transaction(application_id(p), end) for p, end in sorted(ends.items())],
            ),
        )

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.root)
        except TableNotFoundError:
            return None

    def _add(self, file: NewFile) -> AddAction:
        facts = file.path.stat()
        statistics = {
            "numRecords": file.rows,
            "minValues": {"offset": file.first_offset},
            "maxValues": {"offset": file.last_offset},
            "nullCount": {"offset": 0},
        }
        return AddAction(
            str(file.path.relative_to(self.root)),
            facts.st_size,
            dict(file.levels),
            int(facts.st_mtime * 1000),
            True,
            json.dumps(statistics),
        )


def _columns(table: DeltaTable) -> pa.Schema:
    exported: Any = table.schema().to_arrow()  # has Arrow's C interface, which the stubs of pyarrow do not know
    return pa.schema(exported)


def application_id(partition: TopicPartition) -> str:
    """The ``txn`` application id whose version is a partition's next offset."""
    return f"{PREFIX}{partition.topic}/{partition.partition}"
