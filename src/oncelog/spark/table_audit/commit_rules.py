"""Rules between successive commits of one branch: recorded offsets only grow, and a batch is committed once. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from oncelog.base.ids import TopicPartition
from oncelog.spark.table_audit.model import Commit, Finding
from oncelog.spark.targets.table_target import Span


@dataclass(slots=True)
class _Line:
    """The newest recorded values on the way along a branch."""

    spans: dict[TopicPartition, tuple[Commit, Span]] = field(default_factory=dict)
    control: dict[str, tuple[Commit, dict[int, int]]] = field(default_factory=dict)
    commit_ids: dict[str, Commit] = field(default_factory=dict)
    valid_through: tuple[Commit, datetime] | None = None
    applications: dict[str, tuple[Commit, int]] = field(default_factory=dict)


def commit_findings(commits: Sequence[Commit]) -> Iterator[Finding]:
    """Findings of the commits of a branch, oldest first."""
    line = _Line()
    for commit in commits:
        yield from _span_findings(line, commit)
        yield from _control_findings(line, commit)
        yield from _connect_findings(line, commit)
        yield from _application_findings(line, commit)


def _finding(kind: str, commit: Commit, text: str) -> Finding:
    return Finding(kind, text, commit.name, commit.time_ms)


def _span_findings(line: _Line, commit: Commit) -> Iterator[Finding]:
    spans = commit.spans
    if spans is None:
        return
    for partition, (earlier, before) in sorted(line.spans.items()):
        after = spans.get(partition)
        if after is not None:
            yield from _step_findings(partition, earlier, before, commit, after)
        elif commit.has_all_partitions:
            text = (
                f"commit {commit.name} has no offsets of {partition}; {earlier.name} had {before.begin} to {before.end}"
            )
            place: dict[str, Any] = {"topic": str(partition.topic), "partition": partition.partition}
            yield Finding("went-back", text, commit.name, commit.time_ms, **place)
    kept = {} if commit.has_all_partitions else line.spans
    line.spans = {**kept, **{partition: (commit, span) for partition, span in spans.items()}}


def _step_findings(
    partition: TopicPartition, earlier: Commit, before: Span, commit: Commit, after: Span
) -> Iterator[Finding]:
    place: dict[str, Any] = {"topic": str(partition.topic), "partition": partition.partition}
    if after.begin > before.end:
        text = (
            f"{partition} ends at {before.end} in commit {earlier.name} and begins at {after.begin} in {commit.name}: "
            "no commit records the offsets between"
        )
        offsets: dict[str, Any] = {"first_offset": before.end, "last_offset": after.begin - 1}
        yield Finding("gap", text, commit.name, commit.time_ms, **place, **offsets)
    elif after.end < before.end or after.begin > before.begin:
        text = (
            f"{partition} is recorded from {before.begin} to {before.end} in commit {earlier.name}, and from "
            f"{after.begin} to {after.end} in {commit.name}: the next load repeats or skips the difference"
        )
        yield Finding("went-back", text, commit.name, commit.time_ms, **place)


def _control_findings(line: _Line, commit: Commit) -> Iterator[Finding]:
    for subject, offsets in commit.control.items():
        if (last := line.control.get(subject)) is not None:
            earlier, before = last
            back = {number: end for number, end in offsets.items() if end < before.get(number, end)}
            for number, end in sorted(back.items()):
                yield _finding(
                    "went-back",
                    commit,
                    f"control topic and group {subject}: partition {number} is at {before[number]} in snapshot "
                    f"{earlier.name} and at {end} in {commit.name}: messages between are taken again",
                )
            if commit.adds_files and not back and offsets == before:
                yield _finding(
                    "stale-commit",
                    commit,
                    f"snapshot {commit.name} added files at the same control offsets as {earlier.name} "
                    f"({_text(offsets)}): the coordinator had gone back in the control topic, and its files may be "
                    "registered already",
                )
        line.control[subject] = commit, dict(offsets)


def _connect_findings(line: _Line, commit: Commit) -> Iterator[Finding]:
    if (commit_id := commit.connect.get("commit-id")) is not None:
        earlier = line.commit_ids.get(commit_id)
        if earlier is not None:
            tasks = f"{earlier.connect.get('task-id', 'a task')} and {commit.connect.get('task-id', 'a task')}"
            yield _finding(
                "commit-twice", commit, f"snapshots {earlier.name} and {commit.name} carry commit {commit_id} ({tasks})"
            )
        line.commit_ids[commit_id] = commit
    with contextlib.suppress(ValueError):
        time = datetime.fromisoformat(commit.connect.get("valid-through-ts", ""))
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        if line.valid_through is not None and time < line.valid_through[1]:
            yield _finding(
                "valid-through-back",
                commit,
                f"snapshot {commit.name} is complete up to {time}, the earlier {line.valid_through[0].name} up to "
                f"{line.valid_through[1]}",
            )
        line.valid_through = commit, time


def _application_findings(line: _Line, commit: Commit) -> Iterator[Finding]:
    for application, version in commit.applications.items():
        if (last := line.applications.get(application)) is not None:
            earlier, before = last
            if version == before and commit.adds_files:
                text = f"versions {earlier.name} and {commit.name} both carry batch {version} of {application!r}"
                yield _finding("commit-twice", commit, text)
            elif version < before:
                after = f"comes after {before} in {earlier.name}"
                text = f"batch {version} of {application!r} in version {commit.name} {after}"
                yield _finding("went-back", commit, text)
        line.applications[application] = commit, version


def _text(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{number}: {end}" for number, end in sorted(offsets.items()))
