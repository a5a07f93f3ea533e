"""``oncelog group``: list, describe, alter, reset-offsets, delete, migrate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.base.suggestions import did_you_mean
from oncelog.cli.group import zookeeper as group_zookeeper
from oncelog.cli.group.share import SHARE_GROUPS_OFF, Share, group_configs, print_configs
from oncelog.cli.support.failures import complain
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions, key_values, time_option
from oncelog.cli.support.output import print_json, print_result, print_rows, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.arguments import names_suggested, partitions_named
from oncelog.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncelog.admin.groups import GroupDescription, LagRow, ResetTo
    from oncelog.client.blocking.client import Client

app = CommandGroup("List, describe, alter, reset, delete and move consumer groups and share groups.")

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
    deliveries: Annotated[
        bool, typer.Option("--deliveries", help="Of a share group: records in flight instead of partitions.")
    ] = False,
    configs: Annotated[bool, typer.Option("--configs", help="The group's settings instead of partitions.")] = False,
    zookeeper: ZooKeeper = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Show the committed offsets of groups, their lag, and the members that have each partition.

    In a group of the consumer protocol, "moves to" names the member that waits for a partition. --members shows the
    epochs of its members, and what each still has to give up and waits for.

    A share group has start offsets, below which every record is dealt with. Lag counts the offsets after it whose
    delivery is not complete, "in flight" those from the start offset to the last one acquired, "deliveries" the most of
    one record that is not dealt with. --deliveries shows who holds which records, for how long and until when, as
    oncelog's brokers tell it; Apache Kafka's do not, and their log has states and delivery counts without locks.

    \b
    Examples:
      oncelog group describe watchers
      oncelog group describe watchers --members
      oncelog group describe workers --deliveries
      oncelog group describe workers --configs
      oncelog group describe watchers --json
    """
    from oncelog.admin.groups import describe_group

    if members + deliveries + configs > 1:
        raise typer.BadParameter("give at most one of --members, --deliveries and --configs")
    if zookeeper is not None:
        if deliveries or configs:
            raise typer.BadParameter("groups in ZooKeeper have neither records in flight nor settings; leave it out")
        keys = cluster.client_settings()
        group_zookeeper.describe_groups(zookeeper, groups, keys, members=members, as_json=cluster.as_json)
        return
    view = "members" if members else "deliveries" if deliveries else "configs" if configs else "partitions"
    documents = []
    with cluster.open_client() as client:
        for number, name in enumerate(groups):
            description = describe_group(client, name)
            if cluster.as_json:
                documents.append(_document(client, description))
                continue
            if number:
                print_line()
            print_line(_heading(description))
            _print_group(client, description, view)
    if cluster.as_json:
        print_json(documents)


def _document(client: Client, description: GroupDescription) -> Mapping[str, object]:
    from oncelog.admin.groups import group_lag

    if description.is_share and description.has_members_shown:
        return Share(client, description).document(group_configs(client, description.group, only_share=True))
    lag = group_lag(client, description)
    return {"group": description, "partitions": lag, "handovers": description.handovers}


def _print_group(client: Client, description: GroupDescription, view: str) -> None:
    from oncelog.admin.groups import group_lag

    if view == "configs":
        print_configs(group_configs(client, description.group, only_share=description.is_share))
        return
    if view == "deliveries" and not description.is_share:
        raise ClientError(f"group {description.group!r} is a {description.group_type} group; only share groups have it")
    if not description.has_members_shown:
        print_line(SHARE_GROUPS_OFF if description.is_share else _NOT_SHOWN)
    elif view == "members":
        _print_members(description)
    elif description.is_share:
        Share(client, description).show(deliveries=view == "deliveries")
    if view == "partitions" and description.commits_offsets:
        _print_partitions(description, group_lag(client, description))


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
    if description.is_share:
        columns += ["epoch", "subscription"]
        for member, cells in zip(description.members, rows, strict=True):
            cells += [member.epoch, " ".join(member.topics) or None]
    elif description.epoch is not None:
        columns += ["to give up", "awaited", "epoch", "protocol", "subscription"]
        for member, cells in zip(description.members, rows, strict=True):
            subscription = " ".join([*member.topics, *([f"/{member.regex}/"] if member.regex else [])])
            cells += [_ranges(member.to_give_up) or None, _ranges(member.awaited) or None]
            cells += ["away" if member.is_away else member.epoch, member.member_type or None, subscription or None]
    print_table(columns, rows)


@app.command()
def alter(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id; it need not exist yet.")],
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the group; may be repeated."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Set this setting back to its default; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker check it, change nothing.")] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Change a group's settings, such as a share group's lock duration or its limit of deliveries.

    \b
    Examples:
      oncelog group alter workers -c share.auto.offset.reset=earliest -c share.delivery.count.limit=3
      oncelog group alter workers --delete-config share.record.lock.duration.ms
      oncelog group alter workers -c errors.deadletterqueue.topic.name=dlq.workers --dry-run
    """
    from oncelog.admin.configs import ResourceType, alter_configs

    change = key_values(config, "--config")
    if not change and not delete_config:
        raise typer.BadParameter("nothing to change; give --config or --delete-config")
    with cluster.open_client() as client:
        names = [row.name for row in group_configs(client, group)] if delete_config else []
        for name in delete_config or ():
            if name not in names:
                raise ClientError(f"group {group!r}: no setting is called {name!r}{did_you_mean(name, names)}")
        with names_suggested(change, of_group=True):
            alter_configs(
                client, ResourceType.GROUP, group, change=change, delete=delete_config or (), validate_only=dry_run
            )
    document = {"group": group, "set": change, "deleted": delete_config or []}
    done = f"group {group} {'could be altered' if dry_run else 'altered'}"
    print_result(done, document, as_json=cluster.as_json)


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

    Of a share group the start offsets are moved: every record from there on becomes available again with a delivery
    count of zero, also those that have been acknowledged. With members this is refused, since they would acknowledge
    records by states that are gone.

    \b
    Examples:
      oncelog group reset-offsets watchers --to-earliest
      oncelog group reset-offsets watchers --topic flights:0,2-4 --shift-by -100 --execute
      oncelog group reset-offsets watchers --to-datetime 2013-06-01T00:00:00Z --execute
      oncelog group reset-offsets workers --to-latest --execute
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
        raise ClientError(f"group {group!r} has no offsets there; name topics with --topic")
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

    A share group forgets whole topics, with the states of their records, and only while it has no members. Later it
    begins where share.auto.offset.reset says.

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
    texts = []
    for topic, indexes in by_topic(sorted(partitions)).items():
        runs: list[list[int]] = []
        for index in indexes:
            if runs and runs[-1][1] == index - 1:
                runs[-1][1] = index
            else:
                runs.append([index, index])
        texts.append(f"{topic}:" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs))
    return " ".join(texts)
