"""``oncelog group``: list, describe, reset-offsets, delete, migrate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.base.ids import TopicPartition
from oncelog.cli.group import zookeeper as group_zookeeper
from oncelog.cli.support.failures import complain
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions, time_option
from oncelog.cli.support.output import print_json, print_rows, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.arguments import partitions_named
from oncelog.client.errors import ClientError

if TYPE_CHECKING:
    from oncelog.admin.groups import ResetTo

app = CommandGroup("List, describe, reset, delete and move consumer groups.")

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", metavar="HOST:PORT,…/CHROOT", help="Groups whose offsets are in the cluster's ZooKeeper."
    ),
]


_STATES: Final = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"),
    *("Assigning", "Reconciling", "NotReady"),  # of the newer group types, in Apache Kafka
)


def _state(given: str) -> str:
    """A state by its name in any case. Raises BadParameter."""
    for state in _STATES:
        if state.lower() == given.lower():
            return state
    raise typer.BadParameter(f"{given!r} is not one of {', '.join(_STATES)}", param_hint="--state")


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state (Stable, Empty, …); may be repeated."),
    ] = None,
    zookeeper: ZooKeeper = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """List groups.

    \b
    Examples:
      oncelog group list
      oncelog group list --state Empty --json
      oncelog group list --zookeeper localhost:2181/kafka
    """
    from oncelog.admin.groups import list_groups

    if zookeeper is not None:
        group_zookeeper.list_groups(zookeeper, state or [], cluster.as_json)
        return
    states = [_state(name) for name in state or ()]
    with cluster.open_client() as client:
        rows = list_groups(client, states)
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
    """Show the committed offsets of groups, their lag, and the members that read each partition.

    \b
    Examples:
      oncelog group describe watchers
      oncelog group describe watchers --members
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
            lag = [] if members and not cluster.as_json else group_lag(client, description)
            if cluster.as_json:
                documents.append({"group": description, "partitions": lag})
                continue
            if number:
                print_line()
            print_line(
                f"group {description.group}  state {description.state}  type {description.group_type}  "
                f"assignor {description.protocol or '-'}  coordinator {description.coordinator}  "
                f"members {len(description.members)}"
            )
            if members:
                print_table(
                    ("member", "instance", "client", "host", "partitions"),
                    [
                        (
                            member.member_id,
                            member.instance_id,
                            member.client_id,
                            member.host,
                            _ranges(member.partitions) or None,
                        )
                        for member in description.members
                    ],
                )
            else:
                print_table(
                    ("topic", "partition", "committed", "end", "lag", "member", "host"),
                    [(r.topic, r.partition, r.committed, r.log_end, r.lag, r.member_id, r.host) for r in lag],
                )
    if cluster.as_json:
        print_json(documents)


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
