"""Changes as bytes: every one comes back, and bytes that are none are refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.tree import ABSENT
from oncelog.coordination.change_codec import DamagedJournal, decode_changes, encode_changes
from oncelog.ports import Change

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CHANGES = st.lists(
    st.builds(Change, TEXT, st.binary(max_size=50), st.integers(0, 2**31 - 1))
    | st.builds(Change, TEXT, st.none(), st.just(ABSENT))
)


@given(CHANGES)
def test_changes_come_back_as_they_were(changes: list[Change]) -> None:
    assert decode_changes(encode_changes(changes)) == tuple(changes)


@given(CHANGES.filter(bool), st.data())
def test_what_is_cut_off_is_refused_or_fewer_changes(changes: list[Change], data: st.DataObject) -> None:
    encoded = encode_changes(changes)
    length = data.draw(st.integers(0, len(encoded) - 1))
    try:
        result = decode_changes(encoded[:length])
    except DamagedJournal:
        return
    assert result == tuple(changes[: len(result)])
