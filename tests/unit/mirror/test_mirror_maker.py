"""MirrorMaker 2's internal records, as version 4.3.1 wrote them, and the findings that follow from facts."""

from __future__ import annotations

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.mirror import mirror_maker as command
from oncelog.client.errors import ClientError
from oncelog.mirror.mirror_maker.alignment import Fingerprint, Pair, Reading, align, reading
from oncelog.mirror.mirror_maker.findings import (
    Bounds,
    CopyFacts,
    GroupFacts,
    Kind,
    Tolerance,
    copy_findings,
    group_findings,
    missing_checkpoint,
)
from oncelog.mirror.mirror_maker.internal_records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    parse_checkpoint,
    parse_heartbeat,
    parse_offset_sync,
)
from oncelog.mirror.mirror_maker.internal_topics import copy_of, find_internal_topics
from oncelog.mirror.mirror_maker.sync_history import CheckpointHistory, StepBack, SyncHistory
from oncelog.mirror.mirror_maker.verification import MirrorMakerReport
from oncelog.records.errors import CorruptBatch

ORDERS = TopicPartition(TopicName("orders"), 0)
COPY = TopicPartition(TopicName("a.orders"), 0)
WHOLE = Bounds(0, 400)
NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000


def test_recorded_offset_sync() -> None:
    key, value = bytes.fromhex("00066f726465727300000000"), bytes.fromhex("000000000000016b0000000000000168")
    assert parse_offset_sync(key, value) == OffsetSync(ORDERS, 363, 360)
    assert parse_offset_sync(key, None) is None


def test_recorded_checkpoint() -> None:
    key = bytes.fromhex("000762696c6c696e670008612e6f726465727300000001")
    value = bytes.fromhex("0000000000000000003200000000000000010000")
    assert parse_checkpoint(key, value) == Checkpoint("billing", TopicPartition(COPY.topic, 1), 50, 1)


def test_recorded_heartbeat() -> None:
    key, value = bytes.fromhex("0001610002746f"), bytes.fromhex("0000000001a21d5c9a86")
    assert parse_heartbeat(key, value) == Heartbeat("a", "to", 1795788937862)


@pytest.mark.parametrize(("key", "value"), [("0006", "00"), ("00066f726465727300000000", "0000"), ("ffff", "")])
def test_bytes_that_end_early_are_refused(key: str, value: str) -> None:
    with pytest.raises(CorruptBatch):
        parse_offset_sync(bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize(
    ("source_topics", "target_topics", "target", "syncs", "at_target", "checkpoints"),
    [
        (["mm2-offset-syncs.c.internal"], ["a.checkpoints.internal"], "c", "mm2-offset-syncs.c.internal", False, True),
        (["mm2-offset-syncs.c.internal"], [], "", "mm2-offset-syncs.c.internal", False, False),
        ([], ["mm2-offset-syncs_a_internal", "a_checkpoints_internal"], "c", "mm2-offset-syncs_a_internal", True, True),
    ],
)
def test_internal_topics_are_found_by_their_names(
    source_topics: list[str], target_topics: list[str], target: str, syncs: str, at_target: bool, checkpoints: bool
) -> None:
    topics = find_internal_topics(source_topics, target_topics, "a", target)
    assert (topics.syncs, topics.are_syncs_at_target, topics.checkpoints is not None) == (syncs, at_target, checkpoints)


def test_several_targets_have_to_be_told_apart() -> None:
    several = ["mm2-offset-syncs.c.internal", "mm2-offset-syncs.d.internal"]
    with pytest.raises(ClientError, match="name the target as one of them"):
        find_internal_topics(several, [], "a", "")
    with pytest.raises(ClientError, match="no offset syncs of MirrorMaker"):
        find_internal_topics(several, [], "a", "e")


def test_a_copy_is_named_by_either_policy() -> None:
    assert copy_of("orders", "a", ["b.orders", "a.orders", "orders"]) == "a.orders"
    assert copy_of("orders", "a", ["a_orders"]) == "a_orders"
    assert copy_of("orders", "a", ["orders"]) == "orders"
    assert copy_of("orders", "a", ["a.more.orders", "reorders"]) is None


def prints(start: int, contents: str) -> list[Fingerprint]:
    return [Fingerprint(start + index, content.encode()) for index, content in enumerate(contents)]


def test_copies_pair_with_the_records_of_their_content_in_order() -> None:
    assert align(prints(10, "abxc"), prints(0, "abc")) == [Pair(0, 10), Pair(1, 11), Pair(2, 13)]
    assert align(prints(0, "aaab"), prints(5, "aaab")) == [Pair(5, 0), Pair(6, 1), Pair(7, 2), Pair(8, 3)]
    again = align(prints(0, "abc"), prints(0, "ababc"))
    assert [pair.upstream for pair in again] == [0, 1, 0, 1, 2], "copied again after a restart"
    assert align(prints(0, "ab"), prints(0, "?a?")) == [Pair(1, 0)]


def test_what_a_reader_skips_and_repeats_is_counted() -> None:
    pairs = align(prints(100, "abcdef"), prints(0, "abcdef"))
    assert reading(pairs, 103, 3) == Reading(0, None, 0)
    assert reading(pairs, 103, 1) == Reading(0, None, 2)
    assert reading(pairs, 103, 5) == Reading(2, 103, 0)
    again = align(prints(100, "abc"), prints(0, "abcabc"))
    assert reading(again, 101, 3).skipped == 0, "the second copy is still ahead of the reader"


def history(*offsets: tuple[int, int]) -> SyncHistory:
    syncs = SyncHistory()
    for upstream, downstream in offsets:
        syncs.add(OffsetSync(ORDERS, upstream, downstream))
    return syncs


def copy(syncs: SyncHistory, target: Bounds = WHOLE, equal: bool | None = True) -> CopyFacts:
    return CopyFacts(ORDERS, COPY, syncs, WHOLE, target, equal)


def group(
    upstream: int,
    downstream: int,
    committed: int | None = None,
    current: Reading | None = None,
    facts: CopyFacts | None = None,
    age_ms: int = 0,
) -> GroupFacts:
    checkpoint = CheckpointHistory(Checkpoint("billing", COPY, upstream, downstream), NOW_MS - age_ms)
    return GroupFacts(
        "billing",
        facts or copy(history((0, 0), (300, 300))),
        checkpoint,
        committed,
        current or Reading(0, None, 0),
        current,
    )


def kinds(facts: GroupFacts) -> list[str]:
    return [finding.kind.value for finding in group_findings(facts, Tolerance(), NOW_MS)]


def test_the_nearest_sync_translates_to_at_most_one_past_it() -> None:
    syncs = history((0, 0), (101, 90), (202, 180))
    assert [syncs.translated(offset) for offset in (0, 50, 101, 201, 500)] == [0, 1, 90, 91, 181]
    assert history((10, 10)).translated(9) is None


def test_of_many_syncs_the_older_ones_are_thinned() -> None:
    syncs = history(*((offset, offset) for offset in range(0, 1_000_000, 100)))
    assert len(syncs.syncs) <= 256
    assert (syncs.syncs[0].upstream, syncs.latest.upstream, syncs.count) == (0, 999_900, 10_000)
    for position in (999_950, 995_050, 500_000, 50):
        nearest = syncs.nearest(position)
        assert nearest is not None
        assert nearest.upstream <= position
    assert syncs.translated(995_050) == 995_001, "the newest hundred are whole"


def test_a_healthy_copy_and_group_have_no_findings() -> None:
    assert not list(copy_findings(copy(history((0, 0), (300, 300))), Tolerance()))
    assert kinds(group(350, 301, 350, Reading(0, None, 49))) == []


def test_a_checkpoint_past_unread_records_loses_them() -> None:
    facts = group(100, 150, 100, Reading(50, 100, 0))
    (finding,) = group_findings(facts, Tolerance(), NOW_MS)
    assert (finding.kind, finding.records, finding.downstream_offset) == (Kind.skips_records, 50, 150)
    assert "past 50 records that it has not read, the first at offset 100" in finding.text


@pytest.mark.parametrize(("bounds", "kind"), [(Bounds(0, 290), "beyond-end"), (Bounds(310, 400), "before-start")])
def test_a_checkpoint_outside_the_copy(bounds: Bounds, kind: str) -> None:
    assert kinds(group(300, 300, 300, None, copy(history((0, 0), (250, 250)), bounds))) == [kind]


def test_a_checkpoint_is_stale_only_after_its_time() -> None:
    behind = {"upstream": 5, "downstream": 1, "committed": 320, "current": Reading(0, None, 100)}
    assert kinds(group(**behind, age_ms=0)) == []
    assert kinds(group(**behind, age_ms=HOUR_MS)) == ["stale-checkpoint"]
    assert kinds(group(320, 301, 320, age_ms=HOUR_MS)) == [], "no newer sync"
    assert kinds(group(320, 301, 20, Reading(280, 20, 0), age_ms=HOUR_MS)) == ["skips-records", "stale-checkpoint"]


def test_more_repetition_than_the_syncs_explain() -> None:
    assert kinds(group(300, 1, 300, Reading(0, None, 299))) == ["reads-twice"]
    assert kinds(group(200, 1, 200, Reading(0, None, 199))) == [], "a group behind is translated more coarsely"


def test_steps_back_of_syncs_and_checkpoints() -> None:
    restarted = history((0, 0), (300, 300), (250, 320))
    assert restarted.steps_back == [StepBack((300, 300), (250, 320))]
    assert restarted.nearest(299) == OffsetSync(ORDERS, 250, 320)
    (finding,) = copy_findings(copy(restarted), Tolerance())
    assert (finding.kind, finding.records) == (Kind.went_back, 50)
    facts = group(300, 300, 300)
    facts.checkpoint.add(Checkpoint("billing", COPY, 310, 290), NOW_MS)
    assert kinds(facts) == ["went-back"]
    reset = CheckpointHistory(Checkpoint("billing", COPY, 300, 300), NOW_MS)
    reset.add(Checkpoint("billing", COPY, 100, 1), NOW_MS)
    assert reset.step_back is None, "the group was reset at the source"


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (copy(history((300, 300)), equal=False), Kind.other_record),
        (copy(history((300, 300)), Bounds(0, 300)), Kind.sync_beyond_end),
        (copy(history((300, 300)), Bounds(0, 900)), Kind.stale_syncs),
    ],
)
def test_findings_of_syncs(facts: CopyFacts, kind: Kind) -> None:
    assert [finding.kind for finding in copy_findings(facts, Tolerance())] == [kind]


def test_a_group_without_a_checkpoint_is_a_finding_only_if_it_could_have_been_translated() -> None:
    facts = copy(history((100, 100)))
    assert missing_checkpoint("billing", facts, 99) is None
    finding = missing_checkpoint("billing", facts, 100)
    assert finding is not None
    assert finding.kind is Kind.no_checkpoint


def test_a_heartbeat_of_any_time_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Its record may hold any number."""
    command._print(MirrorMakerReport("a", "mm2-offset-syncs.b.internal", None, 1 << 62))
    assert f"last heartbeat {1 << 62} ms after 1970" in capsys.readouterr().out
