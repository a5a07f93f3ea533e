"""A Delta table's versions and files: the log's JSON files line by line, the live files through delta-rs.

Of versions that the log no longer has, only the files that are still live are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from oncelog.spark.targets.delta import BEGINS, ENDS, DeltaTarget, one_line
from oncelog.spark.targets.file_stores import DeltaStore, DirectoryStore
from oncelog.spark.targets.table_target import FileStore, Span, Spans

_LOG_FILE: Final = re.compile(r"(\d{20})\.json")
_FILES_PER_SLICE: Final = 4096
_RESTORE: Final = "RESTORE"


def open_delta(table: str, options: Mapping[str, str], columns: Place | None) -> DeltaHistory:
    """Raises TableError, OptionError."""
    address = parse_address(f"delta:{table}", None, options)
    if address is None or (address.is_directory and not Path(address.place, "_delta_log").is_dir()):
        raise TableError(f"there is no Delta table at {table}: it has no _delta_log")
    target = DeltaTarget(address)
    root = str(Path(address.place).absolute()) if address.is_directory else address.place
    store = DirectoryStore(root, relative=True) if address.is_directory else DeltaStore(root, dict(address.options))
    return DeltaHistory(str(address), target.existing_table(), store, columns)


class DeltaHistory:
    """Implements ``History``."""

    def __init__(self, name: str, table: Any, store: FileStore, columns: Place | None = None) -> None:
        self.name, self._table, self._store = name, table, store
        self.caveats: list[str] = []
        self._types = {field.name: field.type for field in table.schema().fields}
        self._partitioned = list(table.metadata().partition_columns)
        self.place = self._find_place(columns)
        self._versions = self._stored_versions()
        spans: Spans = {}
        self.commits: list[Commit] = []
        for version in self._versions:
            with naming_damage(f"version {version} of {name}"):
                commit, spans = _commit(version, self._actions(version), spans)
            self.commits.append(commit)
        newest = int(table.version())
        if not self._versions or self._versions[0] > 0:
            first = self._versions[0] if self._versions else newest + 1
            self.caveats.append(f"versions before {first} are gone from the log: their commits were not judged")

    def lines(self) -> list[list[int]]:
        return [list(range(len(self.commits)))]

    def added(self, commit: int) -> Iterator[FileEntry]:
        if self.commits[commit].operation == _RESTORE:
            return  # it adds files again that a later version had removed
        for action in self._actions(self._versions[commit]):
            add = action.get("add")
            if add is not None and add.get("dataChange", True) and not add.get("deletionVector"):
                yield self._entry(add, commit)

    def live(self) -> Iterator[FileEntry]:
        commit_of: dict[int, int] = {}
        for commit in range(len(self.commits)):
            for action in self._actions(self._versions[commit]):
                if (add := action.get("add")) is not None:
                    commit_of[hash(add["path"])] = commit
        for row in self._live_rows():
            path = row["path"]
            yield FileEntry(path, commit_of.get(hash(path), -1), row.get("num_records") or 0, self._live_range(row))

    def read(self) -> Iterator[tuple[str, Iterator[Any]]]:
        for row in self._live_rows():
            yield row["path"], self._batches(row)

    def read_file(self, path: str) -> Iterator[Any]:
        for row in self._live_rows():
            if row["path"] == path:
                return self._batches(row)
        return iter(())

    def _find_place(self, columns: Place | None) -> Place | None:
        for place in PLACES if columns is None else (columns,):
            if is_place(*map(self._type_of, place)):
                return place
        if columns is not None:
            raise OptionError(no_place(self.name, columns, list(self._types)))
        return None

    def _type_of(self, column: str) -> str | None:
        first, *rest = column.split(".")
        column_type: Any = self._types.get(first)
        for name in rest:
            fields = {field.name: field.type for field in getattr(column_type, "fields", ())}
            column_type = fields.get(name)
        return getattr(column_type, "type", None)

    def _stored_versions(self) -> list[int]:
        newest = int(self._table.version())
        if isinstance(self._store, DirectoryStore):
            names = (path.name for path in Path(self._store.root, "_delta_log").iterdir())
            stored = sorted(int(match[1]) for name in names if (match := _LOG_FILE.fullmatch(name)))
        else:
            history = (row.get("version") for row in self._table.history())
            stored = sorted(version for version in history if isinstance(version, int))
        return [version for version in stored if version <= newest]

    def _actions(self, version: int) -> Iterator[dict[str, Any]]:
        path = f"_delta_log/{version:020d}.json"
        try:
            with self._store.open(path) as stream:
                for line in _lines(stream):
                    if isinstance(action := json.loads(line), dict):
                        _check_add(action)
                        yield action
        except (OSError, ValueError) as error:
            raise TableError(f"{path} of {self.name} cannot be read: {one_line(error)}") from error

    def _live_rows(self) -> Iterator[dict[str, Any]]:
        exported: Any = self._table.get_add_actions(flatten=True)
        for batch in pa.table(exported).to_batches(max_chunksize=_FILES_PER_SLICE):
            yield from batch.to_pylist()

    def _entry(self, add: Mapping[str, Any], commit: int) -> FileEntry:
        with naming_damage(f"an entry of version {self._versions[commit]} of {self.name}"):
            return self._parsed_entry(add, commit)

    def _parsed_entry(self, add: Mapping[str, Any], commit: int) -> FileEntry:
        try:
            statistics = json.loads(add.get("stats") or "{}")
        except ValueError:
            statistics = {}
        lowest, highest = statistics.get("minValues") or {}, statistics.get("maxValues") or {}
        values = add.get("partitionValues") or {}
        bounds = [self._bounds(name, lowest, highest, values) for name in self.place or ()]
        return FileEntry(add["path"], commit, statistics.get("numRecords") or 0, _range(bounds))

    def _live_range(self, row: Mapping[str, Any]) -> FileRange | None:
        return _range(
            [
                (row[f"partition.{name}"],) * 2
                if name in self._partitioned
                else (row.get(f"min.{name}"), row.get(f"max.{name}"))
                for name in self.place or ()
            ]
        )

    def _bounds(self, name: str, lowest: Any, highest: Any, values: Mapping[str, Any]) -> tuple[Any, Any]:
        if name in self._partitioned:
            return values.get(name), values.get(name)
        for part in name.split("."):
            lowest = lowest.get(part) if isinstance(lowest, dict) else None
            highest = highest.get(part) if isinstance(highest, dict) else None
        return lowest, highest

    def _batches(self, row: Mapping[str, Any]) -> Iterator[Any]:
        path = row["path"]
        if row.get("deletion_vector") or any(name.startswith("deletionVector") and row[name] for name in row):
            self.caveats.append(f"{path} was not read: it has a deletion vector")
            return
        place = self.place or ()
        stored = [name for name in place if name not in self._partitioned]
        try:
            with self._store.open(unquote(path)) as stream:
                for batch in pq.ParquetFile(stream).iter_batches(columns=stored):
                    yield [
                        pa.repeat(row[f"partition.{name}"], batch.num_rows)
                        if name in self._partitioned
                        else _column(batch, name)
                        for name in place
                    ]
        except (OSError, pa.ArrowException) as error:
            self.caveats.append(f"{path} was not read: {one_line(error)}")


def _column(batch: Any, name: str) -> Any:
    first, *rest = name.split(".")
    column = batch.column(batch.schema.get_field_index(first))
    return pc.struct_field(column, rest) if rest else column


def _check_add(action: Mapping[str, Any]) -> None:
    add = action.get("add")
    if add is not None and not (isinstance(add, dict) and isinstance(add.get("path"), str)):
        raise ValueError("an add action has no path")


def _lines(stream: Any) -> Iterator[bytes]:
    """The lines of a file, read in pieces: a version that adds a million files is one large file."""
    rest = b""
    while piece := stream.read(1 << 20):
        *lines, rest = (rest + bytes(piece)).split(b"\n")
        yield from filter(None, lines)
    if rest.strip():
        yield rest


def _range(bounds: list[tuple[Any, Any]]) -> FileRange | None:
    if len(bounds) < 3 or any(low is None or high is None for low, high in bounds):
        return None
    (topic, other_topic), (partition, other_partition), (first, last) = bounds
    if topic != other_topic or partition != other_partition:
        return None
    return FileRange(TopicPartition(TopicName(topic), int(partition)), int(first), int(last))


def _commit(version: int, actions: Iterator[dict[str, Any]], spans: Spans) -> tuple[Commit, Spans]:
    info: dict[str, Any] = {}
    ends: dict[TopicPartition, int] = {}
    begins: dict[TopicPartition, int] = {}
    applications: dict[str, int] = {}
    adds = removes = False
    for action in actions:
        if "add" in action:
            adds = adds or bool(action["add"].get("dataChange", True))
        elif "remove" in action:
            removes = True
        elif "commitInfo" in action:
            info = action["commitInfo"]
        elif "txn" in action:
            name, number = action["txn"]["appId"], action["txn"]["version"]
            if name.startswith(BEGINS):
                begins[_partition(name.removeprefix(BEGINS))] = number
            elif name.startswith(ENDS):
                ends[_partition(name.removeprefix(ENDS))] = number
            else:
                applications[name] = number
    moved = {
        at: Span(
            begins.get(at, spans[at].begin if at in spans else 0), ends.get(at, spans[at].end if at in spans else 0)
        )
        for at in {*ends, *begins}
    }
    commit = Commit(
        str(version),
        None if version == 0 else str(version - 1),
        int(info.get("timestamp") or 0),
        str(info.get("operation") or "unknown"),
        adds and not removes,
        adds,
        (lambda: moved) if moved else None,
        has_all_partitions=False,
        applications=applications,
    )
    return commit, {**spans, **moved}


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(TopicName(topic), int(number))
