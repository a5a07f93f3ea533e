"""A Delta Lake table as a target, through delta-rs (PyPI's ``deltalake``; no JVM package).

The rule: each commit carries a ``txn`` action for every partition that it moves: application id
``oncelog/<topic>/<partition>``, version = the next offset (and ``oncelog-begin/…`` = the first one). That is the
protocol's own idempotence record: a commit is refused if one of its application ids was written since the version it
was made for, and nothing else holds the offsets. Which commit is whose is told by ``oncelog.commit`` in its commit
info.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from oncelog.base.ids import TopicPartition
from oncelog.spark.table.atomic_swap import fsync
from oncelog.spark.table.directory import TableBusy, TableError
from oncelog.spark.table.parquet_files import levels
from oncelog.spark.targets.address import TableAddress
from oncelog.spark.targets.delta_files import Replacement, replacement
from oncelog.spark.targets.file_stores import DeltaStore, DirectoryStore
from oncelog.spark.targets.table_target import Change, FileStore, NewFile, Span, Spans, TableMoved

ENDS: Final = "oncelog/"
BEGINS: Final = "oncelog-begin/"
COMMIT: Final = "oncelog.commit"
SETTINGS: Final = "oncelog.table"
_ATTEMPTS: Final = 10
_RECENT: Final = 100
"""Commits of others among which one whose answer was lost is looked for; each attempt is followed by a look."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_BRANCH: Final = re.compile(r"\s*\n\s*↳\s*")
_QUERY: Final = re.compile(r"(?<=://)(\S*?)\?\S*")
_LEVELS: Final[dict[str, pa.Field[Any]]] = {"day": pa.field("day", pa.date32()), "hour": pa.field("hour", pa.int32())}


class DeltaTarget:
    """A Delta table in a directory or on an object store."""

    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._root = str(Path(address.place).absolute()) if address.is_directory else address.place
        self._options = dict(address.options)

    @property
    def name(self) -> str:
        return str(self._address)

    def spans(self, partitions: Iterable[TopicPartition]) -> Spans:
        """The versions of our application ids, from the table's log."""
        table = self._table()
        return {} if table is None else _spans_of(table, partitions)

    def columns(self) -> pa.Schema | None:
        table = self._table()
        if table is None:
            return None
        outside = table.metadata().partition_columns
        return pa.schema([one for one in _columns(table) if one.name not in outside])

    def prepare(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> None:
        outside = levels(partition_by) if partition_by else ()
        fields: list[pa.Field[Any]] = [one.with_nullable(True) for one in schema]
        wanted = pa.schema([*fields, *(_LEVELS[name] for name in outside)])
        if self._address.is_directory:
            Path(self._root).mkdir(parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            try:
                table = self._table() or DeltaTable.create(
                    self._root,
                    schema=Schema.from_arrow(wanted),
                    partition_by=list(outside) or None,
                    configuration={SETTINGS: _text(description)} if description else None,
                    raise_if_key_not_exists=False,
                    storage_options=self._options,
                )
                if tuple(table.metadata().partition_columns) != tuple(outside):
                    raise TableError(f"{self.name} is partitioned by {table.metadata().partition_columns or 'nothing'}")
                has = set(_columns(table).names)
                if new := [one for one in Schema.from_arrow(wanted).fields if one.name not in has]:
                    table.alter.add_columns(new)
                return
            except (DeltaError, OSError) as error:  # another writer was first, or an answer was lost: look again
                self._pause(attempt, error)

    def describe(self) -> dict[str, Any]:
        table = self._table()
        return {} if table is None else _described(table)

    def set_description(self, description: Mapping[str, Any]) -> None:
        said = _text(description)
        for attempt in range(_ATTEMPTS):
            table = self._need()
            if table.metadata().configuration.get(SETTINGS) == said:
                return
            try:
                table.alter.set_table_properties({SETTINGS: said}, raise_if_not_exists=False)
            except (DeltaError, OSError) as error:
                self._pause(attempt, error)

    def store(self) -> FileStore:
        if self._address.is_directory:
            return DirectoryStore(self._root, relative=True)
        return DeltaStore(self._root, self._options)

    def commit(self, change: Change) -> None:
        """Write one version of the table: see ``Target``."""
        identity = uuid.uuid4().hex
        for attempt in range(_ATTEMPTS):
            table = self._need()
            if attempt and self._landed(table, identity):
                return
            change.check(_spans_of(table, change.moves), self.name)
            going = replacement(table, self.store(), change.replaced)
            try:
                self._write(table, change, going, identity)
            except (DeltaError, OSError) as error:
                if self._landed(self._need(), identity):
                    return
                for one in going.written:
                    self.store().delete(one.path)
                self._pause(attempt, error)
                continue
            self._sync(table)
            return

    def _write(self, table: DeltaTable, change: Change, going: Replacement, identity: str) -> None:
        transactions = []
        for partition, move in sorted(change.moves.items()):
            if move.moves_end:
                transactions.append(Transaction(application_id(partition), move.after.end))
            if move.moves_begin:
                transactions.append(Transaction(application_id(partition, BEGINS), move.after.begin))
        actions: list[AddAction | RemoveAction] = [_add(one) for one in (*change.files, *going.written)]
        actions += going.removed
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=table.metadata().partition_columns or None,
            commit_properties=CommitProperties(
                custom_metadata={COMMIT: identity}, app_transactions=transactions, max_commit_retries=_ATTEMPTS
            ),
        )

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """OPTIMIZE, by delta-rs. Appends go on beside it."""
        table = self._need()
        before = len(table.file_uris())
        try:
            table.optimize.compact(target_size=target_bytes)
        except (DeltaError, OSError) as error:
            raise TableBusy(f"{self.name} was not compacted: {one_line(error)}") from error
        self._sync(table)
        return before, len(table.file_uris())

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._root, storage_options=self._options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise TableError(f"{self.name} cannot be read: {one_line(error)}") from error

    def _need(self) -> DeltaTable:
        table = self._table()
        if table is None:
            raise TableError(f"there is no table at {self.name}")
        return table

    def _landed(self, table: DeltaTable, identity: str) -> bool:
        return any(one.get(COMMIT) == identity for one in table.history(_RECENT))

    def _pause(self, attempt: int, error: Exception) -> None:
        if isinstance(error, TableMoved) or attempt == _ATTEMPTS - 1:
            raise TableError(f"{self.name} was not written: {one_line(error)}") from error
        time.sleep(min(1.0, 0.01 * 2**attempt))

    def _sync(self, table: DeltaTable) -> None:
        """Make the newest version durable on a file system, which delta-rs leaves to the kernel."""
        if self._address.is_directory:
            log = Path(self._root, "_delta_log")
            newest = log / f"{table.version():020d}.json"
            if newest.exists():
                fsync(newest)
            fsync(log)


def _spans_of(table: DeltaTable, partitions: Iterable[TopicPartition]) -> Spans:
    """Each partition's span; one whose begin was not recorded (by an earlier version) has all that is before."""
    found: Spans = {}
    for partition in partitions:
        end = table.transaction_version(application_id(partition))
        if end is not None:
            found[partition] = Span(table.transaction_version(application_id(partition, BEGINS)) or 0, end)
    return found


def _described(table: DeltaTable) -> dict[str, Any]:
    said = table.metadata().configuration.get(SETTINGS)
    return {} if said is None else dict(json.loads(said))


def _text(description: Mapping[str, Any]) -> str:
    return json.dumps(description, sort_keys=True)


def _add(file: NewFile) -> AddAction:
    least: dict[str, Any] = {"offset": file.first_offset}
    if file.topic:
        least |= {"topic": file.topic, "partition": file.partition}
    statistics = {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": {**least, "offset": file.last_offset},
        "nullCount": dict.fromkeys(least, 0),
    }
    now_ms = time.time_ns() // 1_000_000
    return AddAction(file.path, file.size, dict(file.levels), now_ms, True, json.dumps(statistics))


def _columns(table: DeltaTable) -> pa.Schema:
    exported: Any = table.schema().to_arrow()  # has Arrow's C interface, which the stubs of pyarrow do not know
    return pa.schema(exported)


def application_id(partition: TopicPartition, prefix: str = ENDS) -> str:
    """The ``txn`` application id whose version is a partition's next offset, or with ``BEGINS`` its first."""
    return f"{prefix}{partition.topic}/{partition.partition}"


def one_line(error: Exception) -> str:
    """An error with its causes, which delta-rs prints below it as a coloured tree, in one line. What follows ``?`` in
    an address goes: an object store's may be a signature."""
    text = _BRANCH.sub(": ", _COLOURS.sub("", str(error).strip()))
    return _QUERY.sub(r"\1", (text or type(error).__name__).splitlines()[0])
