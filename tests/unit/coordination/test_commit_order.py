"""The last changes of a tree: who begins to follow behind them is told of them, as far as memory goes."""

from __future__ import annotations

import pytest

from oncelog.base.tree import Change, CommittedChange
from oncelog.coordination import commit_order as changes
from oncelog.coordination.commit_order import ChangeStream


def test_the_last_changes_are_bounded_in_bytes_and_their_tokens_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEPT_BYTES", 10_000)
    stream = ChangeStream()
    for number in range(20):
        stream.append(f"token {number}", [Change("/topic", bytes(2000), number)])
    told: list[CommittedChange] = []
    stream.follow(1, 0, told.append)
    assert [change.position for change in told] == [17, 18, 19, 20], "a gap shows in the first position"
    assert stream.has("token 0")


def test_the_last_change_is_kept_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEPT_BYTES", 10_000)
    stream = ChangeStream()
    for number in range(2):
        stream.append("", [Change("/topic", bytes(20_000), number)])
    told: list[CommittedChange] = []
    stream.follow(1, 0, told.append)
    assert [change.position for change in told] == [2]
