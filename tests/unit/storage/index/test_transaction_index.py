"""The aborted transactions that a read_committed fetch is told about, out of very many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.storage.index.transaction_index import AbortedTransaction, load_transaction_index, overlapping


@st.composite
def indexes(draw: st.DrawFn) -> list[AbortedTransaction]:
    """In order of their markers; transactions of several producers overlap."""
    markers = sorted(draw(st.sets(st.integers(1, 200), max_size=40)))
    entries = []
    for marker in markers:
        first = draw(st.integers(0, marker))
        entries.append(AbortedTransaction(draw(st.integers(0, 3)), first, marker, draw(st.integers(0, first))))
    return entries


@given(entries=indexes(), first_offset=st.integers(0, 220), size=st.integers(0, 220))
def test_exactly_those_that_overlap(entries: list[AbortedTransaction], first_offset: int, size: int) -> None:
    """However many lie before."""
    upper = first_offset + size
    expected = [e for e in entries if e.last_offset >= first_offset and e.first_offset < upper]
    result, complete = overlapping(entries, first_offset, upper)
    assert result == expected[: len(result)] if complete else result == expected


def test_what_lies_before_is_not_looked_at() -> None:
    """A hundred thousand aborted transactions before a fetch cost it nothing: every fetch behind them would pay."""

    class Counting(list[AbortedTransaction]):
        looked_at = 0

        def __getitem__(self, index: int) -> AbortedTransaction:  # type: ignore[override]  # no slices are asked for
            self.looked_at += 1
            return super().__getitem__(index)

    entries = Counting(AbortedTransaction(7, 2 * index, 2 * index + 1, 2 * index + 1) for index in range(100_000))
    assert overlapping(entries, 199_990, 300_000)[0] == list(entries)[-5:]
    assert entries.looked_at < 50


def test_the_file_is_read_in_order() -> None:
    """Whatever wrote it."""
    entries = [AbortedTransaction(1, 5, 9, 5), AbortedTransaction(2, 3, 7, 3)]
    assert load_transaction_index(b"".join(entry.encode() for entry in entries), 0) == entries[::-1]
