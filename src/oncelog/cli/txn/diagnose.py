"""``oncelog txn find-hanging`` and ``explain``: finds hanging transactions and explains stuck consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.notation.shell_words import option
from oncelog.base.transaction_verdicts import Verdict
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.txn.common import (
    COLUMNS,
    EXIT_HANGING,
    FailOnHanging,
    MinAge,
    OfBroker,
    Partition,
    Topics,
    cells,
    progress_on_terminal,
    report_unanswered,
    scope_of,
    sentences,
)

if TYPE_CHECKING:
    from oncelog.admin.transactions.cluster_scan import Scan
    from oncelog.admin.transactions.explanations import Explanation


def find_hanging(
    topics: Topics = None,
    partition: Partition = None,
    broker: OfBroker = None,
    min_age_ms: MinAge = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every open transaction: the live and the suspected ones too.")
    ] = False,
    fail_on_hanging: FailOnHanging = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Find transactions that no coordinator is going to end.

    Looks at the whole cluster, or a part of it. Every open transaction is laid beside what its coordinator says. It
    hangs when the coordinator has forgotten it, moved past its epoch, or does not list the partition; it is live
    while the coordinator lists it, however old it is.

    \b
    Examples:
      oncelog txn find-hanging --bootstrap-servers kafka-1:9092
      oncelog txn find-hanging --topic orders --all
      oncelog txn find-hanging --json --fail-on-hanging
    """
    from oncelog.admin.transactions.cluster_scan import scan

    scope = scope_of(topics, partition, broker)
    with (
        cluster.open_client() as client,
        progress_on_terminal() as progress,
    ):
        open_transactions = scan(client, scope, min_age_ms=min_age_ms, progress=progress)
    report_unanswered(open_transactions.unanswered)
    hanging = open_transactions.of(Verdict.HANGING)
    shown = open_transactions.transactions if every else hanging
    if cluster.as_json:
        print_json([transaction.as_row() for transaction in shown])
    else:
        if shown:
            print_table(COLUMNS, [cells(transaction) for transaction in shown])
            print_line()
            for transaction in shown:
                print_line(f"{transaction.topic_partition} from {transaction.start_offset}: {transaction.reason}.")
            print_line()
        print_line(summary(open_transactions, every))
        if hanging:
            first = hanging[0].producer
            more = cluster.as_arguments()
            print_line(
                f"why, and what to do: oncelog txn explain {option('--topic', first.topic)} "
                f"--partition {first.partition}{more}"
            )
    if open_transactions.scanned_nothing:
        raise typer.Exit(1)
    if fail_on_hanging and hanging:
        raise typer.Exit(EXIT_HANGING)


def summary(open_transactions: Scan, every: bool) -> str:
    counts = {verdict: len(open_transactions.of(verdict)) for verdict in Verdict}
    text = (
        f"{counts[Verdict.HANGING]} hanging of {len(open_transactions.transactions)} open transactions "
        f"in {open_transactions.partitions:,} partitions"
    )
    others = [
        f"{counts[verdict]} {verdict.value.replace('_', '-')}"
        for verdict in (Verdict.SUSPECTED, Verdict.TWO_PHASE, Verdict.LIVE)
        if counts[verdict]
    ]
    if others:
        text += f" ({', '.join(others)}" + ("" if every else "; --all shows them") + ")"
    return text


def explain(
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="A consumer group that does not advance.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="A topic that cannot be read to its end.")
    ] = None,
    partition: Partition = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", "-i", metavar="ID", help="A transactional id.")
    ] = None,
    fail_on_hanging: FailOnHanging = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Tell why a consumer of committed records is stuck.

    Which transaction holds it, whose, since when, what its coordinator says, who else waits, when it clears by itself,
    and the command that ends it. For a consumer that no transaction holds, prints that, and the other reason.

    \b
    Examples:
      oncelog txn explain --group watchers
      oncelog txn explain --topic orders --partition 3
      oncelog txn explain --transactional-id payments-7 --json
    """
    from oncelog.admin.transactions.explanations import explain_group, explain_id, explain_topic

    if sum(subject is not None for subject in (group, topic, transactional_id)) != 1:
        raise typer.BadParameter("give exactly one of --group, --topic, --transactional-id")
    if partition is not None and topic is None:
        raise typer.BadParameter("give the --topic it belongs to", param_hint="--partition")
    options = cluster.as_arguments()
    with cluster.open_client() as client:
        if group is not None:
            explanation = explain_group(client, group, options=options)
        elif topic is not None:
            explanation = explain_topic(client, topic, partition, options=options)
        else:
            explanation = explain_id(client, transactional_id or "", options=options)
    report_unanswered(explanation.unanswered)
    if cluster.as_json:
        print_json(explanation)
    else:
        _print(explanation)
    if fail_on_hanging and explanation.hangs:
        raise typer.Exit(EXIT_HANGING)


def _print(explanation: Explanation) -> None:
    for number, chain in enumerate(explanation.chains):
        if number:
            print_line()
        print_line(chain.about + (f": {chain.verdict.replace('_', '-')}" if chain.verdict else ""))
        sentences(chain.sentences)
        if chain.advice:
            sentences([chain.advice])
        for command in chain.commands:
            print_line(f"      {command}")
