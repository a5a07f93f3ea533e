"""``oncelog log import``: imports a log of Kafka 0.7 into a topic, exactly once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted
from oncelog.cli.records.produce import Compression
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json_line, progress
from oncelog.cli.support.terminal import print_line
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.legacy.logs.directories import OldLogError, logs_in
from oncelog.legacy.logs.import_settings import ImportSettings, OnCorruption, Timestamps
from oncelog.records.compression import Codec

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client
    from oncelog.legacy.logs.importer import Event, Totals, Watch


@dataclass(frozen=True)
class ImportOptions:
    on_corruption: Annotated[
        OnCorruption, typer.Option("--on-corruption", help="The reaction to a place that cannot be read.")
    ] = OnCorruption.FAIL
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while an old broker still writes.")] = False
    timestamps: Annotated[Timestamps, typer.Option("--timestamps", help="Records' times: their file's, or none.")] = (
        Timestamps.FILE
    )
    compression: Annotated[Compression, typer.Option("--compression", "-z", help="Codec.")] = Compression.none
    transaction_bytes: Annotated[
        int, typer.Option(metavar="BYTES", min=1, help="Size of a transaction, about; it becomes visible at once.")
    ] = 32 << 20

    def settings(self) -> ImportSettings:
        codec = Codec[self.compression.name.upper()]
        return ImportSettings(
            self.on_corruption, self.timestamps, self.follow, codec, transaction_bytes=self.transaction_bytes
        )


def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A 0.7 broker's log.dir, or one partition of it.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="The topic to write to; created if absent.")],
    log: Annotated[
        str | None, typer.Option("--log", metavar="NAME", help="The log in DIR, if there are several. Default: TOPIC.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="A name by which the import is continued. Default: the log's."),
    ] = None,
    how: ImportOptions = ImportOptions(),
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Import a log of Kafka 0.7 into a topic, each message exactly once.

    Partition N goes to partition N, in order, in transactions that keep the position as well. Run it again at any time:
    after a crash it goes on, later it imports the log's new messages. Messages already in the topic are never written
    twice. Messages get no key, as 0.7 has none.

    With --json one object a line; the last has messages, bytes of their payloads, and bad places of this run. Exit
    code 1 if --on-corruption fail (the default) met one.

    \b
    Examples:
      oncelog log import /var/kafka-0.7/logs --to events
      oncelog log import /mnt/broker-2/logs --to events --as events-of-broker-2
      oncelog log import ./logs --log clicks --to clicks-archive --on-corruption skip -z zstd --json
      oncelog log import /var/kafka-0.7/logs --to events --follow
    """
    from oncelog.legacy.logs.import_positions import ImportKey
    from oncelog.legacy.logs.importer import Importer, Totals

    log_name, partitions = _log_in(directory, log, to)
    totals = Totals()
    try:
        with cluster.open_client() as client, _events_printed(cluster.as_json, how.on_corruption) as on_event:
            settings = _prepared(client, to, max(partitions) + 1, how.settings())
            with Importer(client, ImportKey(name or log_name, to), partitions, settings, on_event) as importer:
                totals = importer.totals
                importer.prepare()
                importer.run(lambda: _log_in(directory, log_name, to)[1])
    except KeyboardInterrupt:
        _print_totals(totals, to, cluster.as_json)
        raise
    except ClientError:
        if cluster.as_json:
            _print_totals(totals, to, cluster.as_json)
        raise
    _print_totals(totals, to, cluster.as_json)


def _log_in(directory: Path, log: str | None, topic: str) -> tuple[str, dict[int, Path]]:
    """The name and partitions of the log to import. Raises OldLogError with the names of the logs in the directory."""
    logs = logs_in(directory)
    if not logs:
        raise OldLogError(f"{directory} has no log of Kafka 0.7: no directory NAME-N with files *.kafka")
    if log is None:
        log = next(iter(logs)) if len(logs) == 1 else topic
        if log not in logs:
            raise OldLogError(f"{directory} has several logs ({', '.join(sorted(logs))}): name one with --log")
    if log not in logs:
        raise OldLogError(f"{directory} has no log {log!r}; it has {', '.join(sorted(logs))}")
    return log, logs[log]


def _prepared(client: Client, topic: str, partitions: int, settings: ImportSettings) -> ImportSettings:
    """Creates the topic if it is absent, and returns settings with its batch limit. Raises OldLogError for too few
    partitions, BrokerRefused."""
    from oncelog.admin.configs import ResourceType, describe_configs
    from oncelog.client.blocking.transaction_admin import ensure_topic

    keeps_times = settings.timestamps is Timestamps.FILE
    description = client.metadata([topic]).get(topic)  # type: ignore[call-overload]  # a name as it was typed
    if description is None or not description.exists:
        ensure_topic(client, topic, partitions, {"retention.ms": "-1"} if keeps_times else {})
        unlimited = ", which keeps its records for ever (retention.ms=-1): their times are of long ago"
        print_line(f"topic {topic} created with {counted(partitions, 'partition')}{unlimited * keeps_times}", err=True)
        return settings
    with suppress(BrokerRefused):  # without permission to describe configs the defaults apply
        rows = describe_configs(client, ResourceType.TOPIC, topic, ["max.message.bytes", "retention.ms"])
        values = {row.name: row.value for row in rows}
        if keeps_times and (values.get("retention.ms") or "-1") != "-1":
            print_line(
                f"oncelog: topic {topic} deletes records after retention.ms={values['retention.ms']}, by the times of "
                f"the old files. To keep them: "
                f"oncelog topic alter -c retention.ms=-1 {argument(topic)}, or --timestamps none",
                err=True,
            )
        if (largest := values.get("max.message.bytes")) is not None:
            return replace(settings, batch_bytes=min(settings.batch_bytes, int(largest)))
    return settings


@contextmanager
def _events_printed(as_json: bool, on_corruption: OnCorruption) -> Iterator[Watch]:
    """Prints progress and damaged places: JSON lines, or a progress bar and lines on stderr. A place that ends the
    import is left to its error message."""
    with progress(None if as_json else "bytes imported") as bar:

        def on_event(event: Event) -> None:
            if as_json:
                print_json_line(_event_row(event))
                sys.stdout.flush()
            elif event.bad is not None and (event.bad.is_tail or on_corruption is not OnCorruption.FAIL):
                print_line(f"oncelog: {event.bad}", err=True, flush=True)
            bar(event.log_bytes_done, event.log_bytes_total)

        yield on_event


def _event_row(event: Event) -> dict[str, Any]:
    if event.bad is not None:
        return {
            "type": "bad",
            "partition": event.partition,
            "file": str(event.bad.path),
            "offset": event.bad.offset,
            "size": event.bad.size,
            "reason": event.bad.reason,
            "is_tail": event.bad.is_tail,
        }
    return {"type": "progress", "log_bytes": event.log_bytes_done, "log_bytes_total": event.log_bytes_total} | _row(
        event.totals
    )


def _row(totals: Totals) -> dict[str, Any]:
    return {"messages": totals.messages, "bytes": totals.bytes, "bad": totals.bad}


def _print_totals(totals: Totals, topic: str, as_json: bool) -> None:
    if as_json:
        print_json_line({"type": "done", "topic": topic} | _row(totals))
        sys.stdout.flush()
        return
    bad = f", {counted(totals.bad, 'place')} that cannot be read" if totals.bad else ""
    if not totals.messages and not totals.bad:
        print_line(f"nothing new; {topic} has everything up to now")
    else:
        print_line(f"{counted(totals.messages, 'message')} of {totals.bytes:,} bytes imported into {topic}{bad}")
