"""Decoding: the records that become rows, those that do not, and the offset that comes next."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from oncelog.records.batch import CorruptBatch
from oncelog.records.builder import build_batch, end_transaction_marker, seal
from oncelog.records.columns import batches
from oncelog.records.columns.decode import Decoded, Selection, column_schema, decode
from oncelog.records.compression import Codec
from oncelog.records.errors import UnsupportedMagic
from oncelog.records.record import Record

TIME = 1_700_000_000_000


def batch(base: int, values: list[bytes | None], **options: object) -> bytearray:
    records = [Record(base + index, TIME + index, b"k%d" % index, value) for index, value in enumerate(values)]
    return build_batch(records, base_offset=base, **options)  # type: ignore[arg-type]  # options are the builder's own


def rows(records: bytes | bytearray, aborted: tuple[tuple[int, int], ...] = (), **selection: object) -> pa.Table:
    expected = Selection("topic", 3, **selection)  # type: ignore[arg-type]  # fields of Selection by name
    decoded = list(decode(bytes(records), expected, aborted))
    schema = column_schema(include_headers=expected.include_headers)
    return pa.Table.from_batches([piece.rows for piece in decoded], schema)


def next_offset(records: bytes | bytearray, **selection: object) -> int:
    return list(decode(bytes(records), Selection("topic", 3, **selection)))[-1].next_offset  # type: ignore[arg-type]  # as above


def test_columns_are_those_of_sparks_kafka_connector() -> None:
    headers = (("trace", b"1"), ("empty", None))
    record = Record(7, TIME, None, b"value", headers)
    table = rows(build_batch([record], base_offset=7), include_headers=True)
    assert table.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [TIME]
    (row,) = table.drop_columns("timestamp").to_pylist()
    assert row == {
        "key": None,
        "value": b"value",
        "topic": "topic",
        "partition": 3,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"1"}, {"key": "empty", "value": None}],
    }


def test_a_record_without_headers_has_null_headers() -> None:
    assert rows(batch(0, [b"a"]), include_headers=True)["headers"].to_pylist() == [None]


def test_log_append_time_is_the_batchs_for_all_its_records() -> None:
    table = rows(batch(0, [b"a", b"b"], log_append_time_ms=TIME + 500))
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [TIME + 500] * 2
    assert table["timestampType"].to_pylist() == [1, 1]


def test_records_outside_the_wanted_offsets_are_left_out() -> None:
    fetched = batch(10, [b"a", b"b", b"c"]) + batch(13, [b"d", b"e"]) + batch(15, [b"f"])
    table = rows(fetched, start_offset=11, end_offset=14)
    assert table["value"].to_pylist() == [b"b", b"c", b"d"]
    assert next_offset(fetched, start_offset=11, end_offset=14) >= 14


def test_a_partial_last_batch_is_left_for_the_next_fetch() -> None:
    whole, partial = batch(0, [b"a"]), batch(1, [b"b"])
    for size in (1, 60, 61, len(partial) - 1):
        assert rows(whole + partial[:size])["value"].to_pylist() == [b"a"]
        assert next_offset(whole + partial[:size]) == 1
    assert list(decode(bytes(partial[:40]), Selection("topic", 0))) == []


def test_control_and_empty_batches_give_no_rows_and_move_the_offset() -> None:
    marker = end_transaction_marker(
        producer_id=9, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp=TIME, base_offset=1
    )
    emptied = build_batch([], base_offset=2, last_offset=6)
    fetched = batch(0, [b"a"]) + marker + emptied
    assert rows(fetched)["value"].to_pylist() == [b"a"]
    assert next_offset(fetched) == 7
    assert next_offset(marker + emptied, start_offset=1) == 7


def transactions() -> bytearray:
    """Producer 1: aborted at 0–1, committed at 5; producer 2: committed at 2; offset 3 is 1's abort marker."""

    def transactional(base: int, producer: int, value: bytes) -> bytearray:
        return batch(base, [value], transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0)

    def marker(base: int, producer: int, *, committed: bool) -> bytearray:
        return end_transaction_marker(
            producer_id=producer,
            producer_epoch=0,
            committed=committed,
            coordinator_epoch=0,
            timestamp=TIME,
            base_offset=base,
        )

    return (
        transactional(0, 1, b"gone")
        + transactional(1, 1, b"gone too")
        + transactional(2, 2, b"kept")
        + marker(3, 1, committed=False)
        + marker(4, 2, committed=True)
        + transactional(5, 1, b"next transaction")
        + marker(6, 1, committed=True)
        + batch(7, [b"no transaction"])
    )


def test_aborted_transactions_are_left_out_when_reading_committed() -> None:
    table = rows(transactions(), ((1, 0),), read_committed=True)
    assert table["value"].to_pylist() == [b"kept", b"next transaction", b"no transaction"]


def test_aborted_transactions_are_there_when_reading_uncommitted() -> None:
    assert rows(transactions(), ((1, 0),)).num_rows == 5


def test_a_fetch_that_begins_inside_an_aborted_transaction_leaves_its_rest_out() -> None:
    table = rows(transactions(), ((1, 0),), read_committed=True, start_offset=1)
    assert table["value"].to_pylist() == [b"kept", b"next transaction", b"no transaction"]


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_beside_others(codec: Codec) -> None:
    fetched = batch(0, [b"a" * 100, None]) + batch(2, [b"b" * 300, b""], codec=codec) + batch(4, [b"c"])
    assert rows(fetched)["value"].to_pylist() == [b"a" * 100, None, b"b" * 300, b"", b"c"]


@pytest.mark.parametrize(("limit", "most"), [("GROUP_BYTES", 1000), ("GROUP_RECORDS", 13)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_fetch_larger_than_a_group_comes_in_pieces_in_order(
    limit: str, most: int, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, limit, most)
    fetched = b"".join(batch(base, [b"x" * 90] * 5, codec=codec) for base in range(0, 100, 5))
    pieces = list(decode(fetched, Selection("topic", 0)))
    assert len(pieces) > 5
    assert [piece.next_offset for piece in pieces] == sorted({piece.next_offset for piece in pieces})
    assert pa.Table.from_batches([piece.rows for piece in pieces])["offset"].to_pylist() == list(range(100))


def test_a_group_larger_than_a_piece_comes_in_pieces_in_order() -> None:
    values: list[bytes | None] = [None if number % 7 == 0 else b"x" * (number * 37 % 200) for number in range(300)]
    fetched = bytes(batch(5, values[:290]) + batch(295, values[290:], codec=Codec.GZIP))
    pieces = list(decode(fetched, Selection("topic", 0, include_headers=True), piece_bytes=1000))
    assert len(pieces) > 20
    assert [piece.next_offset for piece in pieces] == [piece.rows["offset"][-1].as_py() + 1 for piece in pieces]
    assert pa.Table.from_batches([piece.rows for piece in pieces])["value"].to_pylist() == values


def test_what_was_handed_on_is_not_held_while_the_next_piece_is_made() -> None:
    piece_bytes = 64 * 1024
    fetched = b"".join(batch(base, [b"x" * 1000] * 50) for base in range(0, 1000, 50))
    before = pa.total_allocated_bytes()
    allocated = list(map(allocated_with, decode(fetched, Selection("topic", 0), piece_bytes=piece_bytes)))
    assert len(allocated) > 10
    assert max(allocated) - before < 2 * piece_bytes


def allocated_with(piece: Decoded) -> int:
    """Bytes in Arrow's pool while a piece is there, without a variable of a loop that would keep it."""
    assert piece.rows.num_rows
    return pa.total_allocated_bytes()


def test_many_batches_of_unlike_lengths_are_stepped_together_and_alone() -> None:
    sizes = [1, 400, 3, 70, 2] * 12
    fetched, base, expected = bytearray(), 0, []
    for index, size in enumerate(sizes):
        values: list[bytes | None] = [b"v" * ((index * 7 + record) % 150) for record in range(size)]
        if index == 20:
            values[0] = b"longer than two varint bytes" * 1000
        fetched += batch(base, values)
        expected += values
        base += size
    assert rows(fetched)["value"].to_pylist() == expected


def edited(original: bytearray, position: int, *values: int) -> bytearray:
    changed = bytearray(original)
    changed[position : position + len(values)] = bytes(values)
    seal(changed)
    return changed


def test_a_wrong_checksum_is_refused() -> None:
    damaged = batch(0, [b"a"])
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        rows(damaged)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_of_an_older_format_is_refused_however_small_it_is(magic: int) -> None:
    message_set = bytes(8) + struct.pack(">iIb", 14, 0, magic) + bytes(9)
    with pytest.raises(UnsupportedMagic, match=f"magic {magic}: only magic 2 is read"):
        rows(message_set)


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_allocated() -> None:
    hostile = batch(0, [b"a"])
    hostile[57:61] = struct.pack(">i", 2**31 - 1)
    hostile[23:27] = struct.pack(">i", 2**31 - 1)
    seal(hostile)
    with pytest.raises(CorruptBatch, match="2147483647 records"):
        rows(hostile)


@pytest.mark.parametrize(
    ("position", "values", "message"),
    [
        (61, (0x03,), "a record of -2 bytes"),
        (61, (0x7E,), "a record of 63 bytes"),
        (64, (0x10,), "offset is outside its batch"),
        (65, (0x7E,), "longer than its record"),
        (65, (0x03,), "longer than its record"),
        (68, (0x7E,), "longer than its record"),
    ],
)
def test_contradictions_inside_a_record_are_refused(position: int, values: tuple[int, ...], message: str) -> None:
    with pytest.raises(CorruptBatch, match=message):
        rows(edited(batch(0, [b"abc"]), position, *values))


def test_batches_whose_offsets_go_backwards_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="begins at offset 4, the one before ends at 6"):
        rows(batch(5, [b"a"]) + batch(4, [b"b"]))


def test_decompression_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BATCH_BYTES", 1000)
    monkeypatch.setattr(batches, "_OWN_BYTES", 500)
    with pytest.raises(CorruptBatch, match="exceeds 1000 bytes"):
        rows(batch(0, [bytes(2000)], codec=Codec.ZSTD))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_does_not_fit_a_groups_buffer_begins_the_next_group(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_OWN_BYTES", 700)
    sizes = [200, 300, 250, 2000, 100, 690, 10]
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    fetched = batch(0, [b"as it is"])
    for number, value in enumerate(values, 1):
        fetched += batch(number, [value], codec=Codec.NONE if number == 2 else codec)
    decoded = list(decode(bytes(fetched), Selection("topic", 3)))
    assert [value for piece in decoded for value in piece.rows["value"].to_pylist()] == [b"as it is", *values]
    assert [piece.next_offset for piece in decoded] == [1, 3, 4, 5, 6, 7, 8]
    assert [piece.rows["offset"][-1].as_py() + 1 for piece in decoded] == [1, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("spare", [0, 63, 64, 100])
def test_what_lies_behind_a_response_does_not_matter(spare: int) -> None:
    fetched = batch(5, [b"a" * 300, b"", None]) + batch(8, [b"end"])
    buffer = bytearray(b"\xff" * 7) + fetched + bytearray(b"\xff" * spare)
    records = memoryview(buffer)[7 : 7 + len(fetched)]
    (piece,) = decode(records, Selection("topic", 3, start_offset=6))
    assert piece.rows["value"].to_pylist() == [b"", None, b"end"]


def test_header_keys_that_are_no_text_are_replaced_as_the_java_client_does() -> None:
    fetched = build_batch([Record(0, TIME, None, None, (("key", b""),))])
    position = bytes(fetched).index(b"key")
    table = rows(edited(fetched, position, 0xFF), include_headers=True)
    assert table["headers"].to_pylist() == [[{"key": "�ey", "value": b""}]]
