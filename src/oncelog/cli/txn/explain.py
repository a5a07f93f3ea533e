"""``oncelog explain``: why a group, topic, partition, producer or transactional id is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.units import MINUTE_MS
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json
from oncelog.cli.support.terminal import print_line
from oncelog.cli.txn.common import report_unanswered, sentences

if TYPE_CHECKING:
    from oncelog.admin.explain.findings import Finding, Report

EXIT_STUCK: Final = 2
"""The exit code with --fail-on-stuck."""

app = CommandGroup("Explain why a group, topic, partition, producer or transactional id is stuck.")

FailOnStuck = Annotated[bool, typer.Option("--fail-on-stuck", help=f"Exit with {EXIT_STUCK} if something is stuck.")]


@app.command()
def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    window: Annotated[
        float, typer.Option("--window", metavar="MINUTES", min=0.1, help="How far back its commits are read.")
    ] = 15,
    principal: Annotated[
        str | None,
        typer.Option(
            "--principal", metavar="USER", help="The principal as which its members log in: check that it may read."
        ),
    ] = None,
    fail_on_stuck: FailOnStuck = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Tell why a consumer group does not advance.

    Its coordinator, members, rebalances, and partitions that do not change hands; offsets behind retention, beyond the
    end, or held by a transaction; a member that does not commit, a partition that stands still, and the record that
    comes next there; quotas and permissions; partitions without a leader. Things that only look like faults are named
    as such.

    \b
    Examples:
      oncelog explain group billing
      oncelog explain group billing --principal app --window 60
      oncelog explain group billing --json --fail-on-stuck
    """
    from oncelog.admin.explain.targets import explain_group

    who = principal if principal is None or ":" in principal else f"User:{principal}"
    _explain(cluster, fail_on_stuck, explain_group, name, window_ms=int(window * MINUTE_MS), principal=who)


@app.command()
def topic(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    fail_on_stuck: FailOnStuck = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Tell why a topic cannot be written, or read to its end.

    \b
    Examples:
      oncelog explain topic orders
      oncelog explain topic orders --bootstrap-servers kafka-1:9092 --json
    """
    from oncelog.admin.explain.targets import explain_topic

    _explain(cluster, fail_on_stuck, explain_topic, name)


@app.command()
def partition(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    number: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition's number.")],
    fail_on_stuck: FailOnStuck = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Tell why a partition cannot be written, or read to its end.

    \b
    Examples:
      oncelog explain partition orders 3
    """
    from oncelog.admin.explain.targets import explain_topic

    _explain(cluster, fail_on_stuck, explain_topic, name, number)


@app.command()
def producer(
    producer_id: Annotated[int, typer.Argument(metavar="PRODUCER-ID", min=0, help="The producer id.")],
    fail_on_stuck: FailOnStuck = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Tell what a producer id is, what it has open, and who waits for it.

    \b
    Examples:
      oncelog explain producer 4711
    """
    from oncelog.admin.explain.targets import explain_producer

    _explain(cluster, fail_on_stuck, explain_producer, producer_id)


@app.command()
def txn(
    name: Annotated[str, typer.Argument(metavar="TRANSACTIONAL-ID", help="The transactional id.")],
    fail_on_stuck: FailOnStuck = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Tell what a transactional id is doing, what it holds, and who waits for it.

    \b
    Examples:
      oncelog explain txn payments-7
    """
    from oncelog.admin.explain.targets import explain_txn

    _explain(cluster, fail_on_stuck, explain_txn, name)


def _explain(
    cluster: AdminOptions, fail_on_stuck: bool, explain: Callable[..., Report], *subject: object, **more: object
) -> None:
    """Prints the report of ``explain`` about a subject. Raises Exit."""
    options = cluster.as_arguments()
    with cluster.open_client() as client:
        report = explain(client, *subject, options=options, **more)
    report_unanswered(report.unanswered)
    if cluster.as_json:
        print_json(report)
    else:
        _print(report)
    if fail_on_stuck and report.is_stuck:
        raise typer.Exit(EXIT_STUCK)


def _print(report: Report) -> None:
    if report.summary:
        print_line(report.summary)
    for finding in report.findings:
        print_line()
        print_line(f"{finding.about}: {finding.cause.value} ({finding.severity.value})")
        _print_finding(finding)
    if report.happened:
        print_line()
        print_line("lately:")
        sentences(report.happened)
    if report.unknown:
        print_line()
        print_line("not known:")
        sentences(report.unknown)


def _print_finding(finding: Finding) -> None:
    sentences(finding.sentences)
    if finding.since_ms is not None:
        ago_ms = max(0, int(time.time() * 1000) - finding.since_ms)
        sentences([f"Since {moment_text(finding.since_ms)}, {duration_text(ago_ms)} ago."])
    elif finding.no_since:
        sentences([f"Since when is not known: {finding.no_since}."])
    if finding.affected:
        sentences([f"Affected: {', '.join(finding.affected)}."])
    if finding.clears:
        sentences([finding.clears])
    if finding.advice:
        sentences([finding.advice])
    for command in finding.commands:
        print_line(f"      {command}")
