"""``oncelog cluster unregister``: forget a broker that is down for good."""

from __future__ import annotations

from typing import Annotated

import typer

from oncelog.cli.support.options import AsJson, ClusterOptions
from oncelog.cli.support.output import print_json
from oncelog.cli.support.terminal import print_line


def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's id.")],
    cluster: ClusterOptions = ClusterOptions(),
    as_json: AsJson = False,
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
    if as_json:
        print_json({"broker_id": broker, "unregistered": True})
    else:
        print_line(f"broker {broker} is unregistered")
