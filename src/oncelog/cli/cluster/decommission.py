"""``oncelog cluster decommission``: moves all replicas off a broker so that it can be stopped for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from oncelog.base.text import counted
from oncelog.cli.support.failures import EXIT_FAILED, complain
from oncelog.cli.support.options import AdminOptions
from oncelog.cli.support.output import print_json, print_result, print_table
from oncelog.cli.support.terminal import print_line
from oncelog.cli.topic.reassignment_progress import Timeout, wait_until_moved
from oncelog.client.errors import BrokerRefused

if TYPE_CHECKING:
    from oncelog.admin.decommission import Decommission, Departure


_AT_ONCE: Final = 20


def decommission(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; --json as kafka-reassign-partitions takes it.")
    ] = False,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="COUNT", min=1, help="Partitions that are moved at a time.")
    ] = _AT_ONCE,
    timeout: Timeout = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Move every replica off a broker: to other racks first, evenly, with the replication factors they have.

    Ends when nothing is left, and goes on where it was when it is run again. Stop the broker after that, and
    unregister it: as long as the cluster knows it, new topics may be placed on it.

    \b
    Examples:
      oncelog cluster decommission 3 --dry-run
      oncelog cluster decommission 3
      oncelog cluster decommission 3 --at-once 5 --timeout 3600
    """
    from oncelog.admin.decommission import Decommission, plan_decommission
    from oncelog.admin.reassignment_plan import PlanRefused, assignment_json

    with cluster.open_client() as client:
        departure = plan_decommission(client, broker)
        if not departure.left and broker not in departure.registered:
            others = ", ".join(map(str, departure.registered))
            raise PlanRefused(f"there is no broker {broker} in this cluster; its brokers are {others}")
        if dry_run:
            if cluster.as_json:
                print_json(assignment_json(departure.plan))
            else:
                _show(broker, departure)
            return
        moves = Decommission(client, broker, at_once)
        done = wait_until_moved(f"broker {broker}", lambda: _step(moves), timeout)
        left = 0 if done else plan_decommission(client, broker).left
    if cluster.as_json:
        print_json({"broker_id": broker, "moved": departure.left - left, "left": left})
    elif done:
        print_line(
            f"broker {broker} has no replicas left ({counted(departure.left, 'partition')} moved); it can be stopped"
        )
    if not done:
        complain(f"broker {broker} still has {left} of {counted(departure.left, 'partition')}; run the command again")
        raise typer.Exit(EXIT_FAILED)


def _step(moves: Decommission) -> int:
    """Starts more moves and returns the number of partitions left. Raises BrokerRefused for a refused move."""
    departure, refused = moves.step()
    for outcome in refused:
        raise BrokerRefused(outcome.error_code, f"moving {outcome.topic}-{outcome.partition}", outcome.error)
    return departure.left


def _show(broker: int, departure: Departure) -> None:
    if not departure.left:
        print_line(f"broker {broker} has no replicas")
        return
    print_line(f"broker {broker} has {counted(departure.left, 'partition')}, {departure.moving} of them being moved")
    if departure.plan:
        print_table(
            ("topic", "partition", "moves to"),
            [
                (partition.topic, partition.partition, ",".join(map(str, new)))
                for partition, new in departure.plan.items()
            ],
        )


def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.")],
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Forget a broker that is down for good: new topics are not placed on it any more, and status does not list it.

    Move its replicas away before (oncelog cluster decommission). Started again, it registers again.

    \b
    Examples:
      oncelog cluster unregister 3
    """
    from oncelog.admin.cluster import unregister_broker

    with cluster.open_client() as client:
        unregister_broker(client, broker)
    document = {"broker_id": broker, "unregistered": True}
    print_result(f"broker {broker} is unregistered", document, as_json=cluster.as_json)
