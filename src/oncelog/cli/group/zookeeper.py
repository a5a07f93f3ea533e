"""``oncelog group … --zookeeper``: groups that balance, or keep their offsets, in ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.support.options import AsJson, CommandConfig, Properties, client_settings
from oncelog.cli.support.output import print_json, print_rows, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.support.zookeeper_options import StorageName
from oncelog.cli.topic.arguments import partitions_named

if TYPE_CHECKING:
    from oncelog.admin.groups import ResetRow, ResetTo
    from oncelog.client.zookeeper import Subscription


def list_groups(zookeeper: str, states: list[str], as_json: bool) -> None:
    from oncelog.admin.zookeeper_groups import list_zookeeper_groups, zookeeper_session

    with zookeeper_session(zookeeper) as session:
        rows = [row for row in list_zookeeper_groups(session) if not states or row.state in states]
    cells = [(row.group, row.state, row.members, " ".join(row.topics) or None) for row in rows]
    print_rows(("group", "state", "members", "topics"), cells, rows, as_json=as_json)


def describe_groups(
    zookeeper: str, groups: list[str], settings: dict[str, str], *, members: bool, as_json: bool
) -> None:
    from oncelog.admin.zookeeper_groups import (
        cluster_client,
        describe_zookeeper_group,
        zookeeper_group_lag,
        zookeeper_session,
    )

    documents = []
    with zookeeper_session(zookeeper) as session, cluster_client(session, settings) as client:
        for number, name in enumerate(groups):
            description = describe_zookeeper_group(session, name)
            lag = [] if members and not as_json else zookeeper_group_lag(client, description)
            if as_json:
                consumers = [
                    {"member_id": member.member_id, "subscription": member.subscription}
                    for member in description.members
                ]
                documents.append({"group": name, "state": description.state, "members": consumers, "partitions": lag})
                continue
            if number:
                print_line()
            print_line(f"group {name}  state {description.state}  type zookeeper  members {len(description.members)}")
            if members:
                rows = [(member.member_id, *_subscription(member.subscription)) for member in description.members]
                print_table(("member", "pattern", "subscription"), rows)
            else:
                print_table(
                    ("topic", "partition", "committed", "end", "lag", "owner"),
                    [(row.topic, row.partition, row.committed, row.log_end, row.lag, row.member_id) for row in lag],
                )
    if as_json:
        print_json(documents)


def reset_group(
    zookeeper: str, group: str, topics: list[str] | None, to: ResetTo, settings: dict[str, str], execute: bool
) -> list[ResetRow]:
    from oncelog.admin.zookeeper_groups import (
        cluster_client,
        execute_zookeeper_reset,
        plan_zookeeper_reset,
        zookeeper_session,
    )

    with zookeeper_session(zookeeper) as session, cluster_client(session, settings) as client:
        rows = plan_zookeeper_reset(session, client, group, to, partitions_named(client, topics))
        if rows and execute:
            execute_zookeeper_reset(session, group, rows)
    return rows


def migrate(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", metavar="HOST:PORT,…/CHROOT", help="The cluster's ZooKeeper.")
    ],
    source: Annotated[StorageName, typer.Option("--from", help="The storage that has the offsets.")],
    target: Annotated[StorageName, typer.Option("--to", help="The storage that gets them.")],
    force: Annotated[bool, typer.Option("--force", help="Also where the target is ahead: records are read again.")] = (
        False
    ),
    properties: Properties = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Copy a group's offsets from ZooKeeper to Kafka or back, in one step, while none of its consumers runs.

    \b
    Examples:
      oncelog group migrate watchers --zookeeper localhost:2181/kafka --from zookeeper --to kafka
      oncelog group migrate watchers --zookeeper localhost:2181/kafka --from kafka --to zookeeper
    """
    from oncelog.admin.zookeeper_groups import Storage, cluster_client, move_offsets, zookeeper_session

    if source is target:
        raise typer.BadParameter(f"--from and --to are both {source.value}; name the two storages")
    settings = client_settings(properties, command_config)
    with zookeeper_session(zookeeper) as session, cluster_client(session, settings) as client:
        rows = move_offsets(session, client, group, Storage(source.value), force=force)
    columns = ("topic", "partition", f"{target.value} had", "has now")
    cells = [(row.topic, row.partition, row.before, row.offset) for row in rows]
    document = {"group": group, "from": source.value, "to": target.value, "offsets": rows}
    print_rows(columns, cells, document, as_json=as_json)


def _subscription(subscription: Subscription | None) -> tuple[str | None, str | None]:
    if subscription is None:
        return None, None
    return subscription.pattern, " ".join(f"{name}:{count}" for name, count in subscription.streams.items())
