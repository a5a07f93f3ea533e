"""``oncelog txn abort`` and ``force-terminate``: shows the transaction, asks, checks it again, then ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.transaction_verdicts import Verdict
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_table, to_json
from oncelog.cli.support.terminal import print_line
from oncelog.cli.txn.common import (
    COLUMNS,
    AuditLog,
    MinAge,
    OfBroker,
    Partition,
    Yes,
    audit_of,
    cells,
    confirmed,
    report_unanswered,
    scope_of,
    sentences,
)
from oncelog.cli.txn.stored import EXIT_REFUSED, StoredOptions, end_stored_transactions

if TYPE_CHECKING:
    from oncelog.admin.transactions.abort_marker import Aborted
    from oncelog.admin.transactions.audit_trail import Audit
    from oncelog.admin.transactions.cluster_scan import OpenTransaction
    from oncelog.client.blocking.client import Client


def abort(
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic it is in.")] = None,
    partition: Partition = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="OFFSET", min=0, help="The offset at which it begins.")
    ] = None,
    all_hanging: Annotated[
        bool, typer.Option("--all-hanging", help="All that find-hanging finds; --topic, --broker narrow it.")
    ] = False,
    broker: OfBroker = None,
    min_age_ms: MinAge = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also what does not certainly hang. Never what its coordinator is ending.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
    yes: Yes = False,
    audit_log: AuditLog = None,
    stored: StoredOptions = StoredOptions(),
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """End hanging transactions by a marker to their partition, or any open one by its stored identity.

    Shows them first, asks, and checks each once more. Live, completing and two-phase transactions are refused. On
    oncelog the leader takes the marker only for the transaction that begins at exactly this offset; on Apache Kafka,
    which knows no such thing, the check is repeated immediately before, and the race that remains is stated.

    With a stored identity (--transactional-id, --producer-id, --epoch) the coordinator aborts the transaction on all
    its partitions, if it is certainly the stored one; with a checkpoint it aborts those that the checkpoint does not
    count on. oncelog txn commit is the opposite.

    \b
    Examples:
      oncelog txn abort --topic orders --partition 3 --start-offset 550
      oncelog txn abort --all-hanging --dry-run
      oncelog txn abort --all-hanging --yes --audit-log /var/log/oncelog-audit.jsonl
      oncelog txn abort --transactional-id sink-0-1 --producer-id 4711 --epoch 3
    """
    if stored.are_given:
        _check_only_stored(topic, partition, start_offset, broker, min_age_ms, all_hanging, force)
        end_stored_transactions(stored, cluster, commit=False, dry_run=dry_run, yes=yes, audit_log=audit_log)
        return
    _check_arguments(topic, partition, start_offset, all_hanging)
    audit = audit_of(audit_log)
    with cluster.open_client() as client:
        selected, age_ms = _select(client, topic, partition, start_offset, broker, min_age_ms)
        _end_by_marker(client, selected, age_ms, force, dry_run, yes, audit, cluster)


def _end_by_marker(
    client: Client,
    selected: list[OpenTransaction],
    age_ms: int | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    audit: Audit,
    cluster: AdminOptions,
) -> None:
    """Show the selected transactions, ask, and end those that may be ended. Raises Exit."""
    from oncelog.admin.transactions.abort_marker import refusal

    options = cluster.as_arguments()
    refused = [(txn, text) for txn in selected if (text := refusal(txn, force=force, options=options)) is not None]
    to_abort = [txn for txn in selected if refusal(txn, force=force) is None]
    if not cluster.as_json:
        _show(selected, refused, to_abort)
    if dry_run or not to_abort:
        if cluster.as_json:
            dry = [_document(txn, "dry run", None) for txn in to_abort]
            print_json([*dry, *(_document(txn, "refused", text) for txn, text in refused)])
        elif dry_run and to_abort:
            print_line("nothing is changed: this was a dry run")
        raise typer.Exit(EXIT_REFUSED if refused else 0)
    if not confirmed(f"Abort {'it' if len(to_abort) == 1 else f'these {len(to_abort)}'}?", yes):
        print_line("oncelog: nothing was done; --yes does it without asking", err=True)
        raise typer.Exit(EXIT_REFUSED)
    results = _abort_all(client, to_abort, force, age_ms, audit, cluster.as_json)
    if cluster.as_json:
        ended = [
            _document(result.transaction, "failed" if result.error else "aborted", result.error, result)
            for result in results
        ]
        print_json([*ended, *(_document(txn, "refused", text) for txn, text in refused)])
    raise typer.Exit(EXIT_REFUSED if refused or any(result.error is not None for result in results) else 0)


def _check_arguments(topic: str | None, partition: int | None, start_offset: int | None, all_hanging: bool) -> None:
    if all_hanging and start_offset is not None:
        raise typer.BadParameter("give --start-offset or --all-hanging, not both")
    if not all_hanging and (topic is None or partition is None or start_offset is None):
        raise typer.BadParameter(
            "give --topic, --partition and --start-offset, or --all-hanging, or --transactional-id, --producer-id and "
            "--epoch, or a checkpoint"
        )


def _check_only_stored(*others: object) -> None:
    """Raises BadParameter if options of the other form are given: a marker takes another path than the coordinator."""
    if any(value is not None and value is not False for value in others):
        raise typer.BadParameter(
            "an identity or a checkpoint ends transactions through their coordinators: it goes without --topic, "
            "--partition, --start-offset, --all-hanging, --broker, --min-age-ms and --force"
        )


def _select(
    client: Client,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    broker: int | None,
    min_age_ms: int | None,
) -> tuple[list[OpenTransaction], int | None]:
    """The requested transactions, and the minimum age for the second check (0 for one named by its offset)."""
    from oncelog.admin.transactions.abort_marker import find_one
    from oncelog.admin.transactions.cluster_scan import scan

    if topic is not None and partition is not None and start_offset is not None:
        place = TopicPartition(TopicName(topic), partition)
        age_ms = min_age_ms or 0
        return [find_one(client, place, start_offset, min_age_ms=age_ms)], age_ms
    hanging = scan(client, scope_of([topic] if topic else None, partition, broker), min_age_ms=min_age_ms)
    report_unanswered(hanging.unanswered)
    if hanging.scanned_nothing:
        raise typer.Exit(EXIT_REFUSED)
    return hanging.of(Verdict.HANGING), min_age_ms


def _show(
    selected: list[OpenTransaction], refused: list[tuple[OpenTransaction, str]], to_abort: list[OpenTransaction]
) -> None:
    from oncelog.admin.transactions.abort_marker import race_of

    if not selected:
        print_line("no transaction hangs; there is nothing to abort")
        return
    print_table(COLUMNS, [cells(transaction) for transaction in selected])
    print_line()
    for transaction in selected:
        print_line(f"{transaction.topic_partition} from {transaction.start_offset}: {transaction.reason}.")
    for transaction, text in refused:
        print_line(
            f"oncelog: {transaction.topic_partition} from {transaction.start_offset} is refused: {text}", err=True
        )
    for race in dict.fromkeys(race for transaction in to_abort if (race := race_of(transaction)) is not None):
        sentences([f"{race[0].upper()}{race[1:]}."], indent="")


def _abort_all(
    client: Client, transactions: list[OpenTransaction], force: bool, age_ms: int | None, audit: Audit, as_json: bool
) -> list[Aborted]:
    from oncelog.admin.transactions.abort_marker import abort as abort_one

    results = []
    for transaction in transactions:
        result = abort_one(client, transaction, force=force, min_age_ms=age_ms, audit=audit)
        results.append(result)
        place = f"{transaction.topic_partition} from {transaction.start_offset}"
        if result.error is not None:
            print_line(f"oncelog: {place} was not aborted: {result.error}", err=True)
        elif not as_json:
            print_line(f"{place} aborted: {_moved(result)}")
        if result.warning is not None:
            print_line(f"oncelog: warning: {place}: {result.warning}", err=True)
    return results


def _moved(result: Aborted) -> str:
    if result.stable_after is None:
        return "its last stable offset could not be read"
    text = f"last stable offset {result.stable_before} → {result.stable_after}, end {result.end_offset}"
    if result.stable_after == result.end_offset:
        return f"{text}: everything can be read"
    if result.next_start is not None:
        return f"{text}: held by the next transaction, from offset {result.next_start}"
    return text


def _document(
    transaction: OpenTransaction, outcome: str, error: str | None, result: Aborted | None = None
) -> dict[str, Any]:
    from oncelog.admin.transactions.abort_marker import race_of

    document: dict[str, Any] = to_json(transaction.as_row())
    document |= {
        "outcome": outcome,
        "error": error,
        "by_start_offset": transaction.takes_start_offset,
        "race": race_of(transaction),
    }
    if result is not None and error is None:
        document |= {
            "last_stable_offset_before": result.stable_before,
            "last_stable_offset_after": result.stable_after,
            "end_offset": result.end_offset,
            "warning": result.warning,
        }
    return document


def force_terminate(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    yes: Yes = False,
    audit_log: AuditLog = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Have the coordinator abort an id's open transaction.

    On all its partitions, and also a prepared one. Its producer is fenced. A transaction prepared for two-phase
    commit is aborted even if it was decided outside to commit it: make sure that it was not. A transaction that the
    coordinator has forgotten is ended by abort.

    \b
    Examples:
      oncelog txn force-terminate payments-7
      oncelog txn force-terminate payments-7 --yes --json
    """
    from oncelog.admin.transactions.termination import force_terminate as terminate
    from oncelog.admin.transactions.termination import warning_of
    from oncelog.admin.transactions.transactional_ids import describe_transaction

    audit = audit_of(audit_log)
    with cluster.open_client() as client:
        row = describe_transaction(client, transactional_id)
        if row.is_open:
            print_line(f"warning: {warning_of(row)}", err=True)
            listed = ", ".join(map(str, sorted(row.partitions)[:8]))
            if not cluster.as_json:
                print_line(f"{transactional_id} is {row.state} with producer id {row.producer_id}: {listed}")
            if not confirmed("Terminate it?", yes):
                print_line("oncelog: nothing was done; --yes does it without asking", err=True)
                raise typer.Exit(EXIT_REFUSED)
        done = terminate(client, transactional_id, audit=audit)
    if cluster.as_json:
        print_json({"done": done.done, "before": done.before, "after": done.after})
        return
    if not done.done:
        print_line(f"{transactional_id} has no open transaction ({done.after.state}); nothing was done")
        return
    print_line(f"{transactional_id}: {done.before.state} → {done.after.state}, epoch {done.after.producer_epoch}")
    for partition, bounds in done.bounds.items():
        print_line(f"{partition}: last stable offset {bounds.last_stable_offset}, end {bounds.end_offset}")
