"""Temporary bytes: what was written comes once, in order, and what is large lies in a file meanwhile."""

from __future__ import annotations

import pytest

from oncelog.console.records import temporary_files
from oncelog.console.records.large_json import LargeBytes, StoredString
from oncelog.console.records.temporary_files import TemporaryBytes


@pytest.mark.parametrize("in_memory", [1 << 20, 3])
def test_bytes_come_once_and_in_order(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(temporary_files, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(temporary_files, "_PIECE", 4)
    made = TemporaryBytes()
    assert list(made.drain()) == []
    made.write(iter((b"abc", b"defgh")))
    made.write((b"i",))
    assert list(made.drain()) == [b"abcd", b"efgh", b"i"]
    assert list(made.drain()) == []
    made.write((b"x",))
    assert list(made.drain()) == [b"x"]


def test_spooled_bytes_are_those_that_would_be_written() -> None:
    data = bytes(range(256)) * 10
    assert list(StoredString(data, is_text=False).pieces()) == [b"".join(LargeBytes(data, is_text=False).pieces())]
