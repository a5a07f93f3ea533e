"""The group ``oncelog txn``, with the order its help has."""

from __future__ import annotations

from typing import Final

from oncelog.cli.support.option_groups import CommandGroup
from oncelog.cli.txn import abort, commit, describe, diagnose, watch

app: Final = CommandGroup(
    "Find, explain and end hanging transactions, commit those of dead jobs; in oncelog and Apache Kafka."
)

app.command("find-hanging")(diagnose.find_hanging)
app.command("explain")(diagnose.explain)
app.command("abort")(abort.abort)
app.command("commit")(commit.commit)
app.command("force-terminate")(abort.force_terminate)
app.command("list")(describe.list_)
app.command("describe")(describe.describe)
app.command("producers")(describe.producers)
app.command("watch")(watch.watch)
