"""Runs the audit of a table: commits and files by their metadata, then rows and topics if requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicPartition
from oncelog.spark.session.errors import OptionError
from oncelog.spark.table_audit.commit_rules import commit_findings
from oncelog.spark.table_audit.control_topic import control_findings, source_offsets
from oncelog.spark.table_audit.file_rules import judge_files
from oncelog.spark.table_audit.log_comparison import Claim, comparison_findings
from oncelog.spark.table_audit.model import Commit, Finding, Findings, History
from oncelog.spark.table_audit.offset_runs import EMPTY, Runs
from oncelog.spark.table_audit.row_offsets import TableRows, read_rows, row_findings
from oncelog.spark.table_audit.topic_log import LogOffsets, read_cluster, read_directories

if TYPE_CHECKING:
    from oncelog.client.blocking import Client
    from oncelog.spark.audit.audit_plan import Plan

ReportProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """The rows of a partition in the table."""

    topic: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int
    offsets_without_row: int
    committed_records: int | None = None
    """The count in the whole log; None if it was not read."""


@dataclass(slots=True)
class TableAudit:
    name: str
    commits: int
    writers: dict[str, int]
    files: int
    rows: int
    rows_read: bool
    findings: Findings
    partitions: list[PartitionRow] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics to compare rows with: of a live cluster, or in log directories, or none."""

    client: Client | None = None
    plan: Plan | None = None

    @property
    def are_given(self) -> bool:
        return self.client is not None or self.plan is not None


def audit_table(
    history: History,
    *,
    read_all_rows: bool,
    topics: Topics,
    quarantine: History | None,
    report_progress: ReportProgress,
) -> TableAudit:
    """Raises TableError, OptionError, ClientError."""
    started = time.monotonic()
    result = TableAudit(history.name, len(history.commits), {}, 0, 0, False, Findings())
    for commit in history.commits:
        result.writers[commit.writer] = result.writers.get(commit.writer, 0) + 1
    _judge_commits(history, result.findings)
    facts = judge_files(history, report_progress)
    result.files, result.rows = facts.files, facts.rows
    _add(result, facts.findings)
    newest = _newest_control(history)
    if topics.client is not None:
        for subject, commit in newest.items():
            _add(result, control_findings(topics.client, commit, subject))
    if read_all_rows or topics.are_given:
        _judge_rows(history, result, topics, quarantine, newest, report_progress)
    result.caveats += dict.fromkeys(history.caveats)
    result.seconds = time.monotonic() - started
    return result


def _add(result: TableAudit, findings: Iterable[Finding]) -> None:
    for finding in findings:
        result.findings.add(finding)


def _judge_commits(history: History, findings: Findings) -> None:
    reported = set()
    for line in history.lines():
        for finding in commit_findings([history.commits[index] for index in line]):
            if finding not in reported:
                reported.add(finding)
                findings.add(finding)


def _newest_control(history: History) -> dict[str, Commit]:
    """The newest commit with offsets of each control topic and group, along the branches."""
    newest: dict[str, Commit] = {}
    for index in sorted({index for line in history.lines() for index in line}):
        for subject in history.commits[index].control:
            newest[subject] = history.commits[index]
    return newest


def _judge_rows(
    history: History,
    result: TableAudit,
    topics: Topics,
    quarantine: History | None,
    newest: Mapping[str, Commit],
    report_progress: ReportProgress,
) -> None:
    if history.place is None:
        raise OptionError(
            f"{history.name} has no columns topic (a string), partition and offset (integers), nor _kafka_metadata's, "
            "so its rows cannot be judged: name such columns with --columns TOPIC,PARTITION,OFFSET"
        )
    rows = read_rows(history, result.files, report_progress)
    result.rows_read = True
    if rows.without_offset:
        result.caveats.append(f"{rows.without_offset:,} rows have no topic, partition or offset: they were not judged")
    _add(result, row_findings(rows))
    claims = _claims(history, rows, topics, newest, result.caveats)
    elsewhere: Mapping[TopicPartition, Runs] = {}
    if quarantine is not None and quarantine.place is not None and topics.are_given:
        elsewhere = read_rows(quarantine, 0, lambda step, done, total: None).offsets
    logs: dict[TopicPartition, LogOffsets] = {}
    for partition, log in _logs(topics, sorted({*rows.offsets, *claims}), report_progress):
        if log is None:
            result.caveats.append(f"rows of {partition} were not compared: its log is not there")
            continue
        if log.caveat:
            result.caveats.append(log.caveat)
        if log.has_holes:
            result.caveats.append(
                f"{partition} is compacted: missing rows and rows without a record were not looked for"
            )
        logs[partition] = log
        quarantined = elsewhere.get(partition, EMPTY)
        _add(result, comparison_findings(rows, partition, log, claims.get(partition), quarantined))
    result.partitions = [_partition_row(rows, partition, logs.get(partition)) for partition in rows.offsets]


def _logs(
    topics: Topics, partitions: Sequence[TopicPartition], report_progress: ReportProgress
) -> Iterator[tuple[TopicPartition, LogOffsets | None]]:
    if topics.client is not None:
        yield from read_cluster(topics.client, partitions, report_progress)
    elif topics.plan is not None:
        yield from read_directories(topics.plan, partitions, report_progress)


def _claims(
    history: History, rows: TableRows, topics: Topics, newest: Mapping[str, Commit], caveats: list[str]
) -> dict[TopicPartition, Claim]:
    """The offsets that a partition should have: by its recorded span, its sink's committed offsets, or its rows."""
    claims = {
        partition: Claim(int(runs.starts[0]), int(runs.ends[-1]) + 1, "its first to its last row")
        for partition, runs in rows.offsets.items()
    }
    names = {partition.topic for partition in rows.offsets}
    for subject in newest if topics.client is not None else ():
        assert topics.client is not None  # for mypy: the loop is empty without
        offsets = source_offsets(topics.client, subject)
        if offsets is None:
            caveats.append(f"the sink of {subject} runs: records after the table's last rows were not looked for")
        for partition, offset in (offsets or {}).items():
            if partition.topic in names:
                begin = claims[partition].begin if partition in claims else 0
                claims[partition] = Claim(begin, offset, "up to the sink's committed offset")
    for index in history.lines()[0] if history.lines() else ():
        for partition, span in (history.commits[index].spans or {}).items():
            claims[partition] = Claim(span.begin, span.end, f"recorded by commit {history.commits[index].name}")
    return claims


def _partition_row(rows: TableRows, partition: TopicPartition, log: LogOffsets | None) -> PartitionRow:
    offsets = rows.offsets[partition]
    first, last = int(offsets.starts[0]), int(offsets.ends[-1])
    return PartitionRow(
        str(partition.topic),
        partition.partition,
        rows.builders[partition].rows,
        first,
        last,
        last - first + 1 - offsets.size,
        None if log is None else log.committed.size,
    )
