"""An Apache Iceberg table as a target, through PyPI's ``pyiceberg`` with a catalog in a SQLite file beside it.

The rule: every snapshot's summary has, under ``oncelog.offsets``, where *all* partitions go on; rows and offsets are
one swap of the catalog's pointer. Other writers' snapshots (a compaction) have no such entry: the newest ancestor
that has one counts. Files that Spark wrote are added as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.transforms import DayTransform, HourTransform

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.errors import OptionError
from oncelog.spark.targets.table_target import NewFile, NextOffsets

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.snapshots import Snapshot

NAMESPACE: Final = "oncelog"
OFFSETS: Final = "oncelog.offsets"


class IcebergTarget:
    """The table ``oncelog.<name of the directory>`` of the catalog ``DIR/catalog.db``."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._name = (NAMESPACE, self.root.name.replace(".", "_"))

    def next_offsets(self, partitions: Sequence[TopicPartition]) -> NextOffsets:
        """The next offsets in the newest snapshot that has some in its summary."""
        table = self._table()
        known = {} if table is None else _offsets(table)
        return {one: known[one] for one in partitions if one in known}

    def columns(self) -> pa.Schema | None:
        """The table's columns; None if there is no table yet."""
        table = self._table()
        return None if table is None else schema_to_pyarrow(table.schema(), include_field_ids=False)

    def commit(self, files: Sequence[NewFile], ends: NextOffsets, schema: pa.Schema, partition_by: str | None) -> None:
        """Write one snapshot of the table; new columns come with it."""
        table = self._table() or self._create(schema, partition_by)
        offsets = {**_offsets(table), **ends}
        said = json.dumps([[p.topic, p.partition, end] for p, end in sorted(offsets.items())])
        with table.transaction() as change:
            with change.update_schema() as columns:
                columns.union_by_name(schema)
            if files:
                paths = [str(one.path.absolute()) for one in files]
                change.add_files(paths, snapshot_properties={OFFSETS: said}, check_duplicate_files=False)
            elif ends:
                with change.update_snapshot(snapshot_properties={OFFSETS: said}).fast_append():
                    pass  # no rows: markers, aborted or compacted records

    def _catalog(self) -> SqlCatalog:
        self.root.mkdir(parents=True, exist_ok=True)
        return SqlCatalog("oncelog", uri=f"sqlite:///{self.root}/catalog.db", warehouse=f"file://{self.root}/warehouse")

    def _table(self) -> IcebergTable | None:
        try:
            return self._catalog().load_table(self._name)
        except NoSuchTableError:
            return None

    def _create(self, schema: pa.Schema, partition_by: str | None) -> IcebergTable:
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(NAMESPACE)
        table = catalog.create_table(self._name, schema)
        if partition_by is not None:
            time = "event_time" if "event_time" in schema.names else "timestamp"
            with table.update_spec() as spec:
                spec.add_field(
                    time, DayTransform() if partition_by == "day" else HourTransform(), f"event_{partition_by}"
                )
            table = catalog.load_table(self._name)
        return table


def _offsets(table: IcebergTable) -> NextOffsets:
    snapshot: Snapshot | None = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        said = None if summary is None else summary.additional_properties.get(OFFSETS)
        if said is not None:
            return {TopicPartition(TopicName(topic), number): end for topic, number, end in json.loads(said)}
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
        if parent is not None and snapshot is None:
            raise OptionError(
                f"every snapshot of {table.name()} that has the next offsets was expired, so no load can continue it: "
                "load a new table"
            )
    return {}
