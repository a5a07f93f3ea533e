"""Decisions of a share coordinator's shard, and when it writes snapshots and prunes."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicId
from oncelog.core.share_state.model import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    ShareStateDecision,
    StateReply,
    StateRequest,
    SummarizeState,
    WriteState,
    parse_coordinator_key,
)
from oncelog.core.share_state.settings import ShareStateSettings
from oncelog.core.share_state.shard import BYTES_PER_TICK, PAUSE_MS, RETRY_MS, ShareStateShard
from oncelog.records.internal.share_state_records import (
    SnapshotKey,
    SnapshotValue,
    StateBatch,
    UpdateValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

TOPIC, GONE = TopicId(b"t" * 16), TopicId(b"g" * 16)
KEY = ShareKey(GroupId("group"), TOPIC, 0)
MINUTE = 60_000


class Driver:
    """A shard with a log of its own, as the node drives it."""

    def __init__(self, **settings: int) -> None:
        self.settings = ShareStateSettings(**settings)
        self.topics = {TOPIC: 3, GONE: 3}
        self.log: list[tuple[int, bytes, bytes | None]] = []
        self.sizes: list[int] = []
        self.now_ms = 0
        self.shard = self.new_shard()
        self.shard.loaded(0)

    def new_shard(self) -> ShareStateShard:
        return ShareStateShard(0, self.settings, lambda topic: self.topics.get(topic, 0))

    def carry_out(self, decision: ShareStateDecision) -> None:
        if decision.records:
            self.sizes.append(sum(len(value or b"") for _, value in decision.records))
        for key, value in decision.records:
            offset = self.log[-1][0] + 1 if self.log else 0
            self.log.append((offset, key, value))
            self.shard.apply(key, value, Offset(offset))
        if decision.prune_before is not None:
            self.log = [record for record in self.log if record[0] >= decision.prune_before]
        self.shard.check()

    def do(self, request: StateRequest) -> StateReply:
        decision = self.shard.decide(request, self.now_ms)
        self.carry_out(decision)
        assert decision.reply is not None
        return decision.reply

    def tick_until(self, now_ms: int) -> None:
        while (due_ms := self.shard.deadline_ms()) is not None and due_ms <= now_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.shard.tick(self.now_ms))
        self.now_ms = now_ms

    def reloaded(self) -> ShareStateShard:
        shard = self.new_shard()
        for offset, key, value in self.log:
            shard.apply(key, value, Offset(offset))
        return shard

    def values(self) -> list[SnapshotValue | UpdateValue | None]:
        values = []
        for _, key, value in self.log:
            name = decode_key(key)
            decoded = None if value is None else decode_value(name, value)  # type: ignore[arg-type]
            values.append(decoded)
        return values  # type: ignore[return-value]


def write(
    leader_epoch: int = 1, state_epoch: int = 1, start: int = 0, count: int = 0, *batches: StateBatch
) -> WriteState:
    return WriteState(KEY, state_epoch, LeaderEpoch(leader_epoch), Offset(start), count, batches)


def initialized(**settings: int) -> Driver:
    driver = Driver(**settings)
    assert driver.do(InitializeState(KEY, 1, Offset(0))) == StateReply()
    return driver


def read(driver: Driver, leader_epoch: int) -> StateReply:
    return driver.do(ReadState(KEY, LeaderEpoch(leader_epoch)))


def test_a_state_is_initialized_read_and_written() -> None:
    driver = initialized()
    driver.now_ms = 7
    assert read(driver, 1).state == SnapshotValue(0, 1, 0, 0, 0, 0, 0)
    batch = StateBatch(0, 9, 2, 1)
    assert driver.do(write(1, 1, 0, 10, batch)) == StateReply()
    assert read(driver, 1).state == SnapshotValue(0, 1, 1, 0, 10, 0, 0, (batch,))
    assert driver.do(write(1, 1, 10, 0)) == StateReply()
    assert read(driver, 1).state == SnapshotValue(0, 1, 1, 10, 0, 0, 0)
    assert driver.do(SummarizeState(KEY, LeaderEpoch(1))).state == SnapshotValue(0, 1, 1, 10, 0, 0, 0)


def test_a_read_by_a_new_leader_fences_the_old_one_durably() -> None:
    driver = initialized()
    read(driver, 4)
    read(driver, 4)
    assert len(driver.log) == 2  # the snapshot, and the new leader's epoch once
    assert driver.do(write(leader_epoch=3)).error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert read(driver, 3).error_code is ErrorCode.FENCED_LEADER_EPOCH
    driver.shard = driver.reloaded()
    refused = driver.do(write(leader_epoch=3))
    assert refused.message == "The leader epoch in the request is older than the epoch on the broker."


def test_a_write_of_a_higher_epoch_does_not_raise_the_leader_epoch() -> None:
    """As in Apache Kafka: only a read does."""
    driver = initialized()
    driver.do(write(leader_epoch=9))
    assert driver.do(write(leader_epoch=0)).error_code is ErrorCode.NONE


def test_an_older_state_epoch_is_fenced() -> None:
    driver = initialized()
    driver.do(InitializeState(KEY, 3, Offset(5)))
    assert driver.do(write(state_epoch=2)).error_code is ErrorCode.FENCED_STATE_EPOCH
    assert driver.do(InitializeState(KEY, 2, Offset(0))).error_code is ErrorCode.FENCED_STATE_EPOCH
    assert driver.do(InitializeState(KEY, 3, Offset(6))).error_code is ErrorCode.NONE
    assert read(driver, 1).state == SnapshotValue(2, 3, 0, 6, 0)


def test_an_initialization_without_a_start_offset_counts_nothing() -> None:
    driver = initialized()
    driver.do(InitializeState(KEY, 2, Offset(-1)))
    state = driver.do(SummarizeState(KEY, LeaderEpoch(0))).state
    assert state is not None
    assert (state.start_offset, state.delivery_complete_count) == (-1, -1)


def test_a_late_write_takes_back_neither_the_start_offset_nor_its_count() -> None:
    driver = initialized()
    driver.do(write(1, 1, 100, 5))
    driver.do(write(1, 1, 50, 30))
    driver.do(write(1, 1, 100, 3))
    state = read(driver, 1).state
    assert state is not None
    assert (state.start_offset, state.delivery_complete_count) == (100, 5)


REFUSED = [
    (InitializeState(KEY._replace(partition=-1), 0, Offset(0)), "The partition id cannot be a negative number."),
    (InitializeState(KEY, -1, Offset(0)), "The state epoch cannot be a negative number."),
    (ReadState(KEY, LeaderEpoch(-1)), "The leader epoch cannot be a negative number."),
    (ReadState(KEY, LeaderEpoch(0)), "Read operation on uninitialized share partition not allowed."),
    (write(leader_epoch=-1), "The leader epoch cannot be a negative number."),
    (write(state_epoch=-1), "The state epoch cannot be a negative number."),
    (write(), "Write operation on uninitialized share partition not allowed."),
    (DeleteState(KEY._replace(partition=-2)), "The partition id cannot be a negative number."),
]


@pytest.mark.parametrize(("request_", "message"), REFUSED)
def test_invalid_requests_are_refused(request_: StateRequest, message: str) -> None:
    assert Driver().do(request_) == StateReply(ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize("key", [KEY._replace(partition=3), KEY._replace(topic_id=TopicId(bytes(16)))])
def test_unknown_topics_and_partitions_are_refused(key: ShareKey) -> None:
    driver = Driver()
    for request in (InitializeState(key, 0, Offset(0)), DeleteState(key), SummarizeState(key, LeaderEpoch(0))):
        refused = driver.do(request)
        assert refused.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.message == "This server does not host this topic-partition."


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    driver = initialized()
    assert driver.do(write(1, 1, 0, 0, StateBatch(5, 4, 0, 1))).error_code is ErrorCode.INVALID_REQUEST


def test_a_summary_without_state_is_no_error() -> None:
    assert Driver().do(SummarizeState(KEY, LeaderEpoch(0))).state == SnapshotValue(0, 0, 0, -1, -1)


def test_deletion_writes_a_tombstone_once() -> None:
    driver = initialized()
    assert driver.do(DeleteState(KEY)) == StateReply()
    assert driver.do(DeleteState(KEY)) == StateReply()
    assert [value is None for _, _, value in driver.log] == [False, True]
    assert driver.do(write()).error_code is ErrorCode.INVALID_REQUEST
    assert driver.do(InitializeState(KEY, 0, Offset(0))).error_code is ErrorCode.NONE  # the epochs are gone, too


def test_a_snapshot_follows_so_many_updates() -> None:
    driver = initialized(updates_per_snapshot=3)
    for offset in range(5):
        driver.do(write(1, 1, 0, offset + 1, StateBatch(offset, offset, 2, 1)))
    kinds = [type(value) for value in driver.values()]
    assert kinds == [SnapshotValue, UpdateValue, UpdateValue, UpdateValue, SnapshotValue, UpdateValue]
    assert driver.values()[4] == SnapshotValue(1, 1, 0, 0, 4, 0, 0, (StateBatch(0, 3, 2, 1),))
    assert driver.values()[5] == UpdateValue(1, 0, 0, 5, (StateBatch(4, 4, 2, 1),))


def test_without_updates_every_write_is_a_snapshot() -> None:
    driver = initialized(updates_per_snapshot=0)
    driver.do(write())
    driver.do(write())
    assert [type(value) for value in driver.values()] == [SnapshotValue] * 3


def test_old_records_are_pruned_behind_the_oldest_snapshot() -> None:
    driver = initialized(updates_per_snapshot=1, cold_snapshot_interval_ms=MINUTE * 60)
    other = KEY._replace(partition=1)
    driver.do(InitializeState(other, 0, Offset(0)))
    for _ in range(4):
        driver.do(write())
    before = driver.shard.states()
    driver.tick_until(5 * MINUTE)
    assert driver.log[0][0] == 1  # the other partition's snapshot is needed
    driver.do(DeleteState(other))
    driver.tick_until(10 * MINUTE)
    assert driver.log[0][0] == 5
    assert driver.reloaded().states() == {KEY: before[KEY]}


def test_a_record_that_cannot_be_read_is_counted_and_never_pruned() -> None:
    driver = initialized(updates_per_snapshot=0, cold_snapshot_interval_ms=MINUTE * 60)
    driver.carry_out(ShareStateDecision([(b"\x00\x09later", b"x")]))
    driver.carry_out(ShareStateDecision([(encode_key(SnapshotKey(*KEY)), b"\x00\x07")]))
    driver.do(write())
    assert driver.shard.skipped == {"key of version 9": 1, "value of version 7": 1}
    driver.tick_until(5 * MINUTE)
    assert driver.log[0][0] == 1


def test_an_update_without_its_snapshot_keeps_what_is_known() -> None:
    driver = Driver()
    value = UpdateValue(4, 2, 10, 0, (StateBatch(5, 12, 2, 1),))
    update = encode_key(SnapshotKey(*KEY)).replace(b"\0\0", b"\0\1", 1), encode_value(value)
    driver.carry_out(ShareStateDecision([update]))
    assert driver.shard.states() == {KEY: SnapshotValue(4, 0, 2, 10, 0, batches=(StateBatch(10, 12, 2, 1),))}
    assert driver.shard.first_needed_offset() == 0


def test_a_state_that_is_not_written_gets_a_cold_snapshot_so_that_the_log_can_be_pruned() -> None:
    driver = initialized(updates_per_snapshot=0, prune_interval_ms=5 * MINUTE + 1)
    hot = KEY._replace(partition=1)
    driver.do(InitializeState(hot, 0, Offset(0)))
    driver.now_ms = 4 * MINUTE
    driver.do(write()._replace(key=hot, state_epoch=0))
    driver.tick_until(5 * MINUTE)
    snapshot = driver.values()[-1]
    assert snapshot == SnapshotValue(1, 1, 0, 0, 0, create_timestamp=0, write_timestamp=5 * MINUTE)
    driver.tick_until(5 * MINUTE + 1)
    assert [offset for offset, _, _ in driver.log] == [2, 3]


def test_once_all_are_cold_nothing_is_written_again() -> None:
    driver = initialized()
    driver.tick_until(60 * MINUTE)
    assert len(driver.log) == 1


def test_cold_snapshots_are_written_in_parts() -> None:
    driver = initialized()
    batches = tuple(StateBatch(offset, offset, 2 * (offset % 2), 1) for offset in range(3000))
    for index in range(6):
        key = ShareKey(GroupId(f"g{index}"), TOPIC, 0)
        driver.do(InitializeState(key, 0, Offset(0)))
        driver.do(write()._replace(key=key, batches=batches))
    driver.sizes.clear()
    driver.tick_until(6 * MINUTE)
    assert len(driver.sizes) == 2
    assert sum(driver.sizes) > max(driver.sizes) > BYTES_PER_TICK
    assert max(driver.sizes) < 2 * BYTES_PER_TICK
    assert driver.reloaded().states() == driver.shard.states()


def test_states_of_deleted_topics_go() -> None:
    driver = initialized()
    other = ShareKey(GroupId("group"), GONE, 1)
    driver.do(InitializeState(other, 0, Offset(0)))
    driver.shard.topics_deleted({GONE})
    driver.tick_until(0)
    assert set(driver.shard.states()) == {KEY}
    assert set(driver.reloaded().states()) == {KEY}


def test_a_topic_deleted_while_nobody_coordinated_goes_at_the_load() -> None:
    driver = initialized()
    driver.topics.clear()
    driver.shard = driver.reloaded()
    driver.shard.loaded(0)
    driver.tick_until(0)
    assert driver.shard.states() == {}


def test_what_could_not_be_appended_changes_nothing() -> None:
    driver = initialized()
    driver.shard.topics_deleted({TOPIC})
    decision = driver.shard.tick(0)
    assert driver.shard.append_failed(decision, ErrorCode.KAFKA_STORAGE_ERROR, 0) == ShareStateDecision()
    assert set(driver.shard.states()) == {KEY}


def test_deletions_outlive_appends_that_are_refused() -> None:
    driver = initialized()
    for index in range(600):
        driver.do(InitializeState(ShareKey(GroupId(f"g{index}"), GONE, 0), 1, Offset(0)))
    driver.shard.topics_deleted({GONE})
    # Another request's, while deletions wait, and then a part of these.
    refused = driver.shard.decide(write(), 0)
    driver.shard.append_failed(refused, ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    refused = driver.shard.tick(0)
    assert len(refused.records) > 1
    driver.shard.append_failed(refused, ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    driver.tick_until(RETRY_MS - 1)
    assert len(driver.shard.states()) == 601
    driver.tick_until(RETRY_MS + 10 * PAUSE_MS)
    assert set(driver.shard.states()) == {KEY}


def test_deletions_are_written_in_parts_of_bounded_size() -> None:
    driver = Driver()
    for index in range(60):
        driver.do(InitializeState(ShareKey(GroupId("x" * 30_000 + str(index)), GONE, 0), 1, Offset(0)))
    driver.shard.topics_deleted({GONE})
    begin = len(driver.log)
    driver.carry_out(driver.shard.tick(0))
    assert sum(len(key) for _, key, _ in driver.log[begin:]) < 2 * BYTES_PER_TICK
    driver.tick_until(MINUTE)
    assert driver.shard.states() == {}


def test_an_empty_shard_has_no_deadline() -> None:
    assert Driver().shard.deadline_ms() is None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (KEY.coordinator_key, KEY),
        ("a:b:" + KEY.coordinator_key, KEY._replace(group_id=GroupId("a:b:group"))),
        (KEY.coordinator_key[:-1] + "-7", KEY._replace(partition=-7)),
    ],
)
def test_coordinator_keys_are_parsed(text: str, key: ShareKey) -> None:
    assert parse_coordinator_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "group",
        "group:dHR0dHR0dHR0dHR0dHR0dA",
        ":dHR0dHR0dHR0dHR0dHR0dA:0",
        " :dHR0dHR0dHR0dHR0dHR0dA:0",
        "group:short:0",
        "group:dHR0dHR0dHR0dHR0dHR0dA:",
        "group:dHR0dHR0dHR0dHR0dHR0dA:x",
        "group:dHR0dHR0dHR0dHR0dHR0dA:99999999999",
        "group:dHR0dHR0dHR0dHR0dHR0dA:1.0",
    ],
)
def test_malformed_coordinator_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_coordinator_key(text)
