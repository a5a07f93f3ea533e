"""Bytes that are no changes are refused."""

from __future__ import annotations

import pytest

from oncelog.coordination.change_codec import DamagedJournal, decode_changes


@pytest.mark.parametrize(
    "data", [b"\0", b"\xff\xff\xff\xff", b"\0\0\0\1a\0\0\0\0\xff\xff\xff\xfe", b"\0\0\0\1\xff" + bytes(8)]
)
def test_bytes_that_are_no_changes_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedJournal):
        decode_changes(data)
