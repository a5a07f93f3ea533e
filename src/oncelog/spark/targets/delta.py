"""A Delta Lake table as a target, through delta-rs (PyPI's ``deltalake``; no JVM package).

Each commit carries a ``txn`` action for every partition that it moves: application id ``oncelog/<topic>/<partition>``,
version = the next offset (and ``oncelog-begin/…`` = the first one). Delta rejects a commit if one of its application
ids was written since the version it was made for (ADR 0015). ``oncelog.commit`` in the commit info identifies each
commit.
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
from oncelog.spark.targets.table_target import Change, FileStore, NewFile, Span, Spans, TableMoved, existing

ENDS: Final = "oncelog/"
BEGINS: Final = "oncelog-begin/"
COMMIT: Final = "oncelog.commit"
SETTINGS: Final = "oncelog.table"
_ATTEMPTS: Final = 10
# Commits searched for one whose response was lost; each attempt is followed by a search.
_RECENT_COMMITS: Final = 100
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_BRANCH: Final = re.compile(r"\s*\n\s*↳\s*")
_QUERY: Final = re.compile(r"(?<=://)(\S*?)\?\S*")
_LEVELS: Final[dict[str, pa.Field[Any]]] = {"day": pa.field("day", pa.date32()), "hour": pa.field("hour", pa.int32())}


class DeltaTarget:
    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._root = str(Path(address.place).absolute()) if address.is_directory else address.place
        self._options = dict(address.options)

    @property
    def name(self) -> str:
        return str(self._address)

    def spans(self, partitions: Iterable[TopicPartition]) -> Spans:
        table = self._table()
        return {} if table is None else _spans_of(table, partitions)

    def columns(self) -> pa.Schema | None:
        table = self._table()
        if table is None:
            return None
        partition_columns = table.metadata().partition_columns
        return pa.schema([column for column in _columns(table) if column.name not in partition_columns])

    def prepare(self, schema: pa.Schema, partition_by: str | None, description: Mapping[str, Any]) -> None:
        partition_columns = levels(partition_by) if partition_by else ()
        fields: list[pa.Field[Any]] = [column.with_nullable(True) for column in schema]
        columns = pa.schema([*fields, *(_LEVELS[name] for name in partition_columns)])
        if self._address.is_directory:
            Path(self._root).mkdir(parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            try:
                table = self._table() or DeltaTable.create(
                    self._root,
                    schema=Schema.from_arrow(columns),
                    partition_by=list(partition_columns) or None,
                    configuration={SETTINGS: _text(description)} if description else None,
                    raise_if_key_not_exists=False,
                    storage_options=self._options,
                )
                if tuple(table.metadata().partition_columns) != tuple(partition_columns):
                    raise TableError(
                        f"{self.name} is partitioned by {table.metadata().partition_columns or 'nothing'}, not by "
                        f"{list(partition_columns) or 'nothing'}: load into another table"
                    )
                existing = set(_columns(table).names)
                if new := [column for column in Schema.from_arrow(columns).fields if column.name not in existing]:
                    table.alter.add_columns(new)
                return
            except (DeltaError, OSError) as error:  # another writer was first, or a response was lost: look again
                self._back_off(attempt, error)

    def describe(self) -> dict[str, Any]:
        table = self._table()
        return {} if table is None else _described(table)

    def set_description(self, description: Mapping[str, Any]) -> None:
        text = _text(description)
        for attempt in range(_ATTEMPTS):
            table = self.existing_table()
            if table.metadata().configuration.get(SETTINGS) == text:
                return
            try:
                table.alter.set_table_properties({SETTINGS: text}, raise_if_not_exists=False)
            except (DeltaError, OSError) as error:
                self._back_off(attempt, error)

    def store(self) -> FileStore:
        if self._address.is_directory:
            return DirectoryStore(self._root, relative=True)
        return DeltaStore(self._root, self._options)

    def commit(self, change: Change) -> None:
        identity = uuid.uuid4().hex
        for attempt in range(_ATTEMPTS):
            table = self.existing_table()
            # The response to the last attempt may have been lost.
            if attempt and self._is_committed(table, identity):
                return
            # delta-rs rejects the commit if these application ids are written after this check.
            change.check(_spans_of(table, change.moves), self.name)
            replaced = replacement(table, self.store(), change.replaced)
            try:
                self._write(table, change, replaced, identity)
            except (DeltaError, OSError) as error:
                if self._is_committed(self.existing_table(), identity):
                    return
                for file in replaced.written:
                    self.store().delete(file.path)
                self._back_off(attempt, error)
                continue
            self._sync(table)
            return

    def _write(self, table: DeltaTable, change: Change, replaced: Replacement, identity: str) -> None:
        transactions = []
        for partition, move in sorted(change.moves.items()):
            if move.moves_end:
                transactions.append(Transaction(application_id(partition), move.after.end))
            if move.moves_begin:
                transactions.append(Transaction(application_id(partition, BEGINS), move.after.begin))
        actions: list[AddAction | RemoveAction] = [_add(file) for file in (*change.files, *replaced.written)]
        actions += replaced.removed
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
        """Run delta-rs's OPTIMIZE, beside which appends continue."""
        table = self.existing_table()
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

    def existing_table(self) -> DeltaTable:
        return existing(self._table(), self.name)

    def _is_committed(self, table: DeltaTable, identity: str) -> bool:
        return any(commit.get(COMMIT) == identity for commit in table.history(_RECENT_COMMITS))

    def _back_off(self, attempt: int, error: Exception) -> None:
        if isinstance(error, TableMoved) or attempt == _ATTEMPTS - 1:
            raise TableError(f"{self.name} was not written: {one_line(error)}") from error
        time.sleep(min(1.0, 0.01 * 2**attempt))

    def _sync(self, table: DeltaTable) -> None:
        # Make the newest version durable on a file system, which delta-rs does not do.
        if self._address.is_directory:
            log = Path(self._root, "_delta_log")
            newest = log / f"{table.version():020d}.json"
            if newest.exists():
                fsync(newest)
            fsync(log)


def _spans_of(table: DeltaTable, partitions: Iterable[TopicPartition]) -> Spans:
    # Each partition's span. Earlier versions recorded no begin; such a span begins at 0.
    spans: Spans = {}
    for partition in partitions:
        end = table.transaction_version(application_id(partition))
        if end is not None:
            spans[partition] = Span(table.transaction_version(application_id(partition, BEGINS)) or 0, end)
    return spans


def _described(table: DeltaTable) -> dict[str, Any]:
    text = table.metadata().configuration.get(SETTINGS)
    return {} if text is None else dict(json.loads(text))


def _text(description: Mapping[str, Any]) -> str:
    return json.dumps(description, sort_keys=True)


def _add(file: NewFile) -> AddAction:
    lowest: dict[str, Any] = {"offset": file.first_offset}
    if file.topic:
        lowest |= {"topic": file.topic, "partition": file.partition}
    statistics = {
        "numRecords": file.rows,
        "minValues": lowest,
        "maxValues": {**lowest, "offset": file.last_offset},
        "nullCount": dict.fromkeys(lowest, 0),
    }
    now_ms = time.time_ns() // 1_000_000
    return AddAction(file.path, file.size, dict(file.levels), now_ms, True, json.dumps(statistics))


def _columns(table: DeltaTable) -> pa.Schema:
    exported: Any = table.schema().to_arrow()  # has Arrow's C interface, which pyarrow's stubs lack
    return pa.schema(exported)


def application_id(partition: TopicPartition, prefix: str = ENDS) -> str:
    """The application id whose version is a partition's next offset, or with ``BEGINS`` its first."""
    return f"{prefix}{partition.topic}/{partition.partition}"


def one_line(error: Exception) -> str:
    """One line from an error and its causes, which delta-rs prints as a coloured tree; without query strings of
    addresses, which may contain a signature."""
    text = _BRANCH.sub(": ", _COLOURS.sub("", str(error).strip()))
    return _QUERY.sub(r"\1", (text or type(error).__name__).splitlines()[0])
