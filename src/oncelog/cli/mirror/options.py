"""The options of ``oncelog mirror`` that its sub-commands do not have."""

from __future__ import annotations

from typing import Annotated

import typer

Naming = Annotated[
    str | None, typer.Option("--naming", metavar="prefix|identity", help="a.orders, or orders as it is.")
]
Begin = Annotated[
    str | None,
    typer.Option("--begin", metavar="earliest|latest", help="Where partitions begin that were never copied."),
]
OnGap = Annotated[
    str | None,
    typer.Option("--on-gap", metavar="fail|record", help="If records are gone at the source before they are copied."),
]
ReadUncommitted = Annotated[
    bool, typer.Option("--read-uncommitted", help="Copy transactions before they are decided, aborted ones too.")
]
NoConfigs = Annotated[bool, typer.Option("--no-configs", help="Leave the topics' configurations alone.")]
Acls = Annotated[bool, typer.Option("--acls", help="Copy access control lists of topics, but for writing.")]
DeleteTopics = Annotated[
    bool, typer.Option("--delete-topics", help="Delete copies whose topic was deleted at the source.")
]
ReplicationFactor = Annotated[
    int | None, typer.Option("--replication-factor", metavar="N", min=1, help="Of topics made at the target.")
]
CommitInterval = Annotated[
    int | None, typer.Option("--commit-interval-ms", metavar="MS", min=1, help="Length of a transaction (500).")
]
RefreshInterval = Annotated[
    int | None, typer.Option("--refresh-interval-ms", metavar="MS", min=1, help="Between looks for topics (5000).")
]
GroupsInterval = Annotated[
    int | None, typer.Option("--groups-interval-ms", metavar="MS", min=1, help="Between looks at groups (3000).")
]
Instance = Annotated[
    str | None,
    typer.Option("--instance", metavar="NAME", help="Of several that share the work. Default: by host and number."),
]
UntilCaughtUp = Annotated[bool, typer.Option("--exit", "-e", help="End when what is there at the beginning is copied.")]
Interval = Annotated[float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Between two reports.")]
Prometheus = Annotated[
    int | None, typer.Option("--prometheus", metavar="PORT", min=0, max=65535, help="Serve metrics.")
]
PrometheusAddress = Annotated[
    str, typer.Option("--prometheus-address", metavar="HOST", help="Address to serve metrics on.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No reports.")]
