"""``oncelog mirror verify --mm2``: prints the judgement of MirrorMaker 2's offset translation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from oncelog.admin.transactions.durations import moment_text
from oncelog.base.text import counted
from oncelog.cli.support.output import print_json, print_table, progress
from oncelog.cli.support.terminal import print_line

if TYPE_CHECKING:
    from oncelog.cli.mirror.settings import Clusters, MirrorMakerOptions
    from oncelog.mirror.mirror_maker.verification import GroupRow, MirrorMakerReport


def verify_translation(
    clusters: Clusters, topics: str | None, most_records: int, options: MirrorMakerOptions, *, as_json: bool
) -> None:
    """Verify each source; exits with 1 after a finding. Raises ClientError."""
    from oncelog.mirror.mirror_maker.findings import Tolerance
    from oncelog.mirror.mirror_maker.verification import Selection, verify_mirror_maker
    from oncelog.mirror.settings import compiled

    selection = Selection(
        compiled(topics or ".*", "--topics"),
        None if options.groups is None else compiled(options.groups, "--groups"),
        most_records,
        Tolerance(options.offset_lag_max, int(options.stale_s * 1000)),
    )
    with progress(None if as_json else "groups") as report_progress:
        reports = [
            asyncio.run(verify_mirror_maker(source, clusters.target, selection, report_progress))
            for source in clusters.sources
        ]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            _print(report)
    if any(report.findings for report in reports):
        raise typer.Exit(1)


def _print(report: MirrorMakerReport) -> None:
    syncs = counted(sum(copy.syncs for copy in report.copies), "sync")
    beat = "no heartbeat" if report.heartbeat_ms is None else f"last heartbeat {moment_text(report.heartbeat_ms)}"
    print_line(
        f"{report.source}: {syncs} of {counted(len(report.copies), 'partition')} in {report.offset_syncs}, "
        f"{counted(len(report.groups), 'checkpoint')} in {report.checkpoints or 'no topic'}; {beat}"
    )
    if not report.findings:
        print_line("nothing found wrong in the translation")
    for finding in report.findings:
        subject = [] if finding.group is None else [f"group {finding.group}"]
        subject += [] if finding.topic is None else [f"{finding.topic}-{finding.partition}"]
        print_line(f"{finding.kind.value}: {', '.join([*subject, ''])[:-2] or 'internal topics'}: {finding.text}")
    if report.groups:
        print_line()
        columns = ("group", "partition", "offset", "checkpoint", "at the copy", "its offset", "lost", "read twice")
        print_table(columns, map(_cells, report.groups))


def _cells(row: GroupRow) -> tuple[object, ...]:
    here = (row.group, f"{row.topic}-{row.partition}", row.committed, row.upstream_offset, row.downstream_offset)
    return (*here, row.committed_at_target, row.records_lost, row.records_read_twice)
