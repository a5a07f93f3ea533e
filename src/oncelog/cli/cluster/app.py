"""The group ``oncelog cluster``, with the order its help has."""

from __future__ import annotations

from typing import Final

from oncelog.cli.cluster import decommission, status
from oncelog.cli.options import new_app

app: Final = new_app("Look at a cluster, oncelog's or Apache Kafka's, and take brokers out of it.")

app.command("status")(status.status)
app.command("decommission")(decommission.decommission)
