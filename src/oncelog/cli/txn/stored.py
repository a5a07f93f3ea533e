"""Ends transactions by their stored identity: shows each plan, asks, then ends. For ``txn commit`` and ``abort``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import CONSUMER_OFFSETS
from oncelog.base.text import counted
from oncelog.base.units import INT16_MAX, INT64_MAX
from oncelog.cli.support.options import AdminOptions, directory, time_option
from oncelog.cli.support.output import print_json, print_table, to_json
from oncelog.cli.support.terminal import print_line
from oncelog.cli.txn.common import audit_of, confirmed, progress_on_terminal, report_unanswered, sentences

if TYPE_CHECKING:
    from oncelog.admin.transactions.ending import EndedTransaction, EndPlan
    from oncelog.admin.transactions.stored_identity import SavedTransaction
    from oncelog.client.blocking.client import Client

EXIT_REFUSED: Final = 1
_SHOWN_PARTITIONS: Final = 40
_SHOWN_GROUPS: Final = 8


@dataclass(frozen=True)
class StoredOptions:
    """The options that name transactions by identity."""

    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="The transactional id.")
    ] = None
    producer_id: Annotated[
        int | None,
        typer.Option("--producer-id", metavar="ID", min=0, max=INT64_MAX, help="The producer id that the job stored."),
    ] = None
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", metavar="N", min=0, max=INT16_MAX, help="The producer epoch that the job stored."),
    ] = None
    stored_at: Annotated[
        str | None,
        typer.Option(
            "--stored-at",
            metavar="TIME",
            help="When the job stored them: a transaction that began later is another one (@MILLISECONDS, "
            "2026-11-27T12:00:00Z).",
        ),
    ] = None

    from_flink: Annotated[
        Path | None,
        typer.Option(
            "--from-flink-checkpoint",
            parser=directory,
            metavar="DIR",
            help="Transactions of a Flink job, as its checkpoint or savepoint counts on them.",
        ),
    ] = None
    from_spark: Annotated[
        Path | None,
        typer.Option(
            "--from-spark-checkpoint",
            parser=directory,
            metavar="DIR",
            help="Transactions of a Spark query with oncelog's sink, as decided; DIR is its checkpointLocation.",
        ),
    ] = None

    @property
    def are_given(self) -> bool:
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True, slots=True)
class Selection:
    """Transactions with their decisions, and remarks about where they come from."""

    transactions: list[SavedTransaction]
    remarks: list[str] = field(default_factory=list)


def selection_of(options: StoredOptions, client: Client, *, commit: bool) -> Selection:
    """The transactions that the options name. Raises BadParameter, and ClientError for a bad checkpoint."""
    from oncelog.admin.transactions.stored_identity import SavedTransaction
    from oncelog.client.machine.transaction_values import StoredTransaction

    identity = (options.transactional_id, options.producer_id, options.epoch)
    is_named = any(value is not None for value in identity)
    if is_named + (options.from_flink is not None) + (options.from_spark is not None) > 1:
        raise typer.BadParameter("give an identity, --from-flink-checkpoint or --from-spark-checkpoint, one of them")
    stored_at_ms = time_option(options.stored_at, "--stored-at")
    if options.from_flink is not None:
        return _from_flink(options.from_flink, client, stored_at_ms)
    if options.from_spark is not None:
        return _from_spark(options.from_spark, client)
    if not options.transactional_id or options.producer_id is None or options.epoch is None:
        raise typer.BadParameter(
            "give --transactional-id, --producer-id and --epoch, or --from-flink-checkpoint, or --from-spark-checkpoint"
        )
    stored = StoredTransaction(options.transactional_id, options.producer_id, options.epoch)
    return Selection([SavedTransaction(stored, commit, stored_at_ms=stored_at_ms)])


def _from_flink(path: Path, client: Client, stored_at_ms: int | None) -> Selection:
    from oncelog.admin.flink.checkpoint_directory import read_checkpoint
    from oncelog.admin.flink.data_input import FlinkStateError
    from oncelog.admin.flink.lingering import lingering_transactions

    checkpoint = read_checkpoint(path)
    if not checkpoint.sink.committables and not checkpoint.sink.prefixes:
        raise FlinkStateError(f"{path} has no state of a KafkaSink with exactly-once delivery: is it of another job?")
    if stored_at_ms is not None:
        checkpoint = replace(checkpoint, stored_at_ms=stored_at_ms)
    lingering = lingering_transactions(client, checkpoint)
    report_unanswered(lingering.unanswered)
    remarks = [
        f"Checkpoint {checkpoint.checkpoint_id} of {moment_text(checkpoint.stored_at_ms)} counts on "
        f"{counted(len(checkpoint.sink.committables), 'transaction')}. Make sure that the job is stopped."
    ]
    if checkpoint.newer:
        newest = checkpoint.directory.parent / checkpoint.newer[-1]
        remarks.append(f"{newest} is newer and complete, so nothing is aborted by this one; give that one.")
    if checkpoint.sink.foreign:
        remarks.append(f"{counted(checkpoint.sink.foreign, 'committable')} of other sinks are left out.")
    return Selection(lingering.transactions, remarks)


def _from_spark(path: Path, client: Client) -> Selection:
    from oncelog.spark.sink.two_phase.lingering import lingering_transactions

    lingering = lingering_transactions(client, path)
    remarks = [f"Query {lingering.query}. Make sure that it is stopped: it ends its transactions itself."]
    if lingering.hidden:
        remarks.append(f"{counted(lingering.hidden, 'decided transaction')} are not open any more, and not shown.")
    return Selection(lingering.transactions, remarks)


def end_stored_transactions(
    options: StoredOptions, cluster: AdminOptions, *, commit: bool, dry_run: bool, yes: bool, audit_log: Path | None
) -> None:
    """Show the plan of each transaction, ask, and end those that may be ended. Raises Exit."""
    from oncelog.admin.transactions.stored_identity import EndAction

    audit = audit_of(audit_log)
    with cluster.open_client() as client:
        selection = selection_of(options, client, commit=commit)
        saved = [transaction for transaction in selection.transactions if transaction.commit is commit]
        plans = _plans(client, saved)
        for plan in plans:
            report_unanswered(plan.unanswered)
        if cluster.as_json:
            for remark in selection.remarks:
                print_line(f"oncelog: {remark}", err=True)
        else:
            _show_all(selection, saved, plans, commit=commit)
        to_end = [plan for plan in plans if plan.action is EndAction.END]
        is_refused = any(plan.action is EndAction.REFUSE for plan in plans)
        if dry_run or not to_end:
            if cluster.as_json:
                print_json([_document(plan, transaction, None) for plan, transaction in zip(plans, saved, strict=True)])
            elif to_end:
                print_line("nothing is changed: this was a dry run")
            raise typer.Exit(EXIT_REFUSED if is_refused else 0)
        if not confirmed(_question(to_end), yes):
            print_line("oncelog: nothing was done; --yes does it without asking", err=True)
            raise typer.Exit(EXIT_REFUSED)
        results = _end_all(client, to_end, audit, as_json=cluster.as_json)
    if cluster.as_json:
        by_plan = {id(result.plan): result for result in results}
        print_json(
            [
                _document(plan, transaction, by_plan.get(id(plan)))
                for plan, transaction in zip(plans, saved, strict=True)
            ]
        )
    raise typer.Exit(EXIT_REFUSED if is_refused or any(result.error is not None for result in results) else 0)


def _plans(client: Client, selected: Sequence[SavedTransaction]) -> list[EndPlan]:
    from oncelog.admin.transactions.ending import plan_end

    plans = []
    with progress_on_terminal("offsets read") as progress:
        for saved in selected:
            plan = plan_end(
                client,
                saved.stored,
                commit=saved.commit,
                stored_at_ms=saved.stored_at_ms,
                keeps_epoch=saved.keeps_epoch,
                progress=progress,
            )
            plans.append(plan)
    return plans


def _show_all(
    selection: Selection, saved: Sequence[SavedTransaction], plans: Sequence[EndPlan], *, commit: bool
) -> None:
    sentences(selection.remarks, indent="")
    for plan, transaction in zip(plans, saved, strict=True):
        _show(plan, transaction)
    others = [transaction for transaction in selection.transactions if transaction.commit is not commit]
    if others:
        verb, other = ("abort", "the saved state does not count on them") if commit else ("commit", "it counts on them")
        names = ", ".join(transaction.stored.transactional_id for transaction in others[:_SHOWN_GROUPS])
        more = f" and {len(others) - _SHOWN_GROUPS} more" if len(others) > _SHOWN_GROUPS else ""
        line = f"Left alone: {names}{more}; {other}. The same options of oncelog txn {verb} {verb} them."
        sentences([line], indent="")
    if not saved:
        print_line(f"there is nothing to {'commit' if commit else 'abort'}")


def _question(plans: Sequence[EndPlan]) -> str:
    verb = "Commit" if plans[0].commit else "Abort"
    return f"{verb} it?" if len(plans) == 1 else f"{verb} these {len(plans)}?"


def _end_all(client: Client, plans: Sequence[EndPlan], audit: Any, *, as_json: bool) -> list[EndedTransaction]:
    from oncelog.admin.transactions.ending import end_stored

    results = []
    for plan in plans:
        result = end_stored(client, plan, audit=audit)
        results.append(result)
        name = plan.stored.transactional_id
        if result.error is not None:
            print_line(f"oncelog: {name} was not {_ended(plan)}: {result.error}", err=True)
        elif not as_json:
            _show_result(result)
        if result.warning is not None:
            print_line(f"oncelog: warning: {name}: {result.warning}", err=True)
    return results


def _ended(plan: EndPlan) -> str:
    return "committed" if plan.commit else "aborted"


def _show_result(result: EndedTransaction) -> None:
    plan = result.plan
    state = "" if result.after is None else f" ({result.after.state})"
    print_line(f"{plan.stored.transactional_id} is {_ended(plan)}{state}")
    before = {partition.topic_partition: partition.last_stable_offset for partition in plan.contents.partitions}
    for partition, bounds in list(result.bounds.items())[:_SHOWN_PARTITIONS]:
        moved = f"last stable offset {before.get(partition)} → {bounds.last_stable_offset}, end {bounds.end_offset}"
        print_line(f"{partition}: {moved}")


def _show(plan: EndPlan, saved: SavedTransaction) -> None:
    stored, refused = plan.stored, plan.action.value == "refuse"
    print_line(
        f"{stored.transactional_id} (producer id {stored.producer_id}, epoch {stored.producer_epoch}): "
        f"{plan.judgement.state.value}"
    )
    if saved.why is not None:
        sentences([f"{saved.why[0].upper()}{saved.why[1:]}."])
    sentences(_lines(plan))
    _show_partitions(plan)
    if refused:
        print_line(f"oncelog: {stored.transactional_id} is not {_ended(plan)}: {plan.judgement.reason}.", err=True)
    print_line()


def _lines(plan: EndPlan) -> list[str]:
    lines = [f"{plan.judgement.reason}."]
    if plan.action.value == "nothing":
        lines.append("There is nothing to do.")
    row = plan.row
    if row is not None and row.state == "Ongoing" and plan.contents.partitions:
        lines.append(_contents(plan))
        lines.append(_timeout(plan))
    if plan.race is not None:
        lines.append(f"{plan.race[0].upper()}{plan.race[1:]}.")
    for partition, groups in plan.waiting.items():
        names = ", ".join(f"{group.group} ({counted(group.lag, 'offset')})" for group in groups[:_SHOWN_GROUPS])
        more = f" and {len(groups) - _SHOWN_GROUPS} more" if len(groups) > _SHOWN_GROUPS else ""
        lines.append(f"Groups that wait at {partition}, if they read committed records: {names}{more}.")
    if plan.log_problem is not None and plan.judgement.state.value != "open":
        lines.append(f"The coordinator's log did not help: {plan.log_problem}.")
    return lines


def _contents(plan: EndPlan) -> str:
    partitions = plan.contents.partitions
    at_least = "" if plan.is_whole else "at least "
    times = [time for partition in partitions for time in (partition.first_ms, partition.last_ms) if time is not None]
    written = f", of {moment_text(min(times))} to {moment_text(max(times))}" if times else ""
    has_offsets = any(partition.topic == CONSUMER_OFFSETS for partition in partitions)
    offsets = " (offsets of consumer groups among them)" if has_offsets else ""
    return (
        f"It has {at_least}{counted(plan.records, 'record')}{offsets} in {counted(len(partitions), 'partition')}, "
        f"{plan.bytes:,} bytes{written}."
    )


def _timeout(plan: EndPlan) -> str:
    times_out_ms = plan.times_out_ms
    if times_out_ms is None:
        return "It never times out (two-phase commit)."
    left_ms = times_out_ms - int(time.time() * 1000)
    if left_ms <= 0:
        return f"Its time-out passed {duration_text(left_ms)} ago: its coordinator may abort it at any moment."
    return f"Its coordinator aborts it at {moment_text(times_out_ms)}, in {duration_text(left_ms)}."


def _show_partitions(plan: EndPlan) -> None:
    partitions = plan.contents.partitions
    if not partitions:
        return
    columns = ("topic", "partition", "start", "records", "bytes", "stable now", "stable after", "end")
    rows = [
        (
            partition.topic,
            partition.partition,
            partition.start_offset,
            partition.records if partition.is_whole else f"≥{partition.records}",
            partition.bytes,
            partition.last_stable_offset,
            partition.stable_after,
            partition.end_offset,
        )
        for partition in partitions[:_SHOWN_PARTITIONS]
    ]
    print_table(columns, rows)
    if len(partitions) > len(rows):
        print_line(f"… {len(partitions) - len(rows)} more")
    sentences(
        f"{partition.topic_partition} could not be read: {partition.problem}."
        for partition in partitions
        if partition.problem is not None
    )
    sentences(
        f"{partition.topic_partition}: another transaction is open from offset {partition.held_by} on, so readers of "
        f"committed records stop there."
        for partition in partitions[:_SHOWN_PARTITIONS]
        if partition.held_by is not None
    )


def _document(plan: EndPlan, saved: SavedTransaction, result: EndedTransaction | None) -> dict[str, Any]:
    row = plan.row
    document: dict[str, Any] = {
        "transactional_id": plan.stored.transactional_id,
        "producer_id": plan.stored.producer_id,
        "producer_epoch": plan.stored.producer_epoch,
        "decision": "commit" if plan.commit else "abort",
        "why": saved.why,
        "stored_at_ms": saved.stored_at_ms,
        "action": plan.action.value,
        "state": plan.judgement.state.value,
        "reason": plan.judgement.reason,
        "race": plan.race,
        "coordinator": None if row is None else row.coordinator,
        "coordinator_state": None if row is None else row.state,
        "started_ms": None if row is None else row.start_ms,
        "times_out_ms": plan.times_out_ms,
        "records": plan.records,
        "bytes": plan.bytes,
        "is_whole": plan.is_whole,
        "partitions": to_json(plan.contents.partitions),
        "waiting": {str(partition): to_json(groups) for partition, groups in plan.waiting.items()},
        "outcome": "planned" if result is None else _ended(plan) if result.error is None else "failed",
        "error": plan.judgement.reason if plan.action.value == "refuse" else None,
    }
    if plan.action.value != "end":
        document["outcome"] = "nothing" if plan.action.value == "nothing" else "refused"
    if result is not None:
        document["error"] = result.error
        document["warning"] = result.warning
        document["state_after"] = None if result.after is None else result.after.state
        document["last_stable_offsets_after"] = {
            str(partition): bounds.last_stable_offset for partition, bounds in result.bounds.items()
        }
    return document
