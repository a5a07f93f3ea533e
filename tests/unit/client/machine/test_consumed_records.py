"""The records that an application sees: positions inside batches, control records, aborted transactions, damage."""

from __future__ import annotations

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.machine.consumed_records import UnreadableRecords, read_fetched
from oncelog.client.machine.positions import Fetched
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.compression import Codec
from oncelog.records.record import Record


def fetched(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None) -> Fetched:
    return Fetched(TopicPartition(TopicName("t"), 0), memoryview(data), 0, 0, 0, aborted or [], 0, position, 0)


def batch(first: int, values: str, producer_id: int = -1) -> bytes:
    records = [Record(-1, 1000, None, value.encode()) for value in values]
    return bytes(
        build_batch(
            records,
            base_offset=first,
            codec=Codec.LZ4,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
    )


def marker(at: int, producer_id: int, committed: bool) -> bytes:
    return bytes(
        end_transaction_marker(
            producer_id=producer_id,
            producer_epoch=0,
            committed=committed,
            coordinator_epoch=0,
            timestamp=1000,
            base_offset=at,
        )
    )


def seen(item: Fetched, read_committed: bool) -> str:
    return b"".join(r.value or b"" for r in read_fetched(item, read_committed=read_committed)).decode()


def test_records_before_the_position_are_skipped() -> None:
    assert [r.offset for r in read_fetched(fetched(batch(10, "abcd"), position=12))] == [12, 13]


def test_aborted_transactions_are_dropped_and_later_ones_of_the_producer_seen() -> None:
    log = (
        batch(0, "ab", 1)
        + batch(2, "x", 2)
        + batch(3, "-")
        + marker(4, 1, committed=False)
        + batch(5, "cd", 1)
        + marker(7, 2, committed=True)
        + marker(8, 1, committed=True)
    )
    one = fetched(log, aborted=[(1, 0)])
    assert seen(one, read_committed=True) == "x-cd"
    assert seen(one, read_committed=False) == "abx-cd"


def test_two_aborted_transactions_of_one_producer_in_a_row() -> None:
    log = batch(0, "a", 1) + marker(1, 1, committed=False) + batch(2, "b", 1) + marker(3, 1, committed=False)
    assert seen(fetched(log, aborted=[(1, 2), (1, 0)]), read_committed=True) == ""


@pytest.mark.parametrize("at", [25, 70, -1])
def test_damage_is_an_error_that_names_the_place(at: int) -> None:
    data = bytearray(batch(0, "abc"))
    data[at] ^= 0xFF
    with pytest.raises(UnreadableRecords, match="t-0"):
        list(read_fetched(fetched(bytes(data))))
