"""``oncelog cluster status``: the state of a cluster for people, and for scripts by ``--json`` and the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.reassignment_progress import MOST_ROWS, ids_text, show_reassignments, tell_rest

if TYPE_CHECKING:
    from oncelog.admin.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus

EXIT_NOT_HEALTHY: Final = 1
_GIB: Final = 1 << 30


def status(
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Show brokers, controller, and the partitions that lack a leader or replicas.

    Exits with 0 when the cluster is healthy, and with 1 when it is not: a broker is not up, there is no controller, a
    partition has no leader or fewer replicas in sync than it has, or fewer than min.insync.replicas, or a log
    directory is offline. Partitions at min ISR (one replica fewer, and acks=all is refused) and reassignments under way
    are shown, but are no fault. Exits with 1, too, and says so on stderr, when no broker can be reached.

    \b
    Examples:
      oncelog cluster status
      oncelog cluster status -b kafka1:9092,kafka2:9092
      oncelog cluster status --json | jq '.under_replicated[] | "\\(.topic)-\\(.partition)"'
      until oncelog cluster status >/dev/null; do sleep 1; done    # between two restarts
    """
    from oncelog.admin.cluster_status import cluster_status

    with cluster.open_client() as client:
        found = cluster_status(client)
    if cluster.as_json:
        print_json(found)
    else:
        _show(found)
    if not found.healthy:
        raise typer.Exit(EXIT_NOT_HEALTHY)


def _show(found: ClusterStatus) -> None:
    up = sum(one.state == "up" for one in found.brokers)
    controller = "none" if found.controller_id is None else found.controller_id
    print_line(
        f"cluster {found.cluster_id or '-'}  controller {controller}  brokers {up} of {len(found.brokers)} up  "
        f"topics {found.topics}  partitions {found.partitions}"
    )
    print_line("healthy" if found.healthy else f"not healthy: {', '.join(found.problems)}")
    print_line()
    print_table(
        ("broker", "address", "rack", "state", "leads", "replicas", "directories", "free"),
        [_broker_cells(one) for one in found.brokers],
    )
    print_line()
    print_table(
        ("partitions", "count"),
        [
            ("without leader", len(found.without_leader)),
            ("under-replicated", len(found.under_replicated)),
            ("under min ISR", len(found.under_min_isr)),
            ("at min ISR", len(found.at_min_isr)),
            ("being reassigned", "-" if found.not_seen else len(found.reassignments)),
        ],
    )
    lacking = {(one.topic, one.partition): one for one in _lacking(found)}
    _show_partitions([lacking[at] for at in sorted(lacking)])
    if found.reassignments:
        print_line()
        show_reassignments(found.reassignments)
    for refused in found.not_seen:
        print_line()
        print_line(f"not seen: {refused}")
    for directory in found.offline_directories:
        print_line()
        print_line(f"offline: {directory.directory} of broker {directory.broker_id}: {directory.error}")
    for broker in found.brokers:
        if broker.error is not None:
            print_line()
            print_line(f"broker {broker.broker_id}: {broker.error}")


def _lacking(found: ClusterStatus) -> Sequence[PartitionStatus]:
    return [*found.without_leader, *found.under_replicated, *found.under_min_isr]


def _broker_cells(one: BrokerStatus) -> tuple[object, ...]:
    online = [directory for directory in one.directories if directory.error is None]
    usable = [each.usable_bytes for each in online if each.usable_bytes is not None]
    return (
        one.broker_id,
        None if one.host is None else f"{one.host}:{one.port}",
        one.rack,
        one.state,
        one.leads,
        one.replicas,
        f"{len(online)} of {len(one.directories)}" if one.directories else None,
        f"{sum(usable) / _GIB:.1f} GiB" if usable else None,
    )


def _show_partitions(rows: Sequence[PartitionStatus]) -> None:
    if not rows:
        return
    print_line()
    print_table(
        ("topic", "partition", "leader", "replicas", "in sync", "min ISR"),
        [
            (row.topic, row.partition, row.leader, ids_text(row.replicas), ids_text(row.isr), row.min_isr)
            for row in rows[:MOST_ROWS]
        ],
    )
    tell_rest(len(rows))
