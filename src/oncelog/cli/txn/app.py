"""The group ``oncelog txn``, with the order its help has."""

from __future__ import annotations

from typing import Final

from oncelog.cli.options import new_app
from oncelog.cli.txn import ending, finding, looking, watching

app: Final = new_app("Find, explain and end hanging transactions, in oncelog and in Apache Kafka.")

app.command("find-hanging")(finding.find_hanging)
app.command("explain")(finding.explain)
app.command("abort")(ending.abort)
app.command("force-terminate")(ending.force_terminate)
app.command("list")(looking.list_)
app.command("describe")(looking.describe)
app.command("producers")(looking.producers)
app.command("watch")(watching.watch)
