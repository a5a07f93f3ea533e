"""``oncelog cluster status``: the state of a cluster, as tables, as JSON and as an exit code."""

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
        state = cluster_status(client)
    if cluster.as_json:
        print_json(state)
    else:
        _show(state)
    if not state.healthy:
        raise typer.Exit(EXIT_NOT_HEALTHY)


def _show(cluster: ClusterStatus) -> None:
    up = sum(partition.state == "up" for partition in cluster.brokers)
    controller = "none" if cluster.lacks_controller else "unknown"
    if cluster.controller_id is not None:
        controller = str(cluster.controller_id)
    print_line(
        f"cluster {cluster.cluster_id or '-'}  controller {controller}  brokers {up} of {len(cluster.brokers)} up  "
        f"topics {cluster.topics}  partitions {cluster.partitions}"
    )
    print_line("healthy" if cluster.healthy else f"not healthy: {', '.join(cluster.problems)}")
    print_line()
    print_table(
        ("broker", "address", "rack", "state", "leads", "replicas", "directories", "free"),
        [_broker_cells(partition) for partition in cluster.brokers],
    )
    print_line()
    print_table(
        ("partitions", "count"),
        [
            ("without leader", len(cluster.without_leader)),
            ("under-replicated", len(cluster.under_replicated)),
            ("under min ISR", len(cluster.under_min_isr)),
            ("at min ISR", len(cluster.at_min_isr)),
            ("being reassigned", "-" if cluster.not_seen else len(cluster.reassignments)),
        ],
    )
    lacking = {(partition.topic, partition.partition): partition for partition in _lacking(cluster)}
    _show_partitions([lacking[at] for at in sorted(lacking)])
    if cluster.reassignments:
        print_line()
        show_reassignments(cluster.reassignments)
    for refused in cluster.not_seen:
        print_line()
        print_line(f"not seen: {refused}")
    for directory in cluster.offline_directories:
        print_line()
        print_line(f"offline: {directory.directory} of broker {directory.broker_id}: {directory.error}")
    for broker in cluster.brokers:
        if broker.error is not None:
            print_line()
            print_line(f"broker {broker.broker_id}: {broker.error}")


def _lacking(cluster: ClusterStatus) -> Sequence[PartitionStatus]:
    return [*cluster.without_leader, *cluster.under_replicated, *cluster.under_min_isr]


def _broker_cells(broker: BrokerStatus) -> tuple[object, ...]:
    online = [directory for directory in broker.directories if directory.error is None]
    usable = [directory.usable_bytes for directory in online if directory.usable_bytes is not None]
    return (
        broker.broker_id,
        None if broker.host is None else f"{broker.host}:{broker.port}",
        broker.rack,
        broker.state,
        broker.leads,
        broker.replicas,
        f"{len(online)} of {len(broker.directories)}" if broker.directories else None,
        f"{sum(usable) / _GIB:.1f} GiB" if usable else None,
    )


def _in_sync(row: PartitionStatus) -> str | None:
    return ids_text(row.isr) if row.isr or not row.eligible else f"{ids_text(row.eligible)} (eligible)"


def _show_partitions(rows: Sequence[PartitionStatus]) -> None:
    if not rows:
        return
    print_line()
    print_table(
        ("topic", "partition", "leader", "replicas", "in sync", "min ISR"),
        [
            (row.topic, row.partition, row.leader, ids_text(row.replicas), _in_sync(row), row.min_isr)
            for row in rows[:MOST_ROWS]
        ],
    )
    tell_rest(len(rows))
