"""``oncelog consume``: prints the records of topics, alone or as a member of a group.

Only offsets of printed and flushed records are committed. A closed pipe ends the command.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.records.consume_share import ShareOptions, consume_share
from oncelog.cli.records.consume_zookeeper import consume_zookeeper
from oncelog.cli.records.offset_range import start_offsets, stop_offsets
from oncelog.cli.records.record_output import Sink
from oncelog.cli.records.registry_options import DecodingOptions
from oncelog.cli.support.offset_or_time import MomentError, Start, parse_start, parse_time_ms
from oncelog.cli.support.options import ClusterOptions
from oncelog.cli.support.output import progress
from oncelog.cli.support.terminal import print_line
from oncelog.cli.support.zookeeper_options import ZooKeeperOptions
from oncelog.client.errors import BrokerRefused, ConfigError

if TYPE_CHECKING:
    from oncelog.cli.records.format import Formatter
    from oncelog.cli.records.registry_values import RegistryValues
    from oncelog.client.blocking.client import Client
    from oncelog.client.machine.positions import FetchSettings
    from oncelog.client.programs.group_protocol import Subscription


@dataclass(frozen=True)
class RangeOptions:
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="NUMBER", min=0, help="Read this partition only; may be repeated."),
    ] = None
    start: Annotated[
        str,
        typer.Option(
            "--from", "-o", metavar="WHERE", help="beginning, end, stored, N, -N (before the end), or a time."
        ),
    ] = ""
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Stop before the first record this late.")] = (
        None
    )
    count: Annotated[
        int | None, typer.Option("--count", "-c", metavar="COUNT", min=1, help="Stop after so many records.")
    ] = None

    def bounds(self, group: str | None) -> tuple[Start, int | None]:
        """The start, and the time to stop before (ms). Raises BadParameter for options that exclude each other."""
        try:
            start = parse_start(self.start or ("beginning" if group is None else "stored"))
            until_ms = None if self.to is None else parse_time_ms(self.to)
        except MomentError as error:
            raise typer.BadParameter(str(error)) from None
        if group is not None and self.partition:
            raise typer.BadParameter("give --partition or --group, not both: the group assigns partitions")
        if start.keyword == "stored" and group is None:
            raise typer.BadParameter("stored offsets belong to a group; name it with --group", param_hint="--from")
        if group is not None and (
            start.offset is not None or start.before_end is not None or start.timestamp_ms is not None
        ):
            raise typer.BadParameter(
                "with --group it is beginning, end or stored; move the group with `oncelog group reset-offsets`",
                param_hint="--from",
            )
        return start, until_ms


class GroupProtocolName(Enum):
    """The values of ``group.protocol``."""

    classic = "classic"
    consumer = "consumer"


@dataclass(frozen=True)
class GroupOptions:
    group: Annotated[
        str | None, typer.Option("--group", "-G", metavar="GROUP", help="Read as a member of a group, and commit.")
    ] = None
    instance_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Stay the same member over restarts (static membership).")
    ] = None
    no_commit: Annotated[bool, typer.Option("--no-commit", help="With --group: commit no offsets.")] = False
    protocol: Annotated[
        GroupProtocolName | None,
        typer.Option(
            "--group-protocol", help="With --group: consumer is KIP-848's. Default: the group's own, else classic."
        ),
    ] = None
    include: Annotated[
        str | None,
        typer.Option(
            "--include", metavar="REGEX", help="With --group: topics of such names, by the consumer protocol (RE2)."
        ),
    ] = None

    def refuse_protocol(self, reason: str) -> None:
        """Raise BadParameter if an option of the consumer protocol is given."""
        if self.include is not None or self.protocol is not None:
            raise typer.BadParameter(f"--include and --group-protocol {reason}")

    def subscription(self, topics: list[str]) -> Subscription | None:
        """The membership to be, None without a group. Raises BadParameter for options that exclude each other."""
        from oncelog.client.machine.group import GroupSettings
        from oncelog.client.programs.group_protocol import Subscription

        if self.group is None:
            self.refuse_protocol("belong to a group; name it with --group")
        if not topics and self.include is None:
            raise typer.BadParameter("name the topics to read" + (", or give --include" if self.group else ""))
        if self.group is None:
            return None
        try:
            return Subscription(
                self.group,
                topics,
                self.include,
                None if self.protocol is None else self.protocol.value,
                GroupSettings(instance_id=self.instance_id),
            )
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None


@dataclass(frozen=True)
class OutputOptions:
    form: Annotated[
        str | None, typer.Option("--format", "-f", metavar="FORMAT", help="As kcat's: %t %p %o %T %k %s %h, \\n …")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object a record, with kcat's names.")] = False
    encode_base64: Annotated[bool, typer.Option("--base64", help="Keys and values as base64.")] = False
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", metavar="TEXT", help="Print after a record.")] = "\\n"
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", metavar="TEXT", help="Print the key too, and this after it.")
    ] = None
    null: Annotated[str, typer.Option("--null", "-Z", metavar="TEXT", help="The text to print for null.")] = ""

    def formatter(self, values: RegistryValues | None = None) -> Formatter:
        """The formatter that the options select, with ``values`` decoded. Raises BadParameter."""
        from oncelog.cli.records.format import json_envelope

        if values is None:
            return (lambda record: json_envelope(record, self.encode_base64)) if self.as_json else self._plain()
        if self.encode_base64:
            raise typer.BadParameter("give --base64 or -s, not both: decoded values are printed as JSON")
        return values.json_formatter(json_envelope) if self.as_json else values.formatter(self._plain())

    def _plain(self) -> Formatter:
        from oncelog.cli.records.format import FormatError, compile_format

        form = self.form
        if form is None:
            escaped = self.delimiter.replace("%", "%%")
            key_delimiter = self.key_delimiter
            form = f"%s{escaped}" if key_delimiter is None else f"%k{key_delimiter.replace('%', '%%')}%s{escaped}"
        try:
            return compile_format(
                form, null=self.null.encode(), encode_base64=self.encode_base64, for_terminal=sys.stdout.isatty()
            )
        except FormatError as error:
            raise typer.BadParameter(str(error)) from None


def consume(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC…", help="Topics to read.")] = None,
    reading: RangeOptions = RangeOptions(),
    stop_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end; otherwise wait for more.")
    ] = False,
    membership: GroupOptions = GroupOptions(),
    sharing: ShareOptions = ShareOptions(),
    output: OutputOptions = OutputOptions(),
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Print records of open and aborted transactions too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No remarks on stderr.")] = False,
    decoding: DecodingOptions = DecodingOptions(),
    old_consumer: ZooKeeperOptions = ZooKeeperOptions(),
    cluster: ClusterOptions = ClusterOptions(),
) -> None:
    """Print the records of topics.

    Format fields: %s value, %S its length, %k key, %K its length, %T timestamp in ms, %h headers, %t topic,
    %p partition, %o offset, %R length as 4 bytes; escapes \\n \\t \\xNN. On a terminal the control characters of
    records are shown as \\x1b; files and pipes get the bytes.

    \b
    Examples:
      oncelog consume flights --exit
      oncelog consume flights -o -10 -e -f '%p/%o %T %k=%s\\n'
      oncelog consume flights --from 2013-06-01 --to 2013-06-02 -e --json
      oncelog consume flights --group watchers
      oncelog consume --group watchers --include 'flights\\..*'
      oncelog consume jobs --share workers
      oncelog consume jobs --share workers --exit --release --json
      oncelog consume jobs --share workers -c 1 --reject
      oncelog consume flights --group watchers --zookeeper localhost:2181/kafka
      oncelog consume orders -e --json -s value=registry --registry http://localhost:8081
    """
    from oncelog.client.machine.positions import FetchSettings

    group = membership.group
    sharing.require_alone(_other_ways(membership, reading, uncommitted, old_consumer))
    start, until_ms = reading.bounds(group)
    settings = FetchSettings(read_committed=not uncommitted, old_formats=True)
    with decoding.values(cluster.registry_settings()) as values:
        sink = Sink(output.formatter(values), reading.count, not uncommitted)
        if old_consumer.zookeeper is not None:
            membership.refuse_protocol("do not go with --zookeeper")
            keys = cluster.client_settings() | ({"auto.commit.enable": "false"} if membership.no_commit else {})
            consume_zookeeper(
                old_consumer, group, topics or [], sink, start, settings, keys, stop_at_end=stop_at_end, quiet=quiet
            )
            return
        subscription = None if sharing.share else membership.subscription(topics or [])
        with cluster.open_client() as client:
            if sharing.share:
                consume_share(client, sink, sharing, topics or [], reading.count, stop_at_end=stop_at_end, quiet=quiet)
            elif subscription is not None:
                consume_group(client, sink, subscription, start, settings, stop_at_end, not membership.no_commit, quiet)
            else:
                chosen = reading.partition or []
                consume_assigned(client, sink, topics or [], chosen, start, settings, until_ms, stop_at_end)


def _other_ways(
    membership: GroupOptions, reading: RangeOptions, uncommitted: bool, old_consumer: ZooKeeperOptions
) -> dict[str, bool]:
    """The options that do not go with a share group, and whether they are given."""
    return {
        "--group": membership.group is not None,
        "--include": membership.include is not None,
        "--group-protocol": membership.protocol is not None,
        "--instance-id": membership.instance_id is not None,
        "--no-commit": membership.no_commit,
        "--partition": bool(reading.partition),
        "--from": bool(reading.start),
        "--to": reading.to is not None,
        "--uncommitted": uncommitted,
        "--zookeeper": old_consumer.zookeeper is not None,
    }


def consume_assigned(
    client: Client,
    sink: Sink,
    topics: list[str],
    partitions: list[int],
    start: Start,
    settings: FetchSettings,
    until_ms: int | None,
    stop_at_end: bool,
) -> None:
    chosen = _chosen(client, topics, partitions)
    positions = start_offsets(client, chosen, start, settings.read_committed)
    until = stop_offsets(client, chosen, until_ms, stop_at_end, settings.read_committed)
    total = None if until is None else sum(max(0, until[p] - positions[p]) for p in positions)
    done = 0
    with progress(None if total is None or sys.stdout.isatty() else "offsets read") as report:
        for fetched in client.fetch(positions, until=until, settings=settings):
            if fetched.error_code:
                raise BrokerRefused(fetched.error_code, f"fetch from {fetched.partition} at offset {fetched.position}")
            sink.write(fetched, None if until is None else until.get(fetched.partition))
            sink.flush()
            if sink.is_full():
                return
            done += fetched.next_offset - fetched.position
            report(done, total)


def consume_group(
    client: Client,
    sink: Sink,
    subscription: Subscription,
    start: Start,
    settings: FetchSettings,
    stop_at_end: bool,
    commit: bool,
    quiet: bool,
) -> None:
    from oncelog.client.blocking.group import GroupConsumer, require_topics

    require_topics(client, subscription.topics)
    ends: dict[TopicPartition, int] = {}

    def assigned(positions: Mapping[TopicPartition, int]) -> None:
        if stop_at_end and positions:
            ends.update(stop_offsets(client, positions, None, True, settings.read_committed) or {})
        if not quiet and sys.stderr.isatty():
            names = ", ".join(map(str, sorted(positions))) or "nothing"
            print_line(f"% group {subscription.group}: assigned {names}", err=True)

    reset = "latest" if start.keyword == "end" else "earliest"
    member = GroupConsumer(
        client,
        subscription.group,
        subscription.topics,
        pattern=subscription.pattern,
        protocol=subscription.protocol,
        settings=subscription.settings,
        fetch=settings,
        reset=reset,  # type: ignore[arg-type]  # one of the two literals
        on_assigned=assigned,
    )
    reached: dict[TopicPartition, int] = {}
    with member:
        while not sink.is_full():
            for fetched in member.poll():
                reached[fetched.partition] = sink.deliver(fetched, member.processed if commit else None)
                if sink.is_full():
                    break
            at = {p: reached.get(p, member.position(p) or 0) for p in member.assignment}
            if stop_at_end and member.has_joined and all(at[p] >= ends.get(p, 0) for p in at):
                break


def _chosen(client: Client, topics: list[str], partitions: list[int]) -> list[TopicPartition]:
    """The partitions to read. Raises UnknownTopic for an absent one."""
    chosen = []
    for topic in dict.fromkeys(topics):
        existing = client.topic(topic).partitions
        for index in partitions or existing:
            partition = TopicPartition(TopicName(topic), index)
            client.leader(partition)
            chosen.append(partition)
    return chosen
