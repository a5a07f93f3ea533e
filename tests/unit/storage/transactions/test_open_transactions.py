"""The transactions open in a directory's logs, and the file that says whose they are."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.storage.log.append import append_batch
from oncelog.storage.transactions import transactional_ids
from oncelog.storage.transactions.open_transactions import MAX_STALE_ENTRIES, OpenTransaction, OpenTransactions
from oncelog.storage.transactions.transactional_ids import FILE_NAME, MAGIC, KnownTransaction
from tests.unit.storage.support import NOW, PARTITION, World, batch

NAMES: Mapping[int, str] = {7: "orders", 8: "zahlungen-äß𝄞"}


def begin(world: World, producer: int, name: str | None = "", *, epoch: int = 0, sequence: int = 0) -> None:
    data = batch(producer=producer, epoch=epoch, sequence=sequence, transactional=True, timestamp=NOW - 77)
    append_batch(
        world.log,
        data,
        now_ms=world.now_ms,
        leader_epoch=0,
        verified=True,
        transactional_id=NAMES[producer] if name == "" else name,
    )


def opened(world: World) -> list[OpenTransaction]:
    return list(world.directory.transactions.partitions.get(PARTITION, {}).values())


def facts(world: World) -> list[tuple[int, int, int, str | None]]:
    return [(t.producer_id, t.start_offset, t.started_ms, t.transactional_id) for t in opened(world)]


@pytest.fixture
def world() -> World:
    return World()


def test_a_transaction_is_known_with_its_id_from_its_first_batch_to_its_marker(world: World) -> None:
    begin(world, 7)
    world.now_ms += 5
    begin(world, 8)
    begin(world, 7, sequence=1)
    assert facts(world) == [(7, 0, NOW, "orders"), (8, 1, NOW + 5, "zahlungen-äß𝄞")]
    held = opened(world)[0]
    world.mark(7, committed=True)
    assert held.ended
    assert [t.producer_id for t in opened(world)] == [8]
    world.mark(8, committed=False)
    assert world.directory.transactions.partitions == {}


def test_an_id_that_comes_later_is_learnt(world: World) -> None:
    begin(world, 7, None)
    assert facts(world) == [(7, 0, NOW, None)]
    begin(world, 7, "orders", sequence=1)
    assert facts(world) == [(7, 0, NOW, "orders")]


def test_an_id_that_no_coordinator_would_take_is_none(world: World) -> None:
    begin(world, 7, "x" * 2**15)
    assert facts(world) == [(7, 0, NOW, None)]


def test_a_clean_restart_knows_all_ids(world: World) -> None:
    begin(world, 7)
    begin(world, 8)
    world.now_ms += 1000
    world.reopen(clean=True)
    assert facts(world) == [(7, 0, NOW, "orders"), (8, 1, NOW, "zahlungen-äß𝄞")]


def test_after_a_kill_those_are_known_that_were_written_down(world: World) -> None:
    begin(world, 7)
    world.directory.transactions.write_ids(world.log)
    begin(world, 8)
    world.reopen()
    # The time of the other is what its client said.
    assert facts(world) == [(7, 0, NOW, "orders"), (8, 1, NOW - 77, None)]


def test_an_entry_counts_for_exactly_its_transaction(world: World) -> None:
    begin(world, 7)
    world.directory.transactions.write_ids(world.log)
    world.mark(7, committed=True)
    begin(world, 7, None, sequence=1)  # the same producer and epoch, further on
    world.reopen()
    assert facts(world) == [(7, 2, NOW - 77, None)]


def test_a_higher_epoch_is_another_transaction(world: World) -> None:
    begin(world, 7)
    transactional_ids.write(world.files, "t-0", [KnownTransaction(7, 1, 0, NOW, "another")], rewrites=True)
    world.reopen()
    assert facts(world) == [(7, 0, NOW - 77, None)]


def test_a_deleted_partition_has_nothing_open(world: World) -> None:
    begin(world, 7)
    held = opened(world)[0]
    world.directory.delete(PARTITION, bytes(16))
    assert held.ended
    assert world.directory.transactions.partitions == {}


def test_the_file_is_written_anew_before_it_is_full_of_what_is_over(world: World) -> None:
    sizes = []
    for number in range(3 * MAX_STALE_ENTRIES):
        begin(world, 7, sequence=number)
        world.directory.transactions.write_ids(world.log)
        world.mark(7, committed=True)
        sizes.append(world.files.size(f"t-0/{FILE_NAME}") or 0)
    entry = sizes[1] - sizes[0]
    assert max(sizes) <= len(MAGIC) + (MAX_STALE_ENTRIES + 3) * entry
    assert sizes.count(len(MAGIC) + entry) >= 2


def test_nothing_is_written_for_what_has_ended_or_has_no_id(world: World) -> None:
    begin(world, 7)
    begin(world, 8, None)
    world.mark(7, committed=True)
    world.directory.transactions.write_ids(world.log)
    assert world.names(FILE_NAME) == []


@pytest.mark.parametrize("keep", range(0, 60, 7))
def test_a_torn_file_says_what_comes_before_the_tear(keep: int) -> None:
    entries = [KnownTransaction(7, 0, 5, NOW, "orders"), KnownTransaction(8, 32767, 2**62, NOW, "x")]
    data = MAGIC + transactional_ids.encode(entries)
    torn = transactional_ids.decode(data[:keep])
    assert torn == entries[: len(torn)]
    assert transactional_ids.decode(data) == entries


def test_no_byte_of_an_entry_can_change_unnoticed() -> None:
    data = MAGIC + transactional_ids.encode([KnownTransaction(7, 0, 5, NOW, "orders")])
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        assert transactional_ids.decode(bytes(damaged)) == []


def test_after_damage_the_file_is_written_anew(world: World) -> None:
    begin(world, 7)
    world.directory.transactions.write_ids(world.log)
    file = world.files.open(f"t-0/{FILE_NAME}")
    file.append((b"torn",))
    world.reopen()
    begin(world, 8)
    world.directory.transactions.write_ids(world.log)
    world.reopen()
    assert [t.transactional_id for t in opened(world)] == list(NAMES.values())


class TestWhatFollowersAreTold:
    def test_a_follower_learns_ids_and_times_of_what_it_has_open(self, world: World) -> None:
        begin(world, 7)
        begin(world, 8)
        told = world.directory.transactions.encode_since(PARTITION, 0, 10_000)
        follower = World()
        begin(follower, 7, None)
        begin(follower, 8, None)
        follower.now_ms += 60_000
        follower.directory.transactions.told(PARTITION, told)
        assert facts(follower) == facts(world)

    def test_only_of_what_begins_at_an_offset_or_later(self, world: World) -> None:
        begin(world, 7)
        begin(world, 8)
        told = world.directory.transactions.encode_since(PARTITION, 1, 10_000)
        assert [entry.producer_id for entry in transactional_ids.decode_entries(told)] == [8]

    def test_the_newest_where_there_is_no_room_for_all(self, world: World) -> None:
        begin(world, 7)
        begin(world, 8)
        whole = world.directory.transactions.encode_since(PARTITION, 0, 10_000)
        told = world.directory.transactions.encode_since(PARTITION, 0, len(whole) - 1)
        assert [entry.producer_id for entry in transactional_ids.decode_entries(told)] == [8]

    def test_an_entry_of_another_transaction_of_the_producer_is_passed_over(self, world: World) -> None:
        begin(world, 7, None)
        other = KnownTransaction(7, 0, 99, NOW, "other"), KnownTransaction(7, 1, 0, NOW, "newer")
        world.directory.transactions.told(PARTITION, transactional_ids.encode(other))
        assert facts(world) == [(7, 0, NOW, None)]

    def test_damage_costs_names_only(self, world: World) -> None:
        begin(world, 7, None)
        entry = transactional_ids.encode((KnownTransaction(7, 0, 0, NOW, "orders"),))
        world.directory.transactions.told(PARTITION, entry[:-1])
        assert facts(world) == [(7, 0, NOW, None)]


def test_the_id_of_a_transaction_is_kept_once_for_all_its_partitions() -> None:
    opened, name = OpenTransactions(), "x" * 30_000
    transactions = [
        OpenTransaction(TopicPartition(TopicName("t"), index), 7, 0, 0, 0, f"{name}{'!' * (index == 2)}")
        for index in range(3)
    ]
    for transaction in transactions:
        opened.began(transaction)
    first, second, other = (transaction.transactional_id for transaction in transactions)
    assert first is second
    assert other == f"{name}!"
