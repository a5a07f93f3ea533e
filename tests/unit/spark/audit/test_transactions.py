"""Planted damage to transactions is found, and named: kind, topic, partition, offset, id, producer, epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.spark.audit.model import Finding
from tests.unit.spark.audit.logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STOPPED,
    TIME,
    Coordinator,
    Log,
    commit_offset,
    findings_in,
    run,
)

BOTH = "t-0 t-1"


class Scenario:
    """Two partitions and their coordinator."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = Log(directory, "t", 0), Log(directory, "t", 1)
        self.coordinator = Coordinator(directory)

    def transactions(self, count: int = 3, *, first_epoch: int = 0) -> None:
        for epoch in range(first_epoch, first_epoch + count):
            committed = epoch % 2 == 0
            for log in self.logs:
                log.transaction(epoch=epoch, committed=committed)
            self.coordinator.ended(BOTH, epoch=epoch, committed=committed, at=3 * epoch)

    def findings(self) -> list[Finding]:
        for log in self.logs:
            log.write()
        self.coordinator.write()
        return findings_in(self.directory)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def kinds(findings: list[Finding]) -> list[str]:
    return [finding.kind for finding in findings]


def where(finding: Finding) -> tuple[str, int, int, str, int, int]:
    return (
        finding.topic,
        finding.partition,
        finding.offset,
        finding.transactional_id,
        finding.producer_id,
        finding.epoch,
    )


def test_a_clean_log_gives_none_and_every_transaction_has_its_fate(scenario: Scenario) -> None:
    scenario.transactions(4)
    scenario.logs[0].roll()
    scenario.transactions(4, first_epoch=4)
    assert scenario.findings() == []
    tallies = run(scenario.directory).tallies
    assert sum(tally.parts for tally in tallies if tally.fate == "committed") == 8
    assert sum(tally.parts for tally in tallies if tally.fate == "aborted") == 8


def test_torn_committed_here_and_aborted_there(scenario: Scenario) -> None:
    scenario.transactions()
    scenario.logs[0].transaction(epoch=3)
    _, marker = scenario.logs[1].transaction(epoch=3, committed=False)
    scenario.coordinator.ended(BOTH, epoch=3, at=9)
    findings = scenario.findings()
    assert set(kinds(findings)) == {"torn"}
    assert ("t", 1, marker, "app", 7, 4) in map(where, findings)
    assert "the marker says abort, the coordinator decided to commit 'app' at epoch 4"[:30] in findings[-1].text


def test_torn_without_any_coordinator_record(scenario: Scenario) -> None:
    scenario.logs[0].transaction(epoch=3)
    first, _ = scenario.logs[1].transaction(epoch=3, committed=False)
    for log in scenario.logs:
        log.write()
    (finding,) = findings_in(scenario.directory)
    assert where(finding) == ("t", 1, first, "", 7, 3)
    assert finding.text == "committed on t-0, aborted on t-1"


def test_torn_a_marker_is_missing_where_the_coordinator_lists_the_partition(scenario: Scenario) -> None:
    scenario.transactions()
    scenario.logs[0].transaction(epoch=3)
    first = scenario.logs[1].data(epoch=3)
    scenario.coordinator.ended(BOTH, epoch=3, at=9)
    (finding,) = scenario.findings()
    assert finding.kind == "torn"
    assert where(finding) == ("t", 1, first, "app", 7, 3)
    assert "no marker: the coordinator decided to commit 'app' at epoch 4" in finding.text


@pytest.mark.parametrize(
    ("epochs", "kind"), [("0\n2\n0 0\n4 {end}\n", "lost-marker"), ("0\n1\n0 0\n", "torn"), ("?", "torn")]
)
def test_a_marker_that_an_unclean_election_has_lost(scenario: Scenario, epochs: str, kind: str) -> None:
    scenario.transactions()
    scenario.logs[0].transaction(epoch=3)
    first = scenario.logs[1].data(epoch=3)
    scenario.coordinator.ended(BOTH, epoch=3, at=9)
    scenario.findings()
    checkpoint = scenario.logs[1].path / "leader-epoch-checkpoint"
    checkpoint.write_text(epochs.format(end=scenario.logs[1].end))
    (finding,) = findings_in(scenario.directory)
    assert (finding.kind, finding.partition, finding.offset, finding.epoch) == (kind, 1, first, 3)
    assert ("leader epoch 4 began at offset" in finding.text) == (kind == "lost-marker")


def test_time_outs_and_ids_that_are_not_used_again_are_notes(scenario: Scenario) -> None:
    coordinator = scenario.coordinator
    for number in range(3):
        coordinator.state("late", 8, 2 * number, ONGOING, "t-0", at=1_000 * number, begun=1_000 * number)
        coordinator.state("late", 8, 2 * number + 1, PREPARE_ABORT, "", at=1_000 * number + 900, begun=1_000 * number)
        coordinator.state("late", 8, 2 * number + 1, COMPLETE_ABORT, "", at=1_000 * number + 901, begun=1_000 * number)
    for number in range(30):
        coordinator.state(f"once-{number}", 100 + number, 0, EMPTY, "", at=60 * number)
    coordinator.state("now", 99, 0, EMPTY, "", at=26 * 3600)
    assert scenario.findings() == []
    notes = {note.kind: note for note in run(scenario.directory).notes}
    assert notes["timed-out"].transactional_id == "late"
    assert notes["timed-out"].text.startswith("3 of the 3 transactions that ended were aborted by the coordinator")
    assert notes["unused-ids"].text.startswith("30 ids like 'once-<number>' are not used again in this partition")


def test_torn_a_partition_that_was_listed_has_neither_data_nor_marker(scenario: Scenario) -> None:
    scenario.transactions()
    scenario.logs[0].transaction(epoch=3)
    scenario.coordinator.ended(BOTH, epoch=3, at=20)
    (finding,) = scenario.findings()
    assert finding.kind == "torn"
    assert where(finding) == ("t", 1, scenario.logs[1].end, "app", 7, 4)


def test_what_is_alive_young_or_being_ended_is_no_finding(scenario: Scenario) -> None:
    scenario.transactions(2)
    scenario.logs[0].data(epoch=2)
    scenario.coordinator.state(epoch=2, status=ONGOING, places="t-0", at=6)
    scenario.logs[1].data(pid=8, epoch=5)
    scenario.coordinator.state("other", 8, 5, ONGOING, "t-1", at=6)
    scenario.coordinator.state("other", 8, 6, PREPARE_COMMIT, "t-1", at=6)
    assert scenario.findings() == []
    assert sorted(part.fate for part in run(scenario.directory).transactions) == ["ending", "open"]
    late = run(scenario.directory, limits=replace(STOPPED, now_ms=TIME + 3_600_000)).findings
    assert sorted((finding.kind, finding.transactional_id) for finding in late) == [
        ("hanging", "app"),
        ("torn", "other"),
    ]


@pytest.mark.parametrize(
    ("epoch", "status", "places", "text"),
    [
        (5, EMPTY, "", "the coordinator says Empty at epoch 5"),
        (4, COMPLETE_COMMIT, "", "the coordinator says CompleteCommit at epoch 4"),
        (4, ONGOING, "t-0", "the coordinator says Ongoing at epoch 4, without t-1"),
        (9, ONGOING, "t-0 t-1", "the coordinator says Ongoing at epoch 9"),
        (5, PREPARE_ABORT, "t-0", "the coordinator says PrepareAbort at epoch 5, without t-1"),
        # It lists the partition under an epoch that the partition would refuse.
        (3, ONGOING, "t-0 t-1", "the coordinator says Ongoing at epoch 3"),
    ],
)
def test_hanging_the_coordinator_knows_of_nothing(
    scenario: Scenario, epoch: int, status: int, places: str, text: str
) -> None:
    scenario.transactions()
    first = scenario.logs[1].data(epoch=4)
    scenario.coordinator.state("app", 7, epoch, status, places, at=9)
    (finding,) = [finding for finding in scenario.findings() if finding.kind == "hanging"]
    assert where(finding) == ("t", 1, first, "app", 7, 4)
    assert text in finding.text


def test_prepared_in_two_phase_commit_is_open_however_old_and_kept_for_a_newer_epoch_too(scenario: Scenario) -> None:
    scenario.transactions()
    scenario.logs[0].data(epoch=4)
    scenario.logs[1].data(pid=8, epoch=4)
    scenario.coordinator.state("app", 7, 4, ONGOING, "t-0", at=9, timeout_ms=NEVER_TIMES_OUT)
    scenario.coordinator.state("kept", 8, 5, ONGOING, "t-1", at=9, timeout_ms=NEVER_TIMES_OUT)
    assert scenario.findings() == []
    late = run(scenario.directory, limits=replace(STOPPED, now_ms=TIME + 86_400_000))
    assert late.findings == []
    assert [part.fate for part in late.transactions] == ["open", "open"]


def test_hanging_no_coordinator_knows_the_producer(scenario: Scenario) -> None:
    scenario.transactions()
    first = scenario.logs[0].data(pid=99, epoch=2)
    (finding,) = scenario.findings()
    assert finding.kind == "hanging"
    assert where(finding) == ("t", 0, first, "", 99, 2)
    assert "no coordinator knows producer 99" in finding.text


def test_without_a_coordinators_log_only_age_tells(tmp_path: Path) -> None:
    log = Log(tmp_path, "t")
    log.data(epoch=2)
    log.write()
    assert findings_in(tmp_path) == []
    (finding,) = run(tmp_path, limits=replace(STOPPED, now_ms=TIME + 3_600_000)).findings
    assert finding.kind == "hanging"
    assert "60 min" in finding.text


def test_late_write_after_a_marker(scenario: Scenario) -> None:
    scenario.transactions()
    late = scenario.logs[0].data(epoch=2, sequence=2)
    findings = scenario.findings()
    assert ("t", 0, late, "app", 7, 2) in [where(finding) for finding in findings if finding.kind == "late-write"]
    assert (
        "after epoch 3, after the marker at offset 8"
        in next(finding for finding in findings if finding.kind == "late-write").text
    )


def test_late_write_into_an_ended_transaction_of_the_same_epoch(scenario: Scenario) -> None:
    """As before Transactions V2, when markers did not raise the epoch."""
    log = scenario.logs[0]
    log.data(epoch=0)
    marker = log.marker(epoch=0)
    scenario.coordinator.state(epoch=0, places="t-0", version=0)
    scenario.coordinator.state(epoch=0, status=PREPARE_COMMIT, places="t-0", version=0)
    scenario.coordinator.state(epoch=0, status=COMPLETE_COMMIT, version=0)
    late = log.data(epoch=0, sequence=2)
    findings = scenario.findings()
    assert kinds(findings) == ["hanging", "late-write"]
    assert where(findings[1]) == ("t", 0, late, "app", 7, 0)
    assert f"after the marker at offset {marker}" in findings[1].text


def test_markers_without_a_coordinators_record(scenario: Scenario) -> None:
    scenario.transactions()
    _, by_hand = scenario.logs[0].transaction(epoch=3, committed=False)
    _, unknown = scenario.logs[1].transaction(pid=55, epoch=0)
    findings = scenario.findings()
    assert kinds(findings) == ["stray-marker"] * 2
    assert where(findings[0]) == ("t", 0, by_hand, "app", 7, 4)
    assert where(findings[1]) == ("t", 1, unknown, "", 55, 1)
    assert "no coordinator knows producer 55" in findings[1].text


def committed_thrice(scenario: Scenario, *, repeated_at: int) -> int:
    """Three commits of epoch 0, as before Transactions V2; the marker of one is written again. The last marker."""
    log, marker = scenario.logs[0], -1
    for number in range(3):
        log.data(epoch=0, sequence=2 * number)
        marker = log.marker(epoch=0)
        for status, places in ((ONGOING, "t-0"), (PREPARE_COMMIT, "t-0"), (COMPLETE_COMMIT, "")):
            scenario.coordinator.state(epoch=0, status=status, places=places, version=0, at=marker)
        if number == repeated_at:
            log.marker(epoch=0)
    return marker


@pytest.mark.parametrize("repeated_at", range(3))
def test_a_marker_that_was_written_twice_takes_no_later_decision(scenario: Scenario, repeated_at: int) -> None:
    committed_thrice(scenario, repeated_at=repeated_at)
    assert scenario.findings() == []


def test_a_marker_without_a_decision_behind_one_that_was_written_twice(scenario: Scenario) -> None:
    committed_thrice(scenario, repeated_at=0)
    log = scenario.logs[0]
    log.data(epoch=0, sequence=6)
    stray = log.marker(epoch=0)
    findings = scenario.findings()
    assert [(finding.kind, finding.offset) for finding in findings] == [("stray-marker", stray)]


def test_a_partition_without_data_whose_decision_is_later_by_its_coordinators_clock(scenario: Scenario) -> None:
    log = scenario.logs[0]
    log.data(epoch=0)
    first = log.marker(epoch=0)
    empty = log.marker(epoch=0)
    for at in (first, empty + 1):
        for status, places in ((ONGOING, "t-0"), (PREPARE_COMMIT, "t-0"), (COMPLETE_COMMIT, "")):
            scenario.coordinator.state(epoch=0, status=status, places=places, version=0, at=at)
    assert scenario.findings() == []


def test_an_expired_transactional_id_explains_old_markers_of_unknown_producers(scenario: Scenario) -> None:
    scenario.transactions(1)
    scenario.logs[1].transaction(pid=55, epoch=0)
    scenario.findings()
    assert run(scenario.directory, limits=replace(STOPPED, now_ms=TIME + 8 * 24 * 3_600_000)).findings == []


def test_markers_of_an_old_epoch_or_an_old_coordinator(scenario: Scenario) -> None:
    log = scenario.logs[0]
    log.data(epoch=3)
    log.marker(epoch=4, reign=5)
    old = log.marker(epoch=2, reign=5)
    reign = log.marker(epoch=5, reign=4)
    log.write()
    findings = [item for item in findings_in(scenario.directory) if item.kind == "stray-marker"]
    assert [finding.offset for finding in findings] == [old, reign]


def test_duplicates_and_gaps_in_sequences(tmp_path: Path) -> None:
    log = Log(tmp_path, "t")
    log.data(pid=3, sequence=2**31 - 2, transactional=False)
    log.data(pid=3, sequence=0, transactional=False)
    again = log.data(pid=3, sequence=0, transactional=False)
    skips = log.data(pid=3, sequence=9, transactional=False)
    bumped = log.data(pid=3, epoch=1, sequence=4, transactional=False)
    log.write()
    findings = findings_in(tmp_path)
    assert [(finding.kind, finding.offset, finding.epoch) for finding in findings] == [
        ("duplicate", again, 0),
        ("gap", skips, 0),
        ("gap", bumped, 1),
    ]
    assert findings[0].text == "sequence 0 where 2 is next: written before"


def test_a_producer_idle_for_longer_than_it_is_remembered_may_go_on_anywhere(tmp_path: Path) -> None:
    log = Log(tmp_path, "t")
    log.data(pid=3, transactional=False)
    log.now = lambda offset=None: TIME + 25 * 3_600_000  # type: ignore[method-assign]  # a day passes
    log.data(pid=3, sequence=40, transactional=False)
    log.write()
    assert findings_in(tmp_path) == []


def test_offsets_committed_after_the_end_and_inside_an_aborted_batch(tmp_path: Path) -> None:
    log, offsets = Log(tmp_path, "t"), Log(tmp_path, "__consumer_offsets")
    log.transaction(epoch=0)
    log.data(epoch=1, count=10)
    log.marker(epoch=2, committed=False)
    commit_offset(offsets, "passes", "t", 0, 13)
    commit_offset(offsets, "inside", "t", 0, 8)
    commit_offset(offsets, "moved-on", "t", 0, 8)
    commit_offset(offsets, "moved-on", "t", 0, 14)
    commit_offset(offsets, "beyond", "t", 0, 15)
    commit_offset(offsets, "elsewhere", "not-here", 0, 99)
    log.write()
    offsets.write()
    inside, beyond = findings_in(tmp_path)
    assert (inside.kind, inside.topic, inside.offset) == ("aborted-offsets", "t", 8)
    assert "'inside'" in inside.text
    assert (beyond.kind, beyond.topic, beyond.offset) == ("offsets-beyond-log", "t", 15)
    assert "'beyond'" in beyond.text


def test_offsets_of_a_transaction_count_when_it_commits(tmp_path: Path) -> None:
    log, offsets = Log(tmp_path, "t"), Log(tmp_path, "__consumer_offsets")
    log.transaction(epoch=0)
    commit_offset(offsets, "g", "t", 0, 50, pid=7, epoch=1)
    offsets.marker(epoch=2, committed=False)
    commit_offset(offsets, "h", "t", 0, 60, pid=7, epoch=2)
    offsets.marker(epoch=3, committed=True)
    log.write()
    offsets.write()
    assert [(record.kind, record.offset) for record in findings_in(tmp_path) if record.kind != "transaction-index"] == [
        ("offsets-beyond-log", 60)
    ]


def test_offsets_committed_with_records_that_were_aborted(tmp_path: Path) -> None:
    log, offsets = Log(tmp_path, "t"), Log(tmp_path, "__consumer_offsets")
    log.transaction(epoch=0, committed=False)
    commit_offset(offsets, "g", "t", 0, 3, pid=7, epoch=0)
    offsets.marker(epoch=1, committed=True)
    log.write()
    offsets.write()
    assert kinds(findings_in(tmp_path)) == ["torn", "aborted-offsets"]
