"""An Apache Iceberg table as a target, through PyPI's ``pyiceberg``.

Every snapshot's summary has the span of *all* partitions under ``oncelog.offsets``. Snapshots of other writers (a
compaction) have no such entry; the newest ancestor with one counts. A change is made for the spans it found
(``iceberg_commit``). pyiceberg cannot rewrite data files, so ``compact_iceberg`` merges small files and replaces them
in one OVERWRITE snapshot.
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
from oncelog.spark.targets.table_target import Change, FileStore, Spans, existing

if TYPE_CHECKING:
    from pyiceberg.table import Transaction

NAMESPACE: Final = "oncelog"
SETTINGS: Final = "oncelog.table"
COMPACTION: Final = "oncelog.compaction"
_ATTEMPTS: Final = 10
# A file of at least this share of the target size is left as it is.
_SMALL: Final = 0.75


class IcebergTarget:
    """A table of a catalog, or of ``DIR/catalog.db`` (``oncelog.<name of DIR>``) for a directory."""

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
        table = self._table()
        spans = {} if table is None else spans_of(table)
        return {partition: spans[partition] for partition in partitions if partition in spans}

    def columns(self) -> pa.Schema | None:
        table = self._table()
        return None if table is None else schema_to_pyarrow(table.schema(), include_field_ids=False)

    def prepare(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> None:
        table = self._table()
        if table is None:
            table = self._create(schema, partition_by, description)
        partition_fields = [partition_field.name for partition_field in table.spec().fields]
        if partition_fields != ([] if partition_by is None else [f"event_{partition_by}"]):
            raise TableError(
                f"{self.name} is partitioned by {', '.join(partition_fields) or 'nothing'}, not by "
                f"{partition_by or 'nothing'}: load into another table"
            )
        if any(name not in table.schema().column_names for name in schema.names):
            try:
                with table.update_schema() as columns:
                    columns.union_by_name(schema)
            except CommitFailedException as error:
                raise TableError(f"another writer changed the columns of {self.name}: run it again") from error

    def describe(self) -> dict[str, Any]:
        table = self._table()
        text = None if table is None else table.properties.get(SETTINGS)
        return {} if text is None else dict(json.loads(text))

    def set_description(self, description: Mapping[str, Any]) -> None:
        text = json.dumps(description, sort_keys=True)
        table = self.existing_table()
        if table.properties.get(SETTINGS) != text:
            with self._catalog_errors(), table.transaction() as change:
                change.set_properties({SETTINGS: text})

    def store(self) -> FileStore:
        if self._address.is_directory:
            return DirectoryStore(str(self._root), relative=False)
        table = self.existing_table()
        return IcebergStore(table.location(), dict(table.properties), dict(table.io.properties))

    def commit(self, change: Change) -> None:
        """Write one snapshot of the table (two in one commit if rows are replaced)."""

        def fill(transaction: Transaction, spans: Spans) -> None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Delete operation did not match any records")
                for offset_range in change.replaced:
                    transaction.delete(_row_filter(offset_range))
            summary = {OFFSETS: spans_text(spans)}
            transaction.set_properties(summary)  # survives the expiry of every snapshot with spans
            if change.files:
                paths = [file.path for file in change.files]
                transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
            else:
                with transaction.update_snapshot(snapshot_properties=summary).fast_append():
                    pass  # no rows: markers, aborted or compacted records

        ConditionalCommit(self._catalog(), self._identifier, self.name).run(change, fill)

    def compact(self, target_bytes: int) -> tuple[int, int]:
        from oncelog.spark.targets.iceberg import compact_iceberg

        return compact_iceberg(self.existing_table(), target_bytes, self.name)

    def _catalog(self) -> Catalog:
        if self._opened is None:
            self._opened = self._open_catalog()
        return self._opened

    def _open_catalog(self) -> Catalog:
        options = dict(self._address.options)
        if self._address.is_directory:
            self._root.mkdir(parents=True, exist_ok=True)
            locations = {"uri": f"sqlite:///{self._root}/catalog.db", "warehouse": f"file://{self._root}/warehouse"}
            return SqlCatalog("oncelog", **{**options, **locations})
        with self._catalog_errors():
            try:
                return load_catalog(self._address.catalog, **options)
            except ValueError as error:
                if type(error) is not ValueError:  # such as a response that cannot be parsed
                    raise
                raise TableError(self._unknown_catalog()) from error

    def _table(self) -> Table | None:
        try:
            with self._catalog_errors():
                return self._catalog().load_table(self._identifier)
        except NoSuchTableError:
            return None

    def existing_table(self) -> Table:
        return existing(self._table(), self.name)

    def _create(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> Table:
        catalog = self._catalog()
        properties = {SETTINGS: json.dumps(description, sort_keys=True)} if description else {}
        try:
            with self._catalog_errors():
                catalog.create_namespace_if_not_exists(self._identifier[:-1])
                with catalog.create_table_transaction(self._identifier, schema, properties=properties) as creation:
                    if partition_by is not None:
                        time = "event_time" if "event_time" in schema.names else "timestamp"
                        transform: Any = DayTransform() if partition_by == "day" else HourTransform()
                        with creation.update_spec() as spec:
                            spec.add_field(time, transform, f"event_{partition_by}")
        except (TableAlreadyExistsError, CommitFailedException):  # another writer was first
            pass
        return self.existing_table()

    def _catalog_errors(self) -> _CatalogErrors:
        return _CatalogErrors(self.name)

    def _unknown_catalog(self) -> str:
        # The message replaces pyiceberg's, which names an option of its own command and may quote a URI's password.
        catalog = self._address.catalog or "default"
        return (
            f"{self.name}: pyiceberg has no usable settings for the catalog {catalog!r}: set its uri (http…, thrift…, "
            f"sqlite… or postgresql…) or its type, in .pyiceberg.yaml, in the environment "
            f"(PYICEBERG_CATALOG__{catalog.upper()}__URI), or with --storage-option uri=…"
        )


class _CatalogErrors:
    """Turns errors of a catalog or store into one line; those that the caller handles pass through."""

    _PASSED = (NoSuchTableError, TableAlreadyExistsError, CommitFailedException, OptionError, TableError)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, self._PASSED):
            raise TableError(f"{self._name}: {one_line(error)}") from error


def _row_filter(span: OffsetRange) -> str:
    # A filter for the rows of a range. Topic names have no characters that need quoting.
    return f"topic = '{span.topic}' and partition = {span.partition} and offset >= {span.start} and offset < {span.end}"


def compact_iceberg(table: Table, target_bytes: int, name: str) -> tuple[int, int]:
    """Merge small files up to ``target_bytes``. Returns the number of files before and after. Raises TableError."""
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
            for file in new:
                with suppress(Exception):
                    table.io.delete(file.file_path)
        raise
    return len(tasks), len(tasks) - len(old) + len(new)


def _groups(tasks: Sequence[FileScanTask], table: Table, target_bytes: int) -> Iterator[list[FileScanTask]]:
    by_value: dict[str, list[FileScanTask]] = {}
    for task in tasks:
        small = task.file.file_size_in_bytes < target_bytes * _SMALL
        # A file with delete files would need its deletes applied; only equal partition values share a file.
        if small and not task.delete_files and task.file.spec_id == table.spec().spec_id:
            by_value.setdefault(repr(task.file.partition), []).append(task)
    for same_value in by_value.values():
        group: list[FileScanTask] = []
        size = 0
        for task in same_value:
            if group and size + task.file.file_size_in_bytes > target_bytes:
                yield from [group] if len(group) > 1 else []
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        yield from [group] if len(group) > 1 else []


def _merge(table: Table, group: Sequence[FileScanTask]) -> DataFile:
    path = table.location_provider().new_data_location(f"{uuid.uuid4().hex}.parquet")
    schema, rows = schema_to_pyarrow(table.schema()), 0
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    stream: Any = table.io.new_output(path).create()
    with stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for task in group:
            for batch in scan.to_record_batches([task]):
                writer.write_batch(batch.cast(schema))
                rows += batch.num_rows
    expected = sum(task.file.record_count for task in group)
    # A merged file must have every row of the old ones.
    if rows != expected:
        table.io.delete(path)
        raise TableError(f"{len(group)} files have {expected} rows, but {rows} were read: nothing was changed")
    return parquet_file_to_data_file(table.io, table.metadata, path)


def _commit(table: Table, old: Sequence[DataFile], new: Sequence[DataFile], name: str) -> None:
    # Rows do not change, but readers of changes see the snapshot as if they did; this entry tells them.
    summary = {COMPACTION: f"{len(old)} files to {len(new)}"}
    for attempt in range(_ATTEMPTS):
        live = {task.file.file_path for task in table.scan().plan_files()}
        # If another writer removed an old file meanwhile, its rows must not come back.
        if any(file.file_path not in live for file in old):
            raise TableBusy(f"{name} was not compacted: another writer replaced some of its files meanwhile")
        try:
            with (
                table.transaction() as change,
                change.update_snapshot(snapshot_properties=summary).overwrite() as rewrite,
            ):
                for file in old:
                    rewrite.delete_data_file(file)
                for file in new:
                    rewrite.append_data_file(file)
        except (CommitFailedException, ValidationException) as error:
            if attempt == _ATTEMPTS - 1:
                raise TableBusy(f"{name} was not compacted: {one_line(error)}") from error
            table.refresh()
        else:
            return
