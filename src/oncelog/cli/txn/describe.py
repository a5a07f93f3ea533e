"""``oncelog txn list``, ``describe`` and ``producers``: prints the answers of coordinators and leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.ids import TopicPartition
from oncelog.cli.support.failures import complain
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_json_rows, print_long_table, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.arguments import partitions_named
from oncelog.cli.txn.common import report_unanswered

if TYPE_CHECKING:
    from oncelog.admin.transactions.transactional_ids import TransactionRow
    from oncelog.client.blocking.client import Client

SORTS = ("id", "producer", "state", "coordinator")


def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state (Ongoing, Empty, …); may be repeated."),
    ] = None,
    longer_than_ms: Annotated[
        int, typer.Option("--longer-than-ms", metavar="MS", help="Only those open for longer, by their coordinator.")
    ] = -1,
    pattern: Annotated[
        str | None,
        typer.Option("--id-pattern", metavar="RE2", help="Only ids that this regular expression matches as a whole."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="NUMBER", help="Only of this producer id; may be repeated."),
    ] = None,
    coordinator: Annotated[
        list[int] | None,
        typer.Option("--coordinator", metavar="BROKER", help="Ask this coordinator only; may be repeated."),
    ] = None,
    sort: Annotated[str, typer.Option(metavar="COLUMN", help="By id, producer, state or coordinator.")] = "id",
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """List the transactional ids of all coordinators.

    Coordinators that do not answer are named on stderr: ids that are not in the list may be theirs.

    \b
    Examples:
      oncelog txn list --state Ongoing --longer-than-ms 60000
      oncelog txn list --id-pattern 'payments-.*' --json
    """
    from oncelog.admin.transactions.id_pages import by_id, epochs_of, sorted_ids, with_epochs
    from oncelog.admin.transactions.transactional_ids import ListFilter

    if sort not in SORTS:
        raise typer.BadParameter(f"{sort!r} is not one of {', '.join(SORTS)}", param_hint="--sort")
    list_filter = ListFilter(tuple(state or ()), tuple(producer_id or ()), longer_than_ms, pattern)
    name = {"producer": "producer_id"}.get(sort, sort)
    key = by_id if sort == "id" else lambda row: (getattr(row, name), row.transactional_id)
    with cluster.open_client() as client:
        listing = sorted_ids(client, list_filter, coordinators=coordinator or None, key=key)
        epochs = epochs_of(client, listing)
    report_unanswered(listing.unanswered)
    if cluster.as_json:
        print_json_rows(with_epochs(listing, epochs))
    else:
        print_long_table(
            ("transactional id", "producer", "epoch", "state", "coordinator"),
            lambda: (
                (row.transactional_id, row.producer_id, row.producer_epoch, row.state, row.coordinator)
                for row in with_epochs(listing, epochs)
            ),
        )
    if listing.unanswered and not listing.answered:
        raise typer.Exit(1)


def describe(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Transactional ids.")],
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Show what coordinators know of transactional ids.

    State, producer, time-out, start, and of each partition how far it can be read.

    \b
    Examples:
      oncelog txn describe payments-7
      oncelog txn describe payments-7 payments-8 --json
    """
    from oncelog.admin.transactions.transactional_ids import describe_transactions

    failed = False
    documents = []
    with cluster.open_client() as client:
        described = describe_transactions(client, ids)
        for name in dict.fromkeys(ids):
            row = described.rows.get(name)
            if row is None:
                failed = True
                unanswered = described.unanswered.get(name)
                complain(f"transactional id {name!r}: {unanswered or 'its coordinator does not know it'}")
            elif cluster.as_json:
                documents.append(_document(client, row))
            else:
                if row is not next(iter(described.rows.values())):
                    print_line()
                _print(client, row)
    if cluster.as_json:
        print_json(documents)
    if failed:
        raise typer.Exit(1)


def _lags(client: Client, row: TransactionRow) -> list[tuple[TopicPartition, int | None, int | None]]:
    """Each partition with its last stable offset and lag."""
    from oncelog.admin.transactions.partition_offsets import bounds_of

    client.metadata({partition.topic for partition in row.partitions})
    bounds, unanswered = bounds_of(client, sorted(row.partitions))
    report_unanswered(unanswered)
    lags: list[tuple[TopicPartition, int | None, int | None]] = []
    for partition in sorted(row.partitions):
        bound = bounds.get(partition)
        lags.append((partition, None, None) if bound is None else (partition, bound.last_stable_offset, bound.held))
    return lags


def _age_ms(row: TransactionRow) -> int | None:
    import time

    return None if row.start_ms is None else max(0, int(time.time() * 1000) - row.start_ms)


def _document(client: Client, row: TransactionRow) -> dict[str, object]:
    return {
        "transactional_id": row.transactional_id,
        "coordinator": row.coordinator,
        "state": row.state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "timeout_ms": None if row.is_two_phase else row.timeout_ms,
        "two_phase": row.is_two_phase,
        "start_ms": row.start_ms,
        "client_id": row.client_id,
        "client_host": row.client_host,
        "age_ms": _age_ms(row),
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition, "last_stable_offset": stable, "lag": lag}
            for partition, stable, lag in _lags(client, row)
        ],
    }


def _print(client: Client, row: TransactionRow) -> None:
    timeout = "none (two-phase commit)" if row.is_two_phase else duration_text(row.timeout_ms)
    age_ms = _age_ms(row)
    print_line(
        f"transactional id {row.transactional_id}  state {row.state}  producer {row.producer_id}  "
        f"epoch {row.producer_epoch}  coordinator {row.coordinator}  time-out {timeout}"
    )
    if row.client:
        print_line(row.client)
    if age_ms is not None and row.start_ms is not None:
        begun = f"begun {moment_text(row.start_ms)}, {duration_text(age_ms)} ago"
        print_line(begun if row.is_open else f"no transaction open; the last one was {begun}")
    if row.partitions:
        print_table(
            ("topic", "partition", "last stable", "lag"),
            [(partition.topic, partition.partition, stable, lag) for partition, stable, lag in _lags(client, row)],
        )


def producers(
    partitions: Annotated[
        list[str], typer.Argument(metavar="TOPIC[:PARTITION]…", help="Topics, or partitions as topic:0,2-4.")
    ],
    open_only: Annotated[bool, typer.Option("--open", help="Only those that have a transaction open.")] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Show the producers that partition leaders remember.

    START is where an open transaction begins; ID whose it is, where the leader knows that (oncelog's do).

    \b
    Examples:
      oncelog txn producers orders
      oncelog txn producers orders:3 --open --json
    """
    from oncelog.admin.transactions.producers import describe_producers

    with cluster.open_client() as client:
        described = describe_producers(client, partitions_named(client, partitions) or [], open_only=open_only)
    report_unanswered(described.unanswered)
    if cluster.as_json:
        print_json(described.rows)
    else:
        print_table(
            ("topic", "partition", "producer", "epoch", "sequence", "last written", "coordinator epoch", "start", "id"),
            [
                (
                    row.topic,
                    row.partition,
                    row.producer_id,
                    row.producer_epoch,
                    row.last_sequence,
                    moment_text(row.last_timestamp_ms) if row.last_timestamp_ms >= 0 else None,
                    row.coordinator_epoch,
                    row.start_offset,
                    row.transactional_id or None,
                )
                for row in described.rows
            ],
        )
    if described.unanswered and not described.partitions:
        raise typer.Exit(1)
