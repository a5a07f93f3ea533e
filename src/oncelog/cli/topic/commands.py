"""``oncelog topic``: create, list, describe, alter, delete (``moves`` has reassign and elect)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.errors import ErrorCode
from oncelog.base.text import counted
from oncelog.cli.support.failures import complain
from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.support.options import AdminOptions, key_values
from oncelog.cli.support.output import print_json, print_result, print_rows, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.arguments import names_suggested, require_settings
from oncelog.cli.topic.moves import elect, reassign
from oncelog.client.errors import BrokerRefused

if TYPE_CHECKING:
    from oncelog.admin.cluster import LogDirRow
    from oncelog.admin.topics import TopicDescription

app = CommandGroup("Create, list, describe, alter, move and delete topics.")

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Configs = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the broker check the request, change nothing.")]


@app.command()
def create(
    topic: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="COUNT", min=1, help="Default: the broker's.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", metavar="COUNT", min=1, help="Default: the broker's.")
    ] = None,
    config: Configs = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            metavar="1:2,2:3,…", help="Brokers of each partition, instead of a number of partitions and replicas."
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    dry_run: DryRun = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Create a topic.

    \b
    Examples:
      oncelog topic create flights --partitions 6
      oncelog topic create state -p 1 -c cleanup.policy=compact -c retention.ms=-1
    """
    from oncelog.admin.topics import BROKER_DEFAULT, NewTopic, create_topic

    new = NewTopic(
        topic,
        BROKER_DEFAULT if partitions is None else partitions,
        BROKER_DEFAULT if replication_factor is None else replication_factor,
        key_values(config, "--config"),
        _assignment(replica_assignment),
    )
    if new.assignment and (partitions or replication_factor):
        raise typer.BadParameter(
            "it implies --partitions and --replication-factor; leave them out",
            param_hint="--replica-assignment",
        )
    with cluster.open_client() as client:
        try:
            with names_suggested(new.configs):
                row = create_topic(client, new, validate_only=dry_run)
        except BrokerRefused as error:
            if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            print_line(f"topic {topic} exists already")
            return
    verb = "could be created" if dry_run else "created"
    size = f"{counted(row.partitions, 'partition')}, replication factor {row.replication_factor}"
    print_result(f"topic {row.name} {verb}: {size}", row, as_json=cluster.as_json)


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """List topics.

    \b
    Examples:
      oncelog topic list
      oncelog topic list --internal --json -b broker1:9092,broker2:9092
    """
    from oncelog.admin.topics import list_topics

    with cluster.open_client() as client:
        rows = list_topics(client, internal=internal)
    cells = [(row.name, row.partitions, row.replication_factor) for row in rows]
    print_rows(("topic", "partitions", "replicas"), cells, rows, as_json=cluster.as_json)


@app.command()
def describe(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]…", help="Default: all of them.")] = None,
    sizes: Annotated[bool, typer.Option("--sizes", help="Bytes on disk, from the brokers' log directories.")] = False,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show settings that have their defaults, too.")
    ] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Show partitions, leaders, offsets and settings of topics.

    \b
    Examples:
      oncelog topic describe flights
      oncelog topic describe flights --sizes --all-configs --json
    """
    from oncelog.admin.cluster import describe_log_dirs
    from oncelog.admin.configs import ConfigRow, ResourceType, describe_configs
    from oncelog.admin.topics import describe_topics

    with cluster.open_client() as client:
        descriptions = describe_topics(client, topics or None)
        configs: dict[str, list[ConfigRow]] = {}
        for description in descriptions:
            rows = describe_configs(client, ResourceType.TOPIC, description.topic.name)
            configs[description.topic.name] = [row for row in rows if all_configs or row.source == "topic"]
        replicas: list[LogDirRow] = (
            describe_log_dirs(client, [description.topic.name for description in descriptions]) if sizes else []
        )

    if cluster.as_json:
        print_json(
            [
                {
                    "topic": description.topic,
                    "partitions": description.partitions,
                    "configs": configs[description.topic.name],
                    **({"replicas": [r for r in replicas if r.topic == description.topic.name]} if sizes else {}),
                }
                for description in descriptions
            ]
        )
        return
    for number, description in enumerate(descriptions):
        if number:
            print_line()
        own = ", ".join(f"{row.name}={row.value}" for row in configs[description.topic.name])
        _show(description, own or "-", replicas if sizes else None)


def _show(description: TopicDescription, settings: str, replicas: Sequence[LogDirRow] | None) -> None:
    name = description.topic.name
    print_line(
        f"topic {name}  id {description.topic.topic_id or '-'}  partitions {description.topic.partitions}  "
        f"settings {settings}"
    )
    bytes_of = {(r.partition, r.broker_id): r.size_bytes for r in replicas or () if r.topic == name and not r.is_future}
    columns = ["partition", "leader", "epoch", "replicas", "in sync", "first offset", "next offset"]
    print_table(
        [*columns, *(["bytes"] if replicas is not None else [])],
        [
            (
                row.partition,
                row.leader,
                row.leader_epoch,
                ",".join(map(str, row.replicas)),
                ",".join(map(str, row.isr)),
                row.earliest,
                row.latest,
                *([bytes_of.get((row.partition, row.leader or 0))] if replicas is not None else []),
            )
            for row in description.partitions
        ],
    )


@app.command()
def alter(
    topic: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="COUNT", min=1, help="New total; only upwards.")
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Set this setting back to its default; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Change a topic's settings, or give it more partitions.

    \b
    Examples:
      oncelog topic alter flights --partitions 12
      oncelog topic alter flights -c retention.ms=86400000 --delete-config segment.bytes
    """
    from oncelog.admin.configs import ResourceType, alter_configs
    from oncelog.admin.topics import add_partitions

    change = key_values(config, "--config")
    if partitions is None and not change and not delete_config:
        raise typer.BadParameter("nothing to change; give --partitions, --config or --delete-config")
    with cluster.open_client() as client:
        client.topic(topic)
        require_settings(client, topic, delete_config or ())
        if change or delete_config:
            with names_suggested(change):
                alter_configs(
                    client, ResourceType.TOPIC, topic, change=change, delete=delete_config or (), validate_only=dry_run
                )
        if partitions is not None:
            add_partitions(client, topic, partitions, validate_only=dry_run)
    document = {"topic": topic, "partitions": partitions, "set": change, "deleted": delete_config or []}
    done = f"topic {topic} {'could be altered' if dry_run else 'altered'}"
    print_result(done, document, as_json=cluster.as_json)


@app.command()
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="The topics' names.")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if a topic does not exist.")] = False,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Delete topics with all their records.

    \b
    Examples:
      oncelog topic delete flights
      oncelog topic delete scratch-1 scratch-2 --if-exists
    """
    from oncelog.admin.topics import delete_topics

    with cluster.open_client() as client:
        outcomes = delete_topics(client, topics)
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    failed = [outcome for outcome in outcomes if outcome.error and not (if_exists and outcome.error_code == gone)]
    if cluster.as_json:
        print_json(outcomes)
    else:
        for outcome in outcomes:
            if outcome.error is None:
                print_line(f"topic {outcome.name} deleted")
    for outcome in failed:
        complain(f"topic {outcome.name!r}: {outcome.error}")
    if failed:
        raise typer.Exit(1)


app.command("reassign")(reassign)
app.command("elect")(elect)


def _assignment(text: str | None) -> dict[int, list[int]]:
    """``1:2,2:3`` as brokers by partition."""
    if text is None:
        return {}
    try:
        return {number: [int(word) for word in part.split(":")] for number, part in enumerate(text.split(","))}
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of replicas for each partition, such as 1:2,2:3", param_hint="--replica-assignment"
        ) from None
