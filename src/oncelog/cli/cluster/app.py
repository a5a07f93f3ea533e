"""The group ``oncelog cluster``, with the order its help has."""

from __future__ import annotations

from typing import Final

from oncelog.cli.cluster import adopt, decommission, status, up
from oncelog.cli.support.option_groups import CommandGroup

app: Final = CommandGroup(
    "Run a cluster on this machine; look at a cluster, oncelog's or Apache Kafka's, and take brokers out of it."
)

app.command("up")(up.up)
app.command("adopt")(adopt.adopt)
app.command("status")(status.status)
app.command("decommission")(decommission.decommission)
app.command("unregister")(decommission.unregister)
