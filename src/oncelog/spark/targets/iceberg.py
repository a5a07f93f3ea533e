"""An Apache Iceberg table as a target, through PyPI's ``pyiceberg``.

The rule: every snapshot's summary has, under ``oncelog.offsets``, the span of *all* partitions; rows and spans are one
swap of the catalog's pointer. Other writers' snapshots (a compaction) have no such entry: the newest ancestor that has
one counts. A change is made for the spans that it found (``iceberg_commit``).

pyiceberg has no rewrite of data files, so a compaction is made of what it has: a scan of the small files, one new file
for each group, and one OVERWRITE snapshot that takes those out and puts these in. Rows are neither added nor changed,
but to a reader of changes the snapshot looks as if they were: it says ``oncelog.compaction`` in its summary. Files of
one partition value are merged, those with delete files are left alone, and the new files have to have as many rows as
the old. If another writer took one of the old files out meanwhile, nothing is changed. A table that another engine
maintains needs none of this.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import DayTransform, HourTransform

from oncelog.base.ids import TopicPartition
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.table.directory import TableBusy, TableError
from oncelog.spark.targets.address import TableAddress
from oncelog.spark.targets.file_stores import DirectoryStore, IcebergStore
from oncelog.spark.targets.iceberg_commit import OFFSETS, ConditionalCommit, one_line, spans_of, spans_text
from oncelog.spark.targets.table_target import Change, FileStore, Spans

if TYPE_CHECKING:
    from pyiceberg.table import Transaction

NAMESPACE: Final = "oncelog"
SETTINGS: Final = "oncelog.table"
_ATTEMPTS: Final = 10
_SMALL: Final = 0.75
"""A file of at least this share of the target size is left as it is."""


class IcebergTarget:
    """A table of a catalog; of ``DIR/catalog.db`` (``oncelog.<name of DIR>``) if a directory is named."""

    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._root = Path(address.place).absolute()
        if address.is_directory:
            self._identifier: tuple[str, ...] = (NAMESPACE, self._root.name.replace(".", "_"))
        else:
            self._identifier = tuple(address.place.split("."))
        self._opened: Catalog | None = None

    @property
    def name(self) -> str:
        return str(self._address)

    def spans(self, partitions: Iterable[TopicPartition]) -> Spans:
        """The spans in the newest snapshot that has some in its summary."""
        table = self._table()
        known = {} if table is None else spans_of(table)
        return {one: known[one] for one in partitions if one in known}

    def columns(self) -> pa.Schema | None:
        table = self._table()
        return None if table is None else schema_to_pyarrow(table.schema(), include_field_ids=False)

    def prepare(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> None:
        table = self._table()
        if table is None:
            table = self._create(schema, partition_by, description)
        has = [one.name for one in table.spec().fields]
        if has != ([] if partition_by is None else [f"event_{partition_by}"]):
            raise TableError(f"{self.name} is partitioned by {', '.join(has) or 'nothing'}")
        if any(name not in table.schema().column_names for name in schema.names):
            try:
                with table.update_schema() as columns:
                    columns.union_by_name(schema)
            except CommitFailedException as error:
                raise TableError(f"another writer changed the columns of {self.name}: run it again") from error

    def describe(self) -> dict[str, Any]:
        table = self._table()
        said = None if table is None else table.properties.get(SETTINGS)
        return {} if said is None else dict(json.loads(said))

    def set_description(self, description: Mapping[str, Any]) -> None:
        said = json.dumps(description, sort_keys=True)
        table = self._need()
        if table.properties.get(SETTINGS) != said:
            with self._explained(), table.transaction() as change:
                change.set_properties({SETTINGS: said})

    def store(self) -> FileStore:
        if self._address.is_directory:
            return DirectoryStore(str(self._root), relative=False)
        table = self._need()
        return IcebergStore(table.location(), dict(table.properties), dict(table.io.properties))

    def commit(self, change: Change) -> None:
        """Write one snapshot of the table (two, in one commit, if rows are replaced): see ``Target``."""

        def fill(transaction: Transaction, spans: Spans) -> None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Delete operation did not match any records")
                for one in change.replaced:
                    transaction.delete(_rows_of(one))
            said = {OFFSETS: spans_text(spans)}
            transaction.set_properties(said)  # for when every snapshot that has them was expired
            if change.files:
                paths = [one.path for one in change.files]
                transaction.add_files(paths, snapshot_properties=said, check_duplicate_files=False)
            else:
                with transaction.update_snapshot(snapshot_properties=said).fast_append():
                    pass  # no rows: markers, aborted or compacted records

        ConditionalCommit(self._catalog(), self._identifier, self.name).run(change, fill)

    def compact(self, target_bytes: int) -> tuple[int, int]:
        from oncelog.spark.targets.iceberg import compact_iceberg

        return compact_iceberg(self._need(), target_bytes, self.name)

    def _catalog(self) -> Catalog:
        if self._opened is None:
            self._opened = self._open_catalog()
        return self._opened

    def _open_catalog(self) -> Catalog:
        options = dict(self._address.options)
        if self._address.is_directory:
            self._root.mkdir(parents=True, exist_ok=True)
            places = {"uri": f"sqlite:///{self._root}/catalog.db", "warehouse": f"file://{self._root}/warehouse"}
            return SqlCatalog("oncelog", **{**options, **places})
        with self._explained():
            try:
                return load_catalog(self._address.catalog, **options)
            except ValueError as error:
                if type(error) is not ValueError:  # an answer that cannot be parsed, for one
                    raise
                raise TableError(self._unknown_catalog()) from error

    def _table(self) -> Table | None:
        try:
            with self._explained():
                return self._catalog().load_table(self._identifier)
        except NoSuchTableError:
            return None

    def _need(self) -> Table:
        table = self._table()
        if table is None:
            raise TableError(f"there is no table at {self.name}")
        return table

    def _create(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> Table:
        catalog = self._catalog()
        properties = {SETTINGS: json.dumps(description, sort_keys=True)} if description else {}
        try:
            with self._explained():
                catalog.create_namespace_if_not_exists(self._identifier[:-1])
                with catalog.create_table_transaction(self._identifier, schema, properties=properties) as creation:
                    if partition_by is not None:
                        time = "event_time" if "event_time" in schema.names else "timestamp"
                        transform: Any = DayTransform() if partition_by == "day" else HourTransform()
                        with creation.update_spec() as spec:
                            spec.add_field(time, transform, f"event_{partition_by}")
        except (TableAlreadyExistsError, CommitFailedException):  # another writer was first
            pass
        return self._need()

    def _explained(self) -> _Explained:
        return _Explained(self.name)

    def _unknown_catalog(self) -> str:
        """Without pyiceberg's own words: they name an option of its command, and may quote a URI with its password."""
        catalog = self._address.catalog or "default"
        return (
            f"{self.name}: pyiceberg has no usable settings of the catalog {catalog!r}: give its uri (http…, thrift…, "
            f"sqlite… or postgresql…), or its type, in .pyiceberg.yaml, in the environment "
            f"(PYICEBERG_CATALOG__{catalog.upper()}__URI), or by --storage-option uri=…"
        )


class _Explained:
    """While it lasts, errors of a catalog or a store become one line; those that the caller handles pass."""

    _PASSED = (NoSuchTableError, TableAlreadyExistsError, CommitFailedException, OptionError, TableError)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, self._PASSED):
            raise TableError(f"{self._name}: {one_line(error)}") from error


def _rows_of(one: OffsetRange) -> str:
    """The rows of a range, as a filter; a topic's name has no character that would need quoting."""
    return f"topic = '{one.topic}' and partition = {one.partition} and offset >= {one.start} and offset < {one.end}"


def compact_iceberg(table: Table, target_bytes: int, name: str) -> tuple[int, int]:
    """Merge small files up to ``target_bytes``; the number of files before and after. Raises TableError."""
    tasks = list(table.scan().plan_files())
    groups = list(_groups(tasks, table, target_bytes))
    old = [task.file for group in groups for task in group]
    if not old:
        return len(tasks), len(tasks)
    new: list[DataFile] = []
    try:
        new += (_merge(table, group) for group in groups)
        _commit(table, old, new, name)
    except BaseException as error:
        if not isinstance(error, Exception) or isinstance(error, TableError):
            for one in new:
                with suppress(Exception):
                    table.io.delete(one.file_path)
        raise
    return len(tasks), len(tasks) - len(old) + len(new)


def _groups(tasks: Sequence[FileScanTask], table: Table, target_bytes: int) -> Iterator[list[FileScanTask]]:
    by_value: dict[str, list[FileScanTask]] = {}
    for task in tasks:
        small = task.file.file_size_in_bytes < target_bytes * _SMALL
        if small and not task.delete_files and task.file.spec_id == table.spec().spec_id:
            by_value.setdefault(repr(task.file.partition), []).append(task)
    for own in by_value.values():
        group: list[FileScanTask] = []
        size = 0
        for task in own:
            if group and size + task.file.file_size_in_bytes > target_bytes:
                yield from [group] if len(group) > 1 else []
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        yield from [group] if len(group) > 1 else []


def _merge(table: Table, group: Sequence[FileScanTask]) -> DataFile:
    """One new file with the rows of a group, in the columns of today."""
    path = table.location_provider().new_data_location(f"{uuid.uuid4().hex}.parquet")
    schema, rows = schema_to_pyarrow(table.schema()), 0
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    stream: Any = table.io.new_output(path).create()
    with stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for task in group:
            for batch in scan.to_record_batches([task]):
                writer.write_batch(batch.cast(schema))
                rows += batch.num_rows
    wanted = sum(task.file.record_count for task in group)
    if rows != wanted:
        table.io.delete(path)
        raise TableError(f"{len(group)} files have {wanted} rows, and {rows} were read of them: nothing was changed")
    return parquet_file_to_data_file(table.io, table.metadata, path)


def _commit(table: Table, old: Sequence[DataFile], new: Sequence[DataFile], name: str) -> None:
    said = {"oncelog.compaction": f"{len(old)} files to {len(new)}"}
    for attempt in range(_ATTEMPTS):
        live = {task.file.file_path for task in table.scan().plan_files()}
        if any(one.file_path not in live for one in old):
            raise TableBusy(f"{name} was not compacted: another writer replaced some of its files meanwhile")
        try:
            with table.transaction() as change, change.update_snapshot(snapshot_properties=said).overwrite() as rewrite:
                for one in old:
                    rewrite.delete_data_file(one)
                for one in new:
                    rewrite.append_data_file(one)
        except (CommitFailedException, ValidationException) as error:
            if attempt == _ATTEMPTS - 1:
                raise TableBusy(f"{name} was not compacted: {one_line(error)}") from error
            table.refresh()
        else:
            return
