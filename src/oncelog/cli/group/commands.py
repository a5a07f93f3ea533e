"""``oncelog group``: list, describe, reset-offsets, delete, migrate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.group import zookeeper as group_zookeeper
from oncelog.cli.support.failures import complain
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions, time_option
from oncelog.cli.support.output import print_json, print_rows, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.arguments import partitions_named
from oncelog.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.admin.groups import GroupDescription, LagRow, ResetTo

app = CommandGroup("List, describe, reset, delete and move consumer groups.")

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", metavar="HOST:PORT,…/CHROOT", help="Groups whose offsets are in the cluster's ZooKeeper."
    ),
]


_STATES: Final = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"),
    *("Assigning", "Reconciling", "NotReady"),  # of groups of the consumer protocol and of other types
)
_NOT_SHOWN: Final = "members of this type of group are not shown; Apache Kafka's tools have them"


def _named(given: list[str] | None, names: Sequence[str], option: str) -> list[str]:
    """The values of an option, with the names that they match in any case. Raises BadParameter."""
    by_text = {name.lower(): name for name in names}
    for text in given or ():
        if text.lower() not in by_text:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(names)}", param_hint=option)
    return [by_text[text.lower()] for text in given or ()]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state (Stable, Empty, …); may be repeated."),
    ] = None,
    group_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only classic, consumer, share or streams; may be repeated."),
    ] = None,
    zookeeper: ZooKeeper = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """List groups, of every type and protocol.

    \b
    Examples:
      oncelog group list
      oncelog group list --type consumer --state Reconciling
      oncelog group list --state Empty --json
      oncelog group list --zookeeper localhost:2181/kafka
    """
    from oncelog.admin.groups import GROUP_TYPES, list_groups

    types = _named(group_type, GROUP_TYPES, "--type")
    if zookeeper is not None:
        if types:
            raise typer.BadParameter("groups in ZooKeeper have no type; leave it out", param_hint="--type")
        group_zookeeper.list_groups(zookeeper, state or [], cluster.as_json)
        return
    states = _named(state, _STATES, "--state")
    with cluster.open_client() as client:
        rows = list_groups(client, states, types)
    print_rows(
        ("group", "state", "type", "protocol", "coordinator"),
        [(r.group, r.state or None, r.group_type or None, r.protocol_type or None, r.coordinator) for r in rows],
        rows,
        as_json=cluster.as_json,
    )


@app.command()
def describe(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP…", help="The groups' ids.")],
    members: Annotated[bool, typer.Option("--members", help="Members instead of partitions.")] = False,
    zookeeper: ZooKeeper = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Show the committed offsets of groups, their lag, and the members that have each partition.

    In a group of the consumer protocol, "moves to" names the member that waits for a partition. --members shows the
    epochs of its members, and what each still has to give up and waits for.

    \b
    Examples:
      oncelog group describe watchers
      oncelog group describe watchers --members
      oncelog group describe watchers --json
    """
    from oncelog.admin.groups import describe_group, group_lag

    if zookeeper is not None:
        keys = cluster.client_settings()
        group_zookeeper.describe_groups(zookeeper, groups, keys, members=members, as_json=cluster.as_json)
        return
    documents = []
    with cluster.open_client() as client:
        for number, name in enumerate(groups):
            description = describe_group(client, name)
            needs_lag = description.commits_offsets and (cluster.as_json or not members)
            lag = group_lag(client, description) if needs_lag else []
            if cluster.as_json:
                documents.append({"group": description, "partitions": lag, "handovers": description.handovers})
                continue
            if number:
                print_line()
            print_line(_heading(description))
            if not description.has_members_shown:
                print_line(_NOT_SHOWN)
            elif members:
                _print_members(description)
            if needs_lag:
                _print_partitions(description, lag)
    if cluster.as_json:
        print_json(documents)


def _heading(description: GroupDescription) -> str:
    fields: dict[str, object] = {
        "group": description.group,
        "state": description.state or "-",
        "type": description.group_type,
        "assignor": description.protocol or "-",
    }
    if description.epoch is not None:
        fields |= {"epoch": description.epoch, "target epoch": description.target_epoch}
    fields["coordinator"] = description.coordinator
    if description.has_members_shown:
        fields["members"] = len(description.members)
    return "  ".join(f"{name} {value}" for name, value in fields.items())


def _print_partitions(description: GroupDescription, lag: list[LagRow]) -> None:
    columns = ["topic", "partition", "committed", "end", "lag", "member", "host"]
    rows: list[list[object]] = [
        [row.topic, row.partition, row.committed, row.log_end, row.lag, row.member_id, row.host] for row in lag
    ]
    if moves := {handover.partition: handover.receiver or "(no member)" for handover in description.handovers}:
        columns.append("moves to")
        for row, cells in zip(lag, rows, strict=True):
            cells.append(moves.get(TopicPartition(TopicName(row.topic), row.partition)))
    print_table(columns, rows)


def _print_members(description: GroupDescription) -> None:
    columns = ["member", "instance", "client", "host", "partitions"]
    rows: list[list[object]] = [
        [member.member_id, member.instance_id, member.client_id, member.host, _ranges(member.partitions) or None]
        for member in description.members
    ]
    if description.epoch is not None:
        columns += ["to give up", "awaited", "epoch", "protocol", "subscription"]
        for member, cells in zip(description.members, rows, strict=True):
            subscription = " ".join([*member.topics, *([f"/{member.regex}/"] if member.regex else [])])
            cells += [_ranges(member.to_give_up) or None, _ranges(member.awaited) or None]
            cells += ["away" if member.is_away else member.epoch, member.member_type or None, subscription or None]
    print_table(columns, rows)


@app.command("reset-offsets")
def reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:0,2-4]", help="Default: all it has offsets for; may be repeated."
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="After the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Where it is, within the log.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="This offset.")] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="The first record at or after a time.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="±N",
            help="This many offsets (not records) forward, or back.",
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; otherwise it is only shown.")] = False,
    zookeeper: ZooKeeper = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Move a group's committed offsets, while it has no members. Shows the plan only; --execute carries it out.

    \b
    Examples:
      oncelog group reset-offsets watchers --to-earliest
      oncelog group reset-offsets watchers --topic flights:0,2-4 --shift-by -100 --execute
      oncelog group reset-offsets watchers --to-datetime 2013-06-01T00:00:00Z --execute
    """
    from oncelog.admin.groups import execute_reset, plan_reset

    to = _target(to_earliest, to_latest, to_current, to_offset, to_datetime, shift_by)
    if zookeeper is not None:
        keys = cluster.client_settings()
        rows = group_zookeeper.reset_group(zookeeper, group, topic, to, keys, execute)
    else:
        with cluster.open_client() as client:
            rows = plan_reset(client, group, to, partitions_named(client, topic))
            if execute and rows:
                execute_reset(client, group, rows)
    if not rows:
        raise ClientError(f"group {group!r} has no committed offsets there; name topics with --topic")
    cells = [(row.topic, row.partition, row.current, row.target) for row in rows]
    document = {"group": group, "executed": execute, "offsets": rows}
    print_rows(("topic", "partition", "from", "to"), cells, document, as_json=cluster.as_json)
    if not execute and not cluster.as_json:
        print_line("nothing is changed yet; add --execute to do it")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP…", help="The groups' ids.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC[:0,2-4]", help="Only forget its offsets in this topic; may be repeated."
        ),
    ] = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Delete groups without members and their offsets, or only their offsets in some topics.

    \b
    Examples:
      oncelog group delete watchers
      oncelog group delete watchers --topic old-topic
    """
    from oncelog.admin.groups import delete_groups, delete_offsets

    with cluster.open_client() as client:
        if topic:
            partitions = partitions_named(client, topic) or []
            outcomes = [offset for group in groups for offset in delete_offsets(client, group, partitions)]
        else:
            outcomes = delete_groups(client, groups)
    kind = "offsets of" if topic else "group"
    if cluster.as_json:
        print_json(outcomes)
    for outcome in outcomes:
        if outcome.error is not None:
            complain(f"{kind} {outcome.name!r}: {outcome.error}")
        elif not cluster.as_json:
            print_line(f"{kind} {outcome.name} deleted")
    if any(outcome.error for outcome in outcomes):
        raise typer.Exit(1)


app.command("migrate")(group_zookeeper.migrate)


def _target(
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
) -> ResetTo:
    """The one target that was given. Raises BadParameter for none or several."""
    from oncelog.admin.groups import ResetTo

    given = sum(
        (to_earliest, to_latest, to_current, *(option is not None for option in (to_offset, to_datetime, shift_by)))
    )
    if given != 1:
        raise typer.BadParameter(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --shift-by"
        )
    time_ms = time_option(to_datetime, "--to-datetime")
    return ResetTo(to_earliest, to_latest, to_current, to_offset, time_ms, shift_by)


def _ranges(partitions: tuple[TopicPartition, ...]) -> str:
    """``topic:0,2-4 other:1``."""
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    texts = []
    for topic, indexes in by_topic.items():
        runs: list[list[int]] = []
        for index in indexes:
            if runs and runs[-1][1] == index - 1:
                runs[-1][1] = index
            else:
                runs.append([index, index])
        texts.append(f"{topic}:" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs))
    return " ".join(texts)
