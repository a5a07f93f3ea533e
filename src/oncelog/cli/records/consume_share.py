"""``oncelog consume --share``: prints the records of topics as a member of a share group.

Only printed and flushed records are acknowledged. Others that were acquired are released at the end.

With ``--release`` that is all of them: released at once, a record would come again at once, until its deliveries are at
the limit. If its lock ended, the same would happen, so the command ends before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.support.terminal import print_line
from oncelog.client.errors import ClientError
from oncelog.runtime.stop_signals import stop_signals_deferred

if TYPE_CHECKING:
    from oncelog.cli.records.record_output import Sink
    from oncelog.client.blocking.client import Client
    from oncelog.client.blocking.share import ShareConsumer
    from oncelog.client.machine.share.values import Acknowledge, Acknowledged, ShareRecord

_IDLE_MS: Final = 1_000
_MAX_RECORDS: Final = 500
_WAIT_MS: Final = 500
_RELEASE_WAIT_MS: Final = 250
"""The end of a consumer waits for a fetch, while locks end."""
_MOST_SEEN: Final = 100_000
_LOCK_TIMEOUT_MS: Final = 30_000
_MOST_LOCKS: Final = "share.partition.max.record.locks"
_MOST_LOCKS_DEFAULT: Final = 2_000


@dataclass(frozen=True)
class ShareOptions:
    share: Annotated[
        str | None,
        typer.Option("--share", metavar="GROUP", help="Read as a member of a share group, and accept printed records."),
    ] = None
    release: Annotated[
        bool,
        typer.Option("--release", help="With --share: give printed records back at the end, before their locks end."),
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
        max_wait_ms=_RELEASE_WAIT_MS if options.release else _WAIT_MS,
    )

    def say(text: str) -> None:
        if not quiet:
            print_line(f"% share group {group}: {text}", err=True)

    def remark(results: Iterable[Acknowledged]) -> None:
        for result in results:
            if result.error is not None:
                offsets = f"offsets {result.first_offset} to {result.last_offset} of {result.partition}"
                say(f"{offsets} may be delivered again: {result.error}")

    seen = _Seen(client.cluster.environment.wall_ms) if options.release else None
    with ShareConsumer(client, group, topics, settings=settings, on_acknowledged=remark) as consumer:
        _read(client, consumer, sink, kind, seen, stop_at_end=stop_at_end)
    if seen is not None and not sink.is_full():
        if seen.left_ms() <= 0:
            say("ended before the first lock did, to give back what was printed; there may be more")
        for partition in _limited(client, group, seen):
            say(f"{partition} has as many locked records as {_MOST_LOCKS} allows; later ones, if any, are not shown")


def _read(
    client: Client, consumer: ShareConsumer, sink: Sink, kind: Acknowledge, seen: _Seen | None, *, stop_at_end: bool
) -> None:
    """Print records until the sink is full, the end is reached, or those of ``seen`` are to be given back."""
    now_ms = client.cluster.now_ms
    waits_until_ms = now_ms() + client.config.retry_timeout_ms
    while not sink.is_full():
        wait_ms = _IDLE_MS if seen is None else min(_IDLE_MS, seen.left_ms())
        if wait_ms <= 0:
            return
        records = consumer.poll(wait_ms)
        for record in records:
            if seen is not None and seen.has(record):
                continue
            with stop_signals_deferred():
                sink.write_record(record)
                sink.flush()
                if seen is None:
                    consumer.acknowledge(record, kind)
                else:
                    seen.add(record, consumer.lock_timeout_ms or _LOCK_TIMEOUT_MS)
            if sink.is_full() or (seen is not None and seen.left_ms() <= 0):
                return
        if records:
            waits_until_ms = now_ms() + client.config.retry_timeout_ms
        elif stop_at_end and consumer.assignment and not consumer.not_at_end:
            return
        elif stop_at_end and now_ms() >= waits_until_ms:
            unread = ", ".join(map(str, consumer.not_at_end)) or "no partition was assigned"
            raise ClientError(f"the end was not reached, as partitions could not be read: {unread}")


class _Seen:
    """Records that were printed and stay locked."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.offsets: dict[TopicPartition, set[int]] = {}
        self._wall_ms = wall_ms
        self._count = 0
        self._until_ms: int | None = None

    def has(self, record: ShareRecord) -> bool:
        return record.offset in self.offsets.get(TopicPartition(TopicName(record.topic), record.partition), ())

    def add(self, record: ShareRecord, lock_timeout_ms: int) -> None:
        self.offsets.setdefault(TopicPartition(TopicName(record.topic), record.partition), set()).add(record.offset)
        self._count += 1
        until_ms = record.lock_until_ms - _RELEASE_WAIT_MS - lock_timeout_ms // 8
        self._until_ms = until_ms if self._until_ms is None else min(self._until_ms, until_ms)

    def left_ms(self) -> int:
        """The time until they are to be released."""
        if self._count >= _MOST_SEEN:
            return 0
        return _IDLE_MS if self._until_ms is None else self._until_ms - self._wall_ms()


def _limited(client: Client, group: str, seen: _Seen) -> list[TopicPartition]:
    """The partitions whose window the printed records fill."""
    from oncelog.admin.configs import ResourceType, describe_configs

    most = _MOST_LOCKS_DEFAULT
    # Reading may be allowed, and this not.
    with contextlib.suppress(ClientError):
        for row in describe_configs(client, ResourceType.GROUP, group, (_MOST_LOCKS,)):
            if row.value is not None and row.value.isdigit():
                most = int(row.value)
    return [place for place, offsets in sorted(seen.offsets.items()) if max(offsets) - min(offsets) + 1 >= most]
