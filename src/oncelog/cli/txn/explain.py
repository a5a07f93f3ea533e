"""``oncelog explain``: why a cluster, group, topic, partition, producer or transactional id is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.base.units import MINUTE_MS
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.txn.common import progress_on_terminal, report_unanswered, sentences

if TYPE_CHECKING:
    from oncelog.admin.explain.cluster_report import Problem
    from oncelog.admin.explain.findings import Finding, Report

EXIT_STUCK: Final = 2
"""The exit code with --fail-on-stuck."""
_KINDS: Final = {
    "transaction": "transaction",
    "group": "group",
    "id": "transactional id",
    "ids": "transactional ids",
}
_MOST_DETAILS: Final = 10
"""Problems of a cluster that are printed with their sentences below the table."""

app = CommandGroup("Explain why a cluster, group, topic, partition, producer or transactional id is stuck.")

Principal = Annotated[
    str | None,
    typer.Option(
        "--principal", metavar="USER", help="The principal as which a group's members log in: check that it may read."
    ),
]
FailOnStuck = Annotated[bool, typer.Option("--fail-on-stuck", help=f"Exit with {EXIT_STUCK} if something is stuck.")]


@app.command("cluster")
def cluster_(
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="CAUSE", help="Leave out a cause, such as no-members; may be repeated."),
    ] = None,
    principal: Principal = None,
    fail_on_stuck: FailOnStuck = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Tell everything that is wrong in a cluster now, worst first.

    The causes of all groups, topics, brokers and transactions, one line each: hanging transactions first, with all
    groups that wait for them. A transaction that its coordinator will end in time is a note, and only after 30 seconds.

    \b
    Examples:
      oncelog explain cluster --bootstrap-servers kafka-1:9092
      oncelog explain cluster --json --fail-on-stuck
      oncelog explain cluster --fail-on-stuck --ignore no-members || echo stuck
    """
    from oncelog.admin.explain.findings import Cause
    from oncelog.admin.explain.whole_cluster import explain_cluster

    names = {cause.value for cause in Cause}
    if unknown := sorted({*(ignore or ())} - names):
        raise typer.BadParameter(
            f"no cause {unknown[0]!r}; there are {', '.join(sorted(names))}", param_hint="--ignore"
        )
    with cluster.open_client() as client, progress_on_terminal("steps") as progress:
        options, user = cluster.as_arguments(), _principal(principal)
        report = explain_cluster(client, options=options, principal=user, progress=progress)
    problems = [problem for problem in report.problems if problem.cause.value not in (ignore or ())]
    for question in report.unknown:
        print_line(f"oncelog: not known: {question}", err=True)
    is_stuck = any(problem.severity.value == "stuck" for problem in problems)
    if cluster.as_json:
        document = {"summary": report.summary, "is_stuck": is_stuck, "counts": report.counts}
        ids = {"timed_out": report.id_facts.ends.repeated, "unused_ids": report.id_facts.census.unused}
        print_json(document | {"problems": problems, "unknown": report.unknown, "now_ms": report.now_ms} | ids)
    else:
        _print_problems(report.summary, problems, report.now_ms)
    if fail_on_stuck and is_stuck:
        raise typer.Exit(EXIT_STUCK)


@app.command()
def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    window: Annotated[
        float, typer.Option("--window", metavar="MINUTES", min=0.1, help="How far back its commits are read.")
    ] = 15,
    principal: Principal = None,
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

    window_ms = int(window * MINUTE_MS)
    _explain(cluster, fail_on_stuck, explain_group, name, window_ms=window_ms, principal=_principal(principal))


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


def _principal(name: str | None) -> str | None:
    return name if name is None or ":" in name else f"User:{name}"


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


def _print_problems(summary: str, problems: list[Problem], now_ms: int) -> None:
    print_line(summary)
    if not problems:
        return
    print_line()
    print_table(
        ("severity", "cause", "about", "for", "waiting", "partitions"),
        [
            (
                problem.severity.value,
                problem.verdict.replace("_", "-") if problem.verdict else problem.cause.value,
                f"{_KINDS[problem.kind]} {problem.name}" if problem.kind in _KINDS else problem.name,
                None if problem.since_ms is None else duration_text(max(0, now_ms - problem.since_ms)),
                _names(problem.groups),
                _names([str(partition) for partition in problem.partitions]),
            )
            for problem in problems
        ],
    )
    for problem in problems[:_MOST_DETAILS]:
        print_line()
        print_line(f"{problem.name}:")
        more = [f"It has {problem.more} more causes."] if problem.more > 1 else ["It has 1 more cause."]
        sentences([problem.text, *([problem.clears] if problem.clears else []), *(more if problem.more else [])])
        for command in dict.fromkeys([*problem.commands, problem.explain]):
            print_line(f"      {command}")
    if len(problems) > _MOST_DETAILS:
        print_line()
        print_line(f"The other {len(problems) - _MOST_DETAILS} in full: --json")


def _names(names: Sequence[str]) -> str | None:
    """A cell that stays narrow; --json has all names."""
    if not names:
        return None
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


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
