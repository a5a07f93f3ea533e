"""An Iceberg table's snapshots and files, through pyiceberg. Manifests are read one at a time.

A snapshot's new files are in the manifests that it added itself. A table is in a catalog, in a directory of ``oncelog
load``, or given by its metadata file (or the directory above ``metadata/``), as of the newest one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.table.snapshots import Operation, Snapshot

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.session.errors import OptionError
from oncelog.spark.table.directory import TableError
from oncelog.spark.table_audit.model import (
    PLACES,
    Commit,
    FileEntry,
    FileRange,
    Place,
    is_place,
    naming_damage,
    no_place,
)
from oncelog.spark.targets.address import parse_address
from oncelog.spark.targets.iceberg import COMPACTION, IcebergTarget
from oncelog.spark.targets.iceberg_commit import OFFSETS, one_line, parse_spans
from oncelog.spark.targets.table_target import Spans

_CONNECT: Final = "kafka.connect."
_CONTROL: Final = "kafka.connect.offsets."
_QUERY: Final = "spark.sql.streaming.queryId"
_EPOCH: Final = "spark.sql.streaming.epochId"
_METADATA_FILE: Final = re.compile(r"v?(\d+).*\.metadata\.json")


def open_iceberg(table: str, catalog: str | None, options: Mapping[str, str]) -> tuple[str, Table]:
    """The table with its name for messages. Raises TableError, OptionError."""
    metadata = _metadata_file(table) if catalog is None else None
    if metadata is not None:
        try:
            return f"iceberg:{table}", StaticTable.from_metadata(metadata, dict(options))
        except Exception as error:
            raise TableError(f"iceberg:{table} cannot be read: {one_line(error)}") from error
    address = parse_address(f"iceberg:{table}", catalog, options)
    if address is None:
        raise OptionError(f"{table!r} names no Iceberg table")
    if address.is_directory and not Path(address.place, "catalog.db").is_file():
        raise TableError(
            f"there is no Iceberg table at {table}: it has neither catalog.db (of oncelog load) nor metadata/ with "
            "*.metadata.json; name a table of a catalog as NAMESPACE.TABLE with --catalog"
        )
    return str(address), IcebergTarget(address).existing_table()


def _metadata_file(table: str) -> str | None:
    if table.endswith(".metadata.json"):
        return table
    numbered = [
        (int(match[1]), path.stat().st_mtime_ns, str(path))
        for path in Path(table, "metadata").glob("*.metadata.json")
        if (match := _METADATA_FILE.fullmatch(path.name))
    ]
    return max(numbered)[2] if numbered else None


class IcebergHistory:
    """Implements ``History``."""

    def __init__(self, name: str, table: Table, columns: Place | None = None) -> None:
        self.name, self._table = name, table
        self.caveats: list[str] = []
        self._snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
        self._positions = {snapshot.snapshot_id: index for index, snapshot in enumerate(self._snapshots)}
        self.commits = [self._commit(snapshot) for snapshot in self._snapshots]
        self.place = self._find_place(columns)

    def lines(self) -> list[list[int]]:
        heads = {ref.snapshot_id for ref in self._table.metadata.refs.values()}
        parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in self._snapshots}
        inner: set[int] = set()
        lines = []
        for head in sorted(heads, key=lambda head: -self._positions.get(head, -1)):
            if head in inner:
                continue
            line: list[int] = []
            seen: set[int] = set()
            at: int | None = head
            # Damaged metadata may have a snapshot among its own ancestors.
            while at is not None and at in self._positions and at not in seen:
                line.append(self._positions[at])
                seen.add(at)
                at = parents[at]
            inner |= seen
            lines.append(line[::-1])
        return lines

    def added(self, commit: int) -> Iterator[FileEntry]:
        if not self.commits[commit].adds_files:
            return
        snapshot = self._snapshots[commit]
        for manifest in self._manifests(snapshot):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                for status, snapshot_id, file in self._entries(manifest):
                    if status == ManifestEntryStatus.ADDED and snapshot_id == snapshot.snapshot_id:
                        yield self._entry(file, commit)

    def live(self) -> Iterator[FileEntry]:
        for file, snapshot_id in self._live_files():
            yield self._entry(file, -1 if snapshot_id is None else self._positions.get(snapshot_id, -1))

    def read(self) -> Iterator[tuple[str, Iterator[Any]]]:
        for task in self._tasks():
            yield task.file.file_path, self._batches(task)

    def read_file(self, path: str) -> Iterator[Any]:
        for task in self._tasks():
            if task.file.file_path == path:
                return self._batches(task)
        return iter(())

    def _commit(self, snapshot: Snapshot) -> Commit:
        place = f"the summary of snapshot {snapshot.snapshot_id} of {self.name}"
        with naming_damage(place):
            return _commit(snapshot, place)

    def _find_place(self, columns: Place | None) -> Place | None:
        schema = self._table.schema()
        names = set(schema.column_names)
        for place in PLACES if columns is None else (columns,):
            if names.issuperset(place) and is_place(*(schema.find_type(name) for name in place)):
                return place
        if columns is not None:
            raise OptionError(no_place(self.name, columns, sorted(names)))
        return None

    @cached_property
    def _fields(self) -> tuple[Any, ...]:
        return () if self.place is None else tuple(map(self._table.schema().find_field, self.place))

    def _manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        try:
            manifests = snapshot.manifests(self._table.io)
        except Exception as error:
            raise TableError(
                f"the manifest list of snapshot {snapshot.snapshot_id} of {self.name} cannot be read: {one_line(error)}"
            ) from error
        return [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]

    def _entries(self, manifest: ManifestFile) -> Iterator[tuple[ManifestEntryStatus, int | None, DataFile]]:
        try:
            entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
        except Exception as error:
            raise TableError(f"{manifest.manifest_path} of {self.name} cannot be read: {one_line(error)}") from error
        for entry in entries:
            added_by = manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id
            yield entry.status, added_by, entry.data_file

    def _live_files(self) -> Iterator[tuple[DataFile, int | None]]:
        snapshot = self._table.current_snapshot()
        for manifest in [] if snapshot is None else self._manifests(snapshot):
            for _, snapshot_id, file in self._entries(manifest):
                yield file, snapshot_id

    def _entry(self, file: DataFile, commit: int) -> FileEntry:
        with naming_damage(f"the entry of {file.file_path} in a manifest of {self.name}"):
            return FileEntry(file.file_path, commit, file.record_count, self._range(file))

    def _range(self, file: DataFile) -> FileRange | None:
        lowest, highest = file.lower_bounds or {}, file.upper_bounds or {}
        bounds = []
        for column in self._fields:
            if column.field_id not in lowest or column.field_id not in highest:
                return None
            low, high = (from_bytes(column.field_type, side[column.field_id]) for side in (lowest, highest))
            bounds.append((low, high))
        if not bounds:
            return None
        topic, partition = self._topic(*bounds[0]), bounds[1]
        if topic is None or partition[0] != partition[1]:
            return None
        return FileRange(TopicPartition(TopicName(topic), int(partition[0])), int(bounds[2][0]), int(bounds[2][1]))

    def _topic(self, low: str, high: str) -> str | None:
        """The one topic between the bounds, which are cut to 16 characters by default; None if several are."""
        if low == high:
            return low
        between = [topic for topic in self._topics if low <= topic <= high]
        return between[0] if len(between) == 1 else None

    @cached_property
    def _topics(self) -> set[str]:
        return {str(partition.topic) for commit in self.commits for partition in commit.spans or ()}

    def _tasks(self) -> Iterator[FileScanTask]:
        """Live files with their delete files."""
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return
        try:
            manifests = snapshot.manifests(self._table.io)
            if all(manifest.content == ManifestContent.DATA for manifest in manifests):
                for file, _ in self._live_files():
                    yield FileScanTask(file)
            else:
                yield from self._table.scan().plan_files()
        except TableError:
            raise
        except Exception as error:
            raise TableError(f"the files of {self.name} cannot be listed: {one_line(error)}") from error

    def _batches(self, task: FileScanTask) -> Iterator[Any]:
        if self.place is None:
            return
        schema = self._table.schema().select(*self.place)
        scan = ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue())
        try:
            for batch in scan.to_record_batches([task]):
                yield [_column(batch, name) for name in self.place]
        except Exception as error:  # noqa: BLE001  # any store's or reader's; the file is named as not read
            self.caveats.append(f"{task.file.file_path} was not read: {one_line(error)}")


def _column(batch: Any, name: str) -> Any:
    first, *rest = name.split(".")
    column = batch.column(first)
    return pc.struct_field(column, rest) if rest else column


def _commit(snapshot: Snapshot, place: str) -> Commit:
    summary = snapshot.summary
    properties = {} if summary is None else summary.additional_properties
    operation = Operation.APPEND if summary is None else summary.operation
    control = {}
    for name, text in properties.items():
        if name.startswith(_CONTROL):
            try:
                control[name.removeprefix(_CONTROL)] = {int(part): int(end) for part, end in json.loads(text).items()}
            except (ValueError, AttributeError, TypeError, OverflowError):
                continue
    entries = ("commit-id", "task-id", "valid-through-ts")
    spans = properties.get(OFFSETS)
    added = int(properties.get("added-data-files", "0")) > 0
    return Commit(
        str(snapshot.snapshot_id),
        None if snapshot.parent_snapshot_id is None else str(snapshot.parent_snapshot_id),
        snapshot.timestamp_ms,
        operation.value,
        operation == Operation.APPEND and COMPACTION not in properties,
        added,
        None if spans is None else partial(_spans, spans, place),
        control=control,
        connect={name: properties[_CONNECT + name] for name in entries if _CONNECT + name in properties},
        applications=_spark_batch(properties),
    )


def _spans(text: str, place: str) -> Spans:
    with naming_damage(place):
        return parse_spans(text)


def _spark_batch(properties: Mapping[str, str]) -> dict[str, int]:
    query, epoch = properties.get(_QUERY, ""), properties.get(_EPOCH, "")
    return {query: int(epoch)} if query and epoch.isdecimal() else {}
