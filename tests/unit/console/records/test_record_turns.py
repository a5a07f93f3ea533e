"""Turns at reading records: one after another, and nobody waits for ever."""

from __future__ import annotations

import pytest

from oncelog.console.records import record_turns
from oncelog.console.records.record_turns import turn


def test_who_does_not_get_the_turn_in_time_goes_on_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that hangs while one page has the turn holds up the others a little, and no longer."""
    monkeypatch.setattr(record_turns, "PATIENCE_S", 0.01)
    went_on = []
    with turn():
        with turn():
            went_on.append(record_turns._TURN.locked())
        assert record_turns._TURN.locked(), "it was not its own to give back"
    assert went_on == [True]
    assert not record_turns._TURN.locked()
    with pytest.raises(ValueError, match="x"), turn():
        raise ValueError("x")
    assert not record_turns._TURN.locked()
