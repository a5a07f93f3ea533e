"""``oncelog cluster decommission``: take everything off a broker, so that it can be stopped for good."""

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
        found = plan_decommission(client, broker)
        if not found.left and broker not in found.registered:
            others = ", ".join(map(str, found.registered))
            raise PlanRefused(f"there is no broker {broker} in this cluster; its brokers are {others}")
        if dry_run:
            if cluster.as_json:
                print_json(assignment_json(found.plan))
            else:
                _show(broker, found)
            return
        moves = Decommission(client, broker, at_once)
        done = wait_until_moved(f"broker {broker}", lambda: _step(moves), timeout)
        left = 0 if done else plan_decommission(client, broker).left
    if cluster.as_json:
        print_json({"broker_id": broker, "moved": found.left - left, "left": left})
    elif done:
        print_line(
            f"broker {broker} has no replicas any more ({counted(found.left, 'partition')} moved); it can be stopped"
        )
    if not done:
        complain(
            f"broker {broker} still has {left} of {counted(found.left, 'partition')}; run the command again to go on"
        )
        raise typer.Exit(EXIT_FAILED)


def _step(moves: Decommission) -> int:
    """Begin more moves; the partitions that are left. Raises BrokerRefused for a move that is refused."""
    found, refused = moves.step()
    for one in refused:
        raise BrokerRefused(one.error_code, f"moving {one.topic}-{one.partition}", one.error)
    return found.left


def _show(broker: int, found: Departure) -> None:
    if not found.left:
        print_line(f"broker {broker} has no replicas")
        return
    print_line(f"broker {broker} has {counted(found.left, 'partition')}, {found.moving} of them being moved")
    if found.plan:
        print_table(
            ("topic", "partition", "moves to"),
            [(at.topic, at.partition, ",".join(map(str, new))) for at, new in found.plan.items()],
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
