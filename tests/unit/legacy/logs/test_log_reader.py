"""Reading a partition's files: continuity, growth, retention, tails, and damage by its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.legacy.logs.directories import OldLogError
from oncelog.legacy.logs.log_reader import BadPlace, LogReader, Mark, Messages
from tests.old_logs import GZIP, file_path, message, message_set, write_log

WORDS = [b"alpha", b"", b"gamma" * 10, b"delta", b"epsilon"]


def entries(magic: int = 1) -> list[bytes]:
    return [message(word, magic=magic) for word in WORDS]


def read_all(reader: LogReader) -> tuple[list[bytes], list[BadPlace]]:
    """Everything there is; bad places are passed over."""
    messages: list[bytes] = []
    places: list[BadPlace] = []
    while (read_back := reader.read()) is not None:
        if isinstance(read_back, Messages):
            messages += read_back.payloads
        else:
            places.append(read_back)
            reader.pass_over(read_back)
    return messages, places


def all_of(directory: Path) -> tuple[list[bytes], list[BadPlace]]:
    reader = LogReader(directory, None)
    try:
        return read_all(reader)
    finally:
        reader.close()


@pytest.mark.parametrize("digits", [20, 11])
@pytest.mark.parametrize("start", [0, 4711])
def test_files_follow_each_other(tmp_path: Path, digits: int, start: int) -> None:
    write_log(tmp_path, entries(0) + entries(1), file_bytes=40, start=start, digits=digits)
    assert len(list(tmp_path.iterdir())) > 2
    assert all_of(tmp_path) == (WORDS * 2, [])


def test_a_position_is_where_the_next_entry_begins(tmp_path: Path) -> None:
    offsets = write_log(tmp_path, entries(), file_bytes=40, start=100)
    for number, offset in enumerate(offsets):
        reader = LogReader(tmp_path, offset)
        assert read_all(reader) == (WORDS[number:], [])
        assert reader.position == offsets[-1] + len(entries()[-1])
        reader.close()


def test_an_empty_log_and_an_empty_last_file(tmp_path: Path) -> None:
    empty = tmp_path / "a-0"
    empty.mkdir()
    assert all_of(empty) == ([], [])
    write_log(empty, [])
    assert all_of(empty) == ([], [])
    full = tmp_path / "a-1"
    end = write_log(full, entries())[-1] + len(entries()[-1])
    file_path(full, end).touch()
    assert all_of(full) == (WORDS, [])


def test_growth_new_files_and_retention_behind_are_followed(tmp_path: Path) -> None:
    first, second, third = (b"".join(entries()) for _ in range(3))
    file_path(tmp_path, 0).write_bytes(first[:30])
    reader = LogReader(tmp_path, None)
    messages, places = read_all(reader)
    assert (messages, [place.is_tail for place in places]) == (WORDS[:2], [True])
    assert reader.read() is None  # told once, until something comes
    file_path(tmp_path, 0).write_bytes(first)
    assert read_all(reader) == (WORDS[2:], [])
    file_path(tmp_path, len(first)).write_bytes(second)
    file_path(tmp_path, 2 * len(first)).write_bytes(third)
    file_path(tmp_path, 0).unlink()
    file_path(tmp_path, len(first)).unlink()
    messages, places = read_all(reader)
    assert messages == WORDS
    assert [(place.offset, place.size) for place in places] == [(len(first), len(first))]
    reader.close()
    _, places = read_all(LogReader(tmp_path, len(first)))
    assert "deleted this part before" in places[0].reason


def test_a_tail_that_the_old_brokers_recovery_cuts_is_read_when_it_is_written_anew(tmp_path: Path) -> None:
    whole = b"".join(entries())
    file_path(tmp_path, 0).write_bytes(whole + bytes(50))
    reader = LogReader(tmp_path, None)
    messages, places = read_all(reader)
    assert messages == WORDS
    assert [(place.offset, place.size, place.is_tail) for place in places] == [(len(whole), 50, True)]
    file_path(tmp_path, 0).write_bytes(whole)
    assert read_all(reader) == ([], [])
    file_path(tmp_path, 0).write_bytes(whole + message(b"after recovery"))
    assert read_all(reader) == ([b"after recovery"], [])
    reader.close()


def test_a_gap_between_files_is_one_bad_place_with_the_unfinished_entry_before_it(tmp_path: Path) -> None:
    write_log(tmp_path, entries(), file_bytes=30)
    (first, second, *_) = sorted(int(path.name[:20]) for path in tmp_path.iterdir())
    path = file_path(tmp_path, first)
    path.write_bytes(path.read_bytes()[:-3])
    messages, places = all_of(tmp_path)
    lost = [word for word in WORDS if word not in messages]
    assert len(lost) == 1
    assert [(place.path, place.resume) for place in places] == [(path, second)]


def test_a_missing_file_and_a_file_that_is_too_long_are_bad_places(tmp_path: Path) -> None:
    write_log(tmp_path / "a", entries() * 3, file_bytes=60)
    starts = sorted(int(path.name[:20]) for path in (tmp_path / "a").iterdir())
    file_path(tmp_path / "a", starts[1]).unlink()
    _, places = all_of(tmp_path / "a")
    assert [(place.offset, place.size) for place in places] == [(starts[1], starts[2] - starts[1])]
    write_log(tmp_path / "b", entries() * 3, file_bytes=60)
    with file_path(tmp_path / "b", starts[0]).open("ab") as file:
        file.write(message(b"not of this log"))
    messages, places = all_of(tmp_path / "b")
    assert messages == WORDS * 3
    assert [(place.offset, place.size, place.resume) for place in places] == [(starts[1], 10 + 15, starts[1])]


def test_a_damaged_payload_costs_its_entry_alone(tmp_path: Path) -> None:
    offsets = write_log(tmp_path, entries())
    path = file_path(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[offsets[2] + 20] ^= 1
    path.write_bytes(data)
    messages, places = all_of(tmp_path)
    assert messages == WORDS[:2] + WORDS[3:]
    assert [(place.offset, place.size) for place in places] == [(offsets[2], offsets[3] - offsets[2])]
    assert str(path) in str(places[0])
    assert f"offset {offsets[2]}" in str(places[0])


def test_a_damaged_length_costs_its_entry_alone_even_if_its_payload_holds_entries(tmp_path: Path) -> None:
    """The payload of the damaged entry looks like a log itself: none of it is taken for messages."""
    inside = message(b"not a message of this log") * 3
    for wrong in (1 << 20, 1, 60, -7):
        offsets = write_log(tmp_path, [message(b"a"), message(inside), message(b"b"), message(b"c")])
        path = file_path(tmp_path, 0)
        data = bytearray(path.read_bytes())
        data[offsets[1] : offsets[1] + 4] = (wrong & 0xFFFFFFFF).to_bytes(4, "big")
        path.write_bytes(data)
        messages, places = all_of(tmp_path)
        assert messages == [b"a", b"b", b"c"], wrong
        assert [(place.offset, place.size) for place in places] == [(offsets[1], offsets[2] - offsets[1])]


def test_nothing_inside_an_unfinished_entry_is_taken_for_a_message(tmp_path: Path) -> None:
    whole = message(b"a") + message(message(b"not a message") * 5 + b"rest")
    file_path(tmp_path, 0).write_bytes(whole[:-2])
    messages, places = all_of(tmp_path)
    assert messages == [b"a"]
    assert [place.is_tail for place in places] == [True]


def test_nine_bytes_that_look_like_an_empty_message_do_not_count(tmp_path: Path) -> None:
    looks_empty = message(b"", magic=0)
    damaged = bytearray(message(b"x" * 5 + looks_empty * 2))
    damaged[0] = 0xFF
    damaged[-1] ^= 1
    file_path(tmp_path, 0).write_bytes(message(b"a") + damaged)
    assert all_of(tmp_path)[0] == [b"a"]


def test_entries_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    large = bytes(range(256)) * (5 << 12)
    write_log(tmp_path, [message(b"a"), message(large), message_set([message(large)], GZIP), message(b"b")])
    assert all_of(tmp_path) == ([b"a", large, large, b"b"], [])


def test_marks_know_a_log_again(tmp_path: Path) -> None:
    write_log(tmp_path / "a", entries())
    reader = LogReader(tmp_path / "a", None)
    assert isinstance(reader.read(), Messages)
    position, mark = reader.position, reader.mark
    assert mark.size == position
    again = LogReader(tmp_path / "a", position)
    assert again.matches(mark)
    write_log(tmp_path / "b", [message(b"x" * (position - 10))])
    assert not LogReader(tmp_path / "b", position).matches(mark)
    with pytest.raises(OldLogError, match="--as NAME"):
        LogReader(tmp_path / "b", position + 1).matches(mark)
    assert LogReader(tmp_path / "b", position).matches(Mark(0, 0))
    reader.close()


def test_a_log_that_is_cut_behind_the_position_is_an_error(tmp_path: Path) -> None:
    write_log(tmp_path, entries())
    reader = LogReader(tmp_path, None)
    assert isinstance(reader.read(), Messages)
    file_path(tmp_path, 0).write_bytes(message(b"short"))
    with pytest.raises(OldLogError, match="was truncated"):
        reader.read()
    reader.close()
