"""A commit to an Iceberg table that holds only for the spans it was made for.

The rule: pyiceberg tries a commit again on top of whatever another writer has committed, and that would add rows twice.
So the catalog that it commits through (``_Guard``) compares the spans of the table that it is about to build on with
those that the change was made for; the catalog's own requirement, that this snapshot is still the newest, does the
rest.
A commit that failed is looked up by its snapshot's id: if it is there, its answer was lost, and it has succeeded.
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


class _Moved(ValidationException):
    """The newest snapshot has other spans; pyiceberg removes the manifests that it wrote for the commit."""


class _Guard:
    """A catalog for one commit: everything is the real one's, but no table with other spans comes out of it."""

    def __init__(self, catalog: Catalog, spans: Spans) -> None:
        self._catalog, self._spans = catalog, spans
        self.landed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, identifier: Any) -> Table:
        """The table as it is now. Raises _Moved; pyiceberg asks before it tries again."""
        table = self._catalog.load_table(identifier)
        if spans_of(table) != self._spans:
            raise _Moved("the table has moved")
        return table

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit; a failure is success if the new snapshot is there."""
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except Exception as error:
            wanted = [one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)]
            try:
                now = self._catalog.load_table(table.name())
            except Exception:  # noqa: BLE001  # the first error says more
                raise error from None
            if wanted and all(now.snapshot_by_id(one) is not None for one in wanted):
                return CommitTableResponse.model_validate(
                    {"metadata": now.metadata, "metadata-location": now.metadata_location}
                )
            raise


class ConditionalCommit:
    """A change, committed to a table that is where the change takes it to be."""

    def __init__(self, catalog: Catalog, identifier: tuple[str, ...], name: str) -> None:
        self._catalog, self._identifier, self._name = catalog, identifier, name

    def run(self, change: Change, fill: Callable[[Transaction, Spans], None]) -> None:
        """Let ``fill`` put the change and all spans after it into a transaction, and commit that.

        Spans that the change does not move may move meanwhile: it is made again on top of that. Raises TableMoved when
        one that it does move has moved, TableError when the catalog refuses.
        """
        for attempt in range(_ATTEMPTS):
            table = self._load()
            spans = spans_of(table)
            change.check(spans, self._name)
            after = {**spans, **{one: move.applied(spans.get(one)) for one, move in change.moves.items()}}
            guarded = Table(
                identifier=self._identifier,
                metadata=table.metadata,
                metadata_location=table.metadata_location,
                io=table.io,
                catalog=cast("Catalog", _Guard(self._catalog, spans)),
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
                # Its outcome may be unknown: a later one is built on the snapshot that is newest then, or refused.
                raise TableError(
                    f"{self._name} was not written, or its answer was lost: {one_line(error)}. Run it again: it goes "
                    "on where the table ends"
                ) from error
            else:
                return

    def _load(self) -> Table:
        try:
            return self._catalog.load_table(self._identifier)
        except Exception as error:
            raise TableError(f"{self._name}: {one_line(error)}") from error


def spans_of(table: Table) -> Spans:
    """Each partition's span, by the newest snapshot that says it; by the table's properties if those were expired.

    Whoever expires snapshots may leave their children without a parent, so that a line may end before the first load's.
    """
    snapshot: Snapshot | None = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        said = None if summary is None else summary.additional_properties.get(OFFSETS)
        if said is not None:
            return _parsed(said)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return _parsed(table.properties.get(OFFSETS, "[]"))


def _parsed(said: str) -> Spans:
    """Spans as text has them; one without a begin (of an earlier version) has all that is before its end."""
    found: Spans = {}
    for topic, number, end, *begin in json.loads(said):
        found[TopicPartition(TopicName(topic), number)] = Span(begin[0] if begin else 0, end)
    return found


def spans_text(spans: Mapping[TopicPartition, Span]) -> str:
    """Spans as a snapshot's summary has them."""
    return json.dumps([[*partition, span.end, span.begin] for partition, span in sorted(spans.items())])


def one_line(error: BaseException) -> str:
    """The first line of an error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
