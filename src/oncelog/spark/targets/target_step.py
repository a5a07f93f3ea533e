"""One step of a load or a stream into a table of another format: files written, checked, and committed with the spans.

The rule: bad rows are committed to the quarantine first, with spans of its own; a run that dies between the two commits
finds there which of them it has, and does not add them again. A step whose commit is refused leaves nothing but files
that no commit names, and removes those as far as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import Event, LoadReport, PartitionReport
from oncelog.spark.targets.quarantine import Quarantine
from oncelog.spark.targets.step_writer import Places, StepWriter, check_files
from oncelog.spark.targets.table_target import Change, FileStore, Move, Span, Spans, StepKind, TableMoved, Target
from oncelog.spark.targets.task_files import Written

Kind = Literal["planned", "writing", "written", "publishing", "published", "committed"]


class TargetRun:
    """A load or a stream under way, and its report so far."""

    def __init__(
        self,
        target: Target,
        quarantine: Quarantine,
        spans: Spans,
        report: LoadReport,
        *,
        offsets_total: int = 0,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.spans, self.report = dict(spans), report
        self._target, self._quarantine, self._on_event = target, quarantine, on_event
        self._done, self._total = 0, offsets_total
        self._by_partition = {(one.topic, one.partition): one for one in report.partitions}

    def report_progress(self, kind: Kind) -> None:
        """Report progress to the caller: each event has happened, or is about to."""
        self._on_event(Event(kind, self.report.steps, self._done, self._total, self.report.rows))

    def add_partition(self, partition: TopicPartition, start: int) -> None:
        """Add a partition to the report, unless it is there."""
        if partition not in self._by_partition:
            one = PartitionReport(*partition, start, start)
            self._by_partition[partition] = one
            self.report.partitions.append(one)

    def record_begins(self, begins: Mapping[TopicPartition, int]) -> None:
        """Commit, without rows, where partitions begin of which the table has nothing."""
        moves = {one: Move(None, Span(at, at)) for one, at in begins.items() if one not in self.spans}
        if moves:
            self._target.commit(Change((), moves))
            self._moved(moves)

    def run_step(self, pieces: Sequence[Piece], kind: StepKind, writer: StepWriter) -> None:
        """Run one step. Raises TableMoved if another writer was faster; nothing of the step is there then."""
        moves = self._moves(pieces, kind)
        self.report_progress("writing")
        bad_store = self._quarantine.store(writer.bad_schema)
        had = {} if bad_store is None else self._quarantine.has(list(moves))
        places = Places(self._target.store(), bad_store, {} if kind == "replace" else _by_name(had))
        written = writer.write(pieces, places)
        try:
            owners = check_files(written, pieces, lambda one: _store(places, one))
            self.report_progress("written")
            replaced = [piece.wanted for piece in pieces] if kind == "replace" else []
            bad = [one.file for one in written if one.bad]
            self._quarantine.commit(bad, _ranges(pieces), had, replaced)
            self.report_progress("publishing")
            good = [one.file for one in written if not one.bad]
            self._target.commit(Change(good, moves, replaced))
        except TableMoved:
            self._discard(written, places)
            raise
        self._moved(moves)
        self._count(pieces, written, owners)
        self.report_progress("committed")

    def _moves(self, pieces: Sequence[Piece], kind: StepKind) -> dict[TopicPartition, Move]:
        moves: dict[TopicPartition, Move] = {}
        for piece in pieces:
            partition = piece.wanted.topic_partition
            before = self.spans.get(partition)
            own = Span(piece.wanted.start, piece.wanted.end)
            so_far = moves[partition].after if partition in moves else before
            after = own if so_far is None else so_far.joined(own)
            moves[partition] = Move(before, so_far if kind == "replace" and so_far is not None else after)
        return moves

    def _moved(self, moves: Mapping[TopicPartition, Move]) -> None:
        self.spans.update({partition: move.after for partition, move in moves.items()})

    def _discard(self, written: Sequence[Written], places: Places) -> None:
        for one in written:
            if not one.bad:  # those may be in the quarantine, which was committed before
                with suppress(Exception):
                    places.store.delete(one.file.path)

    def _count(self, pieces: Sequence[Piece], written: Sequence[Written], owners: Sequence[int]) -> None:
        self.report.steps += 1
        for one, owner in zip(written, owners, strict=True):
            mine = self._by_partition[pieces[owner].wanted.topic_partition]
            if one.bad:
                self.report.quarantined += one.file.rows
                mine.quarantined += one.file.rows
                continue
            self.report.files += 1
            self.report.rows += one.file.rows
            self.report.bytes += one.file.size
            mine.rows += one.file.rows
        for piece in pieces:
            mine = self._by_partition[piece.wanted.topic_partition]
            mine.end = max(mine.end, piece.wanted.end)
            self._done += piece.wanted.size


def _ranges(pieces: Sequence[Piece]) -> Spans:
    """The offsets that a step reads of each partition."""
    found: Spans = {}
    for piece in pieces:
        own = Span(piece.wanted.start, piece.wanted.end)
        partition = piece.wanted.topic_partition
        found[partition] = found[partition].joined(own) if partition in found else own
    return found


def _by_name(spans: Spans) -> dict[tuple[str, int], Span]:
    return {(partition.topic, partition.partition): span for partition, span in spans.items()}


def _store(places: Places, one: Written) -> FileStore:
    if not one.bad:
        return places.store
    assert places.bad_store is not None
    return places.bad_store
