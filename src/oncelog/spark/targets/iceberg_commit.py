"""Commits to an Iceberg table only if it still has the spans that the change was made for.

pyiceberg commits through ``_GuardedCatalog``, which compares the spans of the table it builds on. A failed commit
counts if its snapshot's id exists: only the response was lost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.table_target import Change, Span, Spans

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

OFFSETS: Final = "oncelog.offsets"
_ATTEMPTS: Final = 10


class _SpansMoved(ValidationException):
    """The newest snapshot has other spans. pyiceberg then removes the manifests it wrote for the commit."""


class _GuardedCatalog:
    """A catalog for one commit, which never returns a table with other spans."""

    def __init__(self, catalog: Catalog, spans: Spans) -> None:
        self._catalog, self._spans = catalog, spans
        self.landed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, identifier: Any) -> Table:
        """The current table. Raises _SpansMoved; pyiceberg calls this before it retries."""
        table = self._catalog.load_table(identifier)
        # pyiceberg retries a commit on top of another writer's, which would add rows twice.
        if spans_of(table) != self._spans:
            raise _SpansMoved("the table has moved")
        return table

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except Exception as error:
            snapshot_ids = [update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)]
            try:
                # The response may be lost although the commit succeeded.
                now = self._catalog.load_table(table.name())
            except Exception:  # noqa: BLE001  # the first error tells more
                raise error from None
            if snapshot_ids and all(now.snapshot_by_id(snapshot_id) is not None for snapshot_id in snapshot_ids):
                return CommitTableResponse.model_validate(
                    {"metadata": now.metadata, "metadata-location": now.metadata_location}
                )
            raise


class ConditionalCommit:
    def __init__(self, catalog: Catalog, identifier: tuple[str, ...], name: str) -> None:
        self._catalog, self._identifier, self._name = catalog, identifier, name

    def run(self, change: Change, fill: Callable[[Transaction, Spans], None]) -> None:
        """Let ``fill`` put the change and the resulting spans into a transaction, and commit it.

        If other spans move meanwhile, the commit is built again on top. Raises TableMoved if a span of the change has
        moved, TableError if the catalog rejects it.
        """
        for attempt in range(_ATTEMPTS):
            table = self._load()
            spans = spans_of(table)
            change.check(spans, self._name)
            after = {
                **spans,
                **{partition: move.applied(spans.get(partition)) for partition, move in change.moves.items()},
            }
            guarded = Table(
                identifier=self._identifier,
                metadata=table.metadata,
                metadata_location=table.metadata_location,
                io=table.io,
                catalog=cast("Catalog", _GuardedCatalog(self._catalog, spans)),
                config=table.config,
            )
            try:
                with guarded.transaction() as transaction:
                    fill(transaction, after)
            except (CommitFailedException, ValidationException) as error:
                if attempt == _ATTEMPTS - 1:
                    raise TableError(f"{self._name} was not written: {one_line(error)}") from error
                time.sleep(min(1.0, 0.01 * 2**attempt))
            except Exception as error:
                # The outcome may be unknown: the next commit builds on the newest snapshot, or is rejected.
                raise TableError(
                    f"{self._name} was not written, or the response was lost: {one_line(error)}. Run it again: it "
                    "resumes where the table ends"
                ) from error
            else:
                return

    def _load(self) -> Table:
        try:
            return self._catalog.load_table(self._identifier)
        except Exception as error:
            raise TableError(f"{self._name}: {one_line(error)}") from error


def spans_of(table: Table) -> Spans:
    """Each partition's span from the newest snapshot that has spans, else from the table's properties: expired
    snapshots may cut the line before the first load's."""
    snapshot: Snapshot | None = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        text = None if summary is None else summary.additional_properties.get(OFFSETS)
        if text is not None:
            return parse_spans(text)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return parse_spans(table.properties.get(OFFSETS, "[]"))


def parse_spans(text: str) -> Spans:
    # Parse spans. Earlier versions recorded no begin; such a span begins at 0.
    spans: Spans = {}
    for topic, number, end, *begin in json.loads(text):
        spans[TopicPartition(TopicName(topic), number)] = Span(begin[0] if begin else 0, end)
    return spans


def spans_text(spans: Mapping[TopicPartition, Span]) -> str:
    return json.dumps([[*partition, span.end, span.begin] for partition, span in sorted(spans.items())])


def one_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
