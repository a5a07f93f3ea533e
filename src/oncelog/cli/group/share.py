"""``oncelog group describe`` of a share group: start offsets, records in flight, members, settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.cli.support.output import print_table
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.admin.configs import ConfigRow
    from oncelog.admin.groups import GroupDescription, ShareOffsetRow
    from oncelog.admin.share_deliveries import ShareDeliveryRow
    from oncelog.admin.transactions.broker_requests import Unanswered
    from oncelog.client.blocking.client import Client

_FROM_LOG: Final = (
    "states are from the log of the share coordinators, which has no locks: a record may be with a member"
)
SHARE_GROUPS_OFF: Final = "share groups are off in this cluster (feature share.version is 0)"
_MOST_HOLDERS: Final = 3


def group_configs(client: Client, group: str, *, only_share: bool = False) -> list[ConfigRow]:
    """The settings of a group, whether it exists or not; of a share group, those that take effect."""
    from oncelog.admin.configs import ResourceType, describe_configs

    rows = describe_configs(client, ResourceType.GROUP, group)
    return [row for row in rows if not only_share or row.name.startswith(("share.", "errors."))]


class Share:
    """A share group as the cluster tells it."""

    def __init__(self, client: Client, description: GroupDescription) -> None:
        from oncelog.admin.groups import share_offsets
        from oncelog.admin.share_deliveries import as_led, share_deliveries

        self.description = description
        self.offsets: list[ShareOffsetRow] = share_offsets(client, description.group)
        self.deliveries: list[ShareDeliveryRow]
        self.unanswered: list[Unanswered]
        places = [row.topic_partition for row in self.offsets]
        self.deliveries, self.unanswered = share_deliveries(client, description.group, places)
        self.offsets = as_led(description, self.offsets, self.deliveries)

    def document(self, configs: list[ConfigRow]) -> Mapping[str, object]:
        return {
            "group": self.description,
            "partitions": self.offsets,
            "deliveries": self.deliveries,
            "configs": {row.name: row.value for row in configs},
            "unanswered": self.unanswered,
        }

    def show(self, *, deliveries: bool) -> None:
        if deliveries:
            self._print_deliveries(int(time.time() * 1000))
        else:
            self._print_partitions()
        if any(row.source == "log" and row.batches for row in self.deliveries):
            print_line(_FROM_LOG)
        for silent in self.unanswered:
            print_line(f"not known: {silent}")

    def _print_partitions(self) -> None:
        by_place = {row.topic_partition: row for row in self.deliveries}
        rows: list[list[object]] = []
        for offset in self.offsets:
            row = by_place.get(offset.topic_partition)
            cells: list[object] = [None, None, None, None]
            if row is not None:
                cells = [row.in_flight_records, row.acquired, row.most_deliveries, self._holders(row)]
            rows.append(
                [
                    *(offset.topic, offset.partition, offset.start_offset, offset.log_end, offset.lag),
                    *cells,
                    *([offset.error] if self._has_errors else []),
                ]
            )
        columns = ("topic", "partition", "start", "end", "lag", "in flight", "acquired", "deliveries", "held by")
        print_table((*columns, *(["error"] if self._has_errors else [])), rows)

    @property
    def _has_errors(self) -> bool:
        return any(offset.error for offset in self.offsets)

    def _holders(self, row: ShareDeliveryRow) -> str | None:
        names = list(dict.fromkeys(self._name(batch.member_id) for batch in row.batches if batch.member_id))
        more = f" and {len(names) - _MOST_HOLDERS} more" if len(names) > _MOST_HOLDERS else ""
        return ", ".join(names[:_MOST_HOLDERS]) + more or None

    def _name(self, member_id: str) -> str:
        """The client id of a member; a member that is gone has only its member id."""
        members = self.description.members
        return next((member.client_id for member in members if member.member_id == member_id), f"{member_id} (gone)")

    def _print_deliveries(self, now_ms: int) -> None:
        from oncelog.admin.transactions.durations import duration_text, moment_text

        rows = []
        for row in self.deliveries:
            for batch in row.batches:
                since, until = batch.locked_since_ms, batch.locked_until_ms
                rows.append(
                    (
                        *(row.topic, row.partition, batch.first_offset, batch.last_offset, batch.state),
                        batch.delivery_count,
                        None if batch.member_id is None else self._name(batch.member_id),
                        None if since is None else duration_text(now_ms - since),
                        None if until is None else moment_text(until),
                    )
                )
        columns = ("topic", "partition", "first", "last", "state", "deliveries", "held by", "for", "until")
        print_table(columns, rows)
        if left_off := sum(row.batches_left_off for row in self.deliveries):
            print_line(f"and {left_off} more batches that the leaders left out")


def print_configs(configs: list[ConfigRow]) -> None:
    print_table(("setting", "value", "from"), [(row.name, row.value, row.source) for row in configs])
