"""The register's records: short ones in one piece, long decisions in parts, too long ones refused before the write."""

from __future__ import annotations

import pytest

from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase import register_records
from oncelog.spark.sink.two_phase.register import Listed, Register, RegisterState, Written, done
from oncelog.spark.sink.two_phase.register_records import (
    PART_BYTES,
    RegisterReader,
    decode,
    encode,
    part_key,
    to_records,
)


def listed(count: int, places: int = 1) -> tuple[Listed, ...]:
    written = tuple(Written("topic", number, 2, 0, 1) for number in range(places))
    return tuple(Listed(StoredTransaction(f"oncelog-sink/q/{n}/0", 5, 3), 2, written) for n in range(count))


def read(*records: register_records.RegisterRecord) -> Register | None:
    reader = RegisterReader("q")
    for key, value in records:
        reader.add(key, value)
    return reader.register()


def test_registers_read_back_and_nothing_else_does() -> None:
    register = Register(4, "run", RegisterState.DECIDED, listed(1), ("before",))
    assert decode(encode(register)) == register
    assert read(*to_records("q", register)) == register
    assert len(to_records("q", register)) == 1
    for wrong in (b"", b"{}", b"[]", b'{"version":99}', b'{"version":1,"epoch":"x"}'):
        with pytest.raises(SinkError):
            decode(wrong)


def test_a_long_decision_is_written_in_parts_and_they_go_when_it_is_done() -> None:
    decided = Register(4, "run", RegisterState.DECIDED, listed(6000, places=0))
    records = to_records("q", decided)
    assert len(records) == 3
    assert max(len(value or b"") for _, value in records) < PART_BYTES + 1000
    assert read(*records) == decided
    over = to_records("q", done(decided), parts_before=len(records) - 1)
    assert [value for _, value in over[:-1]] == [None] * (len(records) - 1)
    assert read(*records, *over) == done(decided)
    others = [(record.key.replace(b"q", b"other", 1), b"?") for record in records]
    assert read(*(register_records.RegisterRecord(*item) for item in others)) is None


def test_a_part_that_is_missing_or_of_another_decision_is_an_error() -> None:
    decided = Register(4, "run", RegisterState.DECIDED, listed(6000, places=0))
    records = to_records("q", decided)
    before = to_records("q", Register(3, "run", RegisterState.DECIDED, listed(6000, places=0)))
    for wrong in (records[1:], [*records[:-1], before[0], records[-1]]):
        with pytest.raises(SinkError):
            read(*wrong)
    compacted = [record for record in records if record.key != part_key(b"q", 0)]
    assert read(*compacted, *to_records("q", done(decided))) == done(decided)  # what is over may have gone


def test_a_list_without_bound_loses_its_places_first_and_is_refused_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def places(task: int) -> tuple[Written, ...]:
        return tuple(Written("topic", at, 2, 10 * ((task + at) % 5), 0) for at in range(600))

    several = tuple(Listed(StoredTransaction(f"id{task}", 5, 3), 2, places(task)) for task in range(20))
    read_back = read(*to_records("q", Register(4, "run", RegisterState.DECIDED, several)))
    assert read_back is not None
    assert [item.stored for item in read_back.listed] == [item.stored for item in several]
    assert all(one.written[0] == whole.written[0] for one, whole in zip(read_back.listed, several, strict=True))
    first = {(at.partition, at.first_offset) for item in read_back.listed for at in item.written}
    assert {(partition, 0) for partition in range(600)} <= first
    assert sum(len(item.written) for item in read_back.listed) < 600 * 20 / 4
    monkeypatch.setattr(register_records, "MAX_PARTS", 3)
    with pytest.raises(SinkError, match=r"epoch 4 has 9000 transactions.* nothing was decided.*coalesce"):
        to_records("q", Register(4, "run", RegisterState.DECIDED, listed(9000)))
