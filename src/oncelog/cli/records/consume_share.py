"""``oncelog consume --share``: prints the records of topics as a member of a share group.

Only printed and flushed records are acknowledged. Others that were acquired are released at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.cli.support.terminal import print_line
from oncelog.runtime.stop_signals import stop_signals_deferred

if TYPE_CHECKING:
    from oncelog.cli.records.record_output import Sink
    from oncelog.client.blocking.client import Client
    from oncelog.client.machine.share.values import Acknowledged

_IDLE_MS: Final = 1_000
_MAX_RECORDS: Final = 500


@dataclass(frozen=True)
class ShareOptions:
    share: Annotated[
        str | None,
        typer.Option("--share", metavar="GROUP", help="Read as a member of a share group, and accept printed records."),
    ] = None
    release: Annotated[
        bool, typer.Option("--release", help="With --share: give printed records back; they are delivered again.")
    ] = False
    reject: Annotated[
        bool, typer.Option("--reject", help="With --share: set printed records aside; none is delivered again.")
    ] = False

    def require_alone(self, others: dict[str, bool]) -> None:
        """Raise BadParameter for options that exclude each other; ``others`` has those of other ways to read, and
        whether they are given."""
        if not self.share:
            if self.share is not None:
                raise typer.BadParameter("--share needs the name of a group")
            if self.release or self.reject:
                raise typer.BadParameter("--release and --reject belong to a share group; name it with --share")
            return
        if self.release and self.reject:
            raise typer.BadParameter("give --release or --reject, not both")
        given = [name for name, is_given in others.items() if is_given]
        if given:
            raise typer.BadParameter(
                f"{', '.join(given)} {'does' if len(given) == 1 else 'do'} not go with --share: the group's configs "
                "say where it begins (share.auto.offset.reset) and what it sees (share.isolation.level)"
            )


def consume_share(
    client: Client,
    sink: Sink,
    options: ShareOptions,
    topics: list[str],
    count: int | None,
    *,
    stop_at_end: bool,
    quiet: bool,
) -> None:
    from oncelog.client.blocking.group import require_topics
    from oncelog.client.blocking.share import ShareConsumer
    from oncelog.client.machine.share.values import Acknowledge, ShareSettings

    if not topics:
        raise typer.BadParameter("name the topics to read: share groups have no patterns")
    group = options.share or ""
    kind = Acknowledge.REJECT if options.reject else Acknowledge.ACCEPT
    require_topics(client, topics)
    settings = ShareSettings(
        acknowledgement="explicit",
        # Records that are not printed must not count as delivered.
        acquire="batch_optimized" if count is None else "record_limit",
        max_records=_MAX_RECORDS if count is None else min(count, _MAX_RECORDS),
    )

    def remark(results: Iterable[Acknowledged]) -> None:
        for result in results:
            if result.error is not None and not quiet:
                offsets = f"offsets {result.first_offset} to {result.last_offset} of {result.partition}"
                print_line(f"% share group {group}: {offsets} may be delivered again: {result.error}", err=True)

    seen: set[tuple[str, int, int]] = set()
    with ShareConsumer(client, group, topics, settings=settings, on_acknowledged=remark) as consumer:
        is_assigned = False
        while not sink.is_full():
            records = consumer.poll(_IDLE_MS)
            for record in records:
                at = (record.topic, record.partition, record.offset)
                if at in seen:
                    continue
                with stop_signals_deferred():
                    sink.write_record(record)
                    sink.flush()
                    if not options.release:
                        consumer.acknowledge(record, kind)
                if options.release:
                    # It stays locked, and the end of the consumer releases it: released now, it would come again at
                    # once, until its deliveries are at the limit.
                    seen.add(at)
                if sink.is_full():
                    break
            if stop_at_end and is_assigned and not records:
                break
            is_assigned = bool(consumer.assignment)
