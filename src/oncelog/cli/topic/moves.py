"""``oncelog topic reassign`` and ``oncelog topic elect``: the replicas of partitions, and their leaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.cli.support.failures import EXIT_FAILED, complain
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_result, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.arguments import partitions_named
from oncelog.cli.topic.reassignment_progress import Timeout, show_reassignments, wait_until_moved
from oncelog.cli.topic.throttles import (
    Rate,
    Unthrottle,
    throttle_plan,
    throttle_under_way,
    unthrottle_all,
    unthrottle_moved,
)

if TYPE_CHECKING:
    from oncelog.admin.reassignments import PartitionOutcome, Replicas
    from oncelog.client.blocking.client import Client

    Plan = Mapping[TopicPartition, Replicas]


@dataclass(frozen=True)
class MoveOptions:
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A plan as kafka-reassign-partitions takes it.")
    ] = None
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,2-4]", help="The topic to move; may be repeated."),
    ] = None
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="1,2,3", help="Spread --topic over these brokers.")
    ] = None
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="COUNT",
            min=1,
            help="With --brokers: the new number of replicas. Default: as it is.",
        ),
    ] = None

    @property
    def is_named(self) -> bool:
        return bool(self.file or self.topic)

    def check(self, *, alone: bool, cancel: bool, throttle: int | None) -> None:
        """Raises BadParameter for options that exclude each other. ``alone``: an exclusive one is given."""
        if alone and (cancel or self.is_named or self.brokers or throttle):
            raise typer.BadParameter(
                "cannot be combined with --file, --topic, --brokers, --throttle or --cancel; leave them out",
                param_hint="--list, --unthrottle",
            )
        if throttle and cancel:
            raise typer.BadParameter("cannot be combined with --cancel; leave one of them out", param_hint="--throttle")
        if self.file and (self.topic or self.brokers):
            raise typer.BadParameter(
                "cannot be combined with --topic and --brokers; leave one of them out", param_hint="--file"
            )
        if cancel and self.brokers:
            raise typer.BadParameter("cannot be combined with --brokers; leave them out", param_hint="--cancel")
        if self.replication_factor is not None and not self.brokers:
            raise typer.BadParameter("needs --topic and --brokers", param_hint="--replication-factor")
        has_plan = self.file or (self.topic and self.brokers)
        if not (alone or cancel or has_plan or (throttle and not self.topic and not self.brokers)):
            raise typer.BadParameter("give --file, or --topic and --brokers, or --list, or --cancel")

    def plan(self, client: Client) -> Plan:
        """The new replicas of each partition. Raises BadParameter, PlanRefused."""
        if self.file is not None:
            return _from_file(self.file)
        return _spread(client, self.topic, self.brokers or "", self.replication_factor)


def reassign(
    options: MoveOptions = MoveOptions(),
    list_: Annotated[bool, typer.Option("--list", help="List the moves under way, nothing else.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the moves under way: all, or those of --topic or --file.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the replicas have moved.")] = False,
    throttle: Rate = None,
    unthrottle: Unthrottle = False,
    timeout: Timeout = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; --json as kafka-reassign-partitions takes it.")
    ] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Move the replicas of topics to other brokers, or give a topic more replicas or fewer.

    Goes on in the cluster once begun, whether it is waited for or not. Exits with 0 when all of it was accepted, with
    --wait when all of it is done. A throttle applies to new replicas, not to those in sync; with --wait it is removed
    at the end.

    \b
    Examples:
      oncelog topic reassign --topic flights --brokers 1,2,3 --dry-run
      oncelog topic reassign --topic flights --brokers 1,2,3 --replication-factor 3 --wait
      oncelog topic reassign --file moves.json --wait --timeout 3600
      oncelog topic reassign --file moves.json --throttle 50000000 --wait
      oncelog topic reassign --throttle 200000000    # speeds up moves under way
      oncelog topic reassign --list
      oncelog topic reassign --cancel --topic flights
    """
    options.check(alone=list_ or unthrottle, cancel=cancel, throttle=throttle)
    with cluster.open_client() as client:
        if list_:
            _list(client, cluster.as_json)
        elif cancel:
            _cancel(client, options.file, options.topic, cluster.as_json)
        elif unthrottle or (throttle and not options.is_named):
            _change_throttles(client, throttle, cluster.as_json)
        else:
            plan = options.plan(client)
            if dry_run:
                _show(plan, cluster.as_json)
            else:
                _carry_out(client, plan, timeout if wait else 0, wait, throttle, cluster.as_json)


def _list(client: Client, as_json: bool) -> None:
    from oncelog.admin.reassignments import list_reassignments

    rows = list_reassignments(client)
    if as_json:
        print_json(rows)
    elif rows:
        show_reassignments(rows)
    else:
        print_line("no reassignment is under way")


def _from_file(file: Path) -> Plan:
    from oncelog.admin.reassignment_plan import PlanRefused, parse_assignment

    try:
        return parse_assignment(file.read_text(encoding="utf-8"))
    except (PlanRefused, UnicodeDecodeError) as error:
        raise PlanRefused(f"{file}: {error}") from None


def _spread(client: Client, topics: list[str] | None, brokers: str, replication_factor: int | None) -> Plan:
    from oncelog.admin.cluster import registered_brokers
    from oncelog.admin.reassignment_plan import PlanRefused, plan_spread

    try:
        chosen = {int(part) for part in brokers.split(",")}
    except ValueError:
        raise typer.BadParameter(
            f"{brokers!r} is not a list of broker ids, such as 1,2,3", param_hint="--brokers"
        ) from None
    racks = {broker.broker_id: broker.rack for broker in registered_brokers(client) if not broker.is_fenced}
    missing = sorted(chosen - set(racks))
    if missing:
        alive = ", ".join(map(str, sorted(racks)))
        raise PlanRefused(f"broker {missing[0]} is not in the cluster, or is fenced; the brokers are {alive}")
    assignment = {
        at: client.topic(at.topic).partitions[at.partition].replicas
        for at in partitions_named(client, topics, led=False) or ()
    }
    return plan_spread(assignment, {broker: racks[broker] for broker in chosen}, replication_factor)


def _show(plan: Plan, as_json: bool) -> None:
    from oncelog.admin.reassignment_plan import assignment_json

    if as_json:
        print_json(assignment_json(plan))
    elif plan:
        print_table(
            ("topic", "partition", "moves to"),
            [(at.topic, at.partition, ",".join(map(str, new))) for at, new in sorted(plan.items())],
        )
    else:
        print_line("nothing has to move")


def _change_throttles(client: Client, rate: int | None, as_json: bool) -> None:
    """Throttles the reassignments under way, or removes all throttles (``rate`` None)."""
    if rate is None:
        told = unthrottle_all(client)
    else:
        count = throttle_under_way(client, rate)
        told = "nothing is being moved"
        if count:
            told = f"{counted(count, 'partition')} being moved, at {rate:,} bytes a second at most"
    print_result(told, {"outcome": told}, as_json=as_json)


def _carry_out(
    client: Client, plan: Plan, timeout_s: float | None, wait: bool, throttle: int | None, as_json: bool
) -> None:
    """Starts the moves and, with ``wait``, waits for them. Raises Exit(1) if one is refused or not done."""
    from oncelog.admin.reassignments import list_reassignments, reassign

    if throttle is not None and plan:
        throttle_plan(client, plan, throttle)
    outcomes = reassign(client, plan)
    if not outcomes and not as_json:
        print_line("nothing has to move")
        return
    accepted = {(outcome.topic, outcome.partition) for outcome in outcomes if outcome.error is None}

    def left() -> int:
        return sum(
            (reassignment.topic, reassignment.partition) in accepted for reassignment in list_reassignments(client)
        )

    done = wait_until_moved("moving", left, timeout_s) if wait else True
    unfinished = left() if not done else 0
    if throttle is not None and plan:
        if wait and not unfinished:
            unthrottle_moved(client, {at.topic for at in plan})
        else:
            print_line(
                f"oncelog: {throttle} bytes a second at most; when it is done: oncelog topic reassign --unthrottle",
                err=True,
            )
    _print_outcomes(outcomes, "moved" if wait and done else "is being moved", as_json)
    if unfinished:
        complain(f"{unfinished} of {counted(len(accepted), 'partition')} still being moved; it goes on in the cluster")
    if unfinished or len(accepted) < len(outcomes):
        raise typer.Exit(EXIT_FAILED)


def _cancel(client: Client, file: Path | None, topic: list[str] | None, as_json: bool) -> None:
    """Cancels reassignments under way. Raises Exit(1) if one cannot be cancelled."""
    from oncelog.admin.reassignments import list_reassignments, reassign

    under_way = [
        TopicPartition(TopicName(reassignment.topic), reassignment.partition)
        for reassignment in list_reassignments(client)
    ]
    named = set(_from_file(file)) if file is not None else set(partitions_named(client, topic, led=False) or under_way)
    outcomes = reassign(client, dict.fromkeys(partition for partition in under_way if partition in named))
    if not outcomes and not as_json:
        print_line("no reassignment is under way")
        return
    _print_outcomes(outcomes, "stays where it was", as_json)
    if any(outcome.error is not None for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED)


def _print_outcomes(outcomes: list[PartitionOutcome], done: str, as_json: bool) -> None:
    if as_json:
        print_json(outcomes)
    for outcome in outcomes:
        if outcome.error is not None:
            complain(f"{outcome.topic}-{outcome.partition}: {outcome.error}")
        elif not as_json:
            print_line(f"{outcome.topic}-{outcome.partition} {done}")


def elect(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC[:0,2-4]]…", help="Default: all partitions (preferred only).")
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Let a replica lead that was not in sync: what it lacks is LOST.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="All partitions of the cluster.")] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Make the first replica of each partition its leader again; or let any replica lead where none is in sync.

    \b
    Examples:
      oncelog topic elect
      oncelog topic elect flights:0,2-4
      oncelog topic elect flights:0 --unclean     # the replicas with all records of flights-0 are lost
    """
    from oncelog.admin.reassignments import Election, elect_leaders

    if topics and everything:
        raise typer.BadParameter("cannot be combined with topics; leave one of them out", param_hint="--all")
    if unclean and not (topics or everything):
        raise typer.BadParameter("name the topics that may lose records, or give --all", param_hint="--unclean")
    with cluster.open_client() as client:
        partitions = partitions_named(client, topics, led=False)
        outcomes = elect_leaders(client, Election.UNCLEAN if unclean else Election.PREFERRED, partitions)
    elected = [outcome for outcome in outcomes if outcome.error_code != ErrorCode.ELECTION_NOT_NEEDED]
    _print_outcomes(outcomes if cluster.as_json else elected, "has an elected leader", cluster.as_json)
    if not elected and not cluster.as_json:
        print_line("no election was needed")
    if any(outcome.error is not None for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED)
