"""Keys land where the Java client puts them."""

from __future__ import annotations

import pytest

from oncelog.client.machine.partitioner import StickyPartitioner, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2_as_in_apache_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_key_always_goes_to_the_same_partition() -> None:
    assert [partition_of_key(b"21", 6)] * 2 == [partition_of_key(b"21", 6), (-973932308 & 0x7FFFFFFF) % 6]


def test_records_without_a_key_move_on_when_a_batch_is_full() -> None:
    sticky = StickyPartitioner(100)
    assert [sticky.choose("t", 50, 3) for _ in range(8)] == [0, 0, 1, 1, 2, 2, 0, 0]
