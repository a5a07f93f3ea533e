"""How others see by a session's lock file that it has ended, and that it has not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.coordination.sqlite.sessions import OtherSessions, OwnSession, lock_path

ID, TIMEOUT_MS = 7, 18_000


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnSession]:
    session = OwnSession(ID, lock_path(tmp_path / "tree.db", ID))
    session.lock()
    yield session
    session.release()


@pytest.fixture
def others(tmp_path: Path, own: OwnSession) -> Iterator[OtherSessions]:
    """The sessions that another process watches: this one."""
    others = OtherSessions(tmp_path / "tree.db")
    others.watch([(ID, TIMEOUT_MS)], now_s=0.0)
    yield others
    others.close()


def look(others: OtherSessions, first_s: int, last_s: int) -> list[int]:
    """Look once a second; the seconds at which the session had ended."""
    return [now_s for now_s in range(first_s, last_s + 1) if others.ended(float(now_s))]


def test_a_session_that_is_stamped_lives(own: OwnSession, others: OtherSessions) -> None:
    for now_s in range(0, 200, 3):
        os.utime(own.path, ns=(now_s, now_s))
        assert look(others, now_s, now_s + 2) == []


def test_a_session_that_is_not_stamped_for_its_time_out_has_ended(others: OtherSessions) -> None:
    assert look(others, 0, 20) == [19, 20]


def test_a_stamp_may_be_of_any_time(own: OwnSession, others: OtherSessions) -> None:
    """The wall clock may be set back while a process lives."""
    for now_s, stamp_ns in ((0, 5_000), (15, 3_000), (30, 4_000)):
        os.utime(own.path, ns=(stamp_ns, stamp_ns))
        assert look(others, now_s, now_s + 14) == []


def test_whoever_stood_still_himself_measures_anew(others: OtherSessions) -> None:
    assert look(others, 0, 5) == []
    assert look(others, 100, 118) == []
    assert look(others, 119, 119) == [119]


def test_a_session_whose_lock_is_free_has_ended_at_once(own: OwnSession, others: OtherSessions) -> None:
    assert others.ended(0.0) == []
    own.release()
    assert others.ended(0.001) == [ID]
    assert others.ended(0.002) == [ID], "until it is forgotten"
    others.forget(ID)
    assert others.ended(0.003) == []


def test_a_session_without_a_lock_file_has_ended(tmp_path: Path) -> None:
    others = OtherSessions(tmp_path / "tree.db")
    others.watch([(ID, TIMEOUT_MS)], now_s=0.0)
    assert others.ended(0.0) == [ID]
    others.forget(ID)


def test_a_session_that_is_not_watched_any_more_is_not_reported(others: OtherSessions) -> None:
    others.watch([], now_s=1.0)
    assert not others
    assert look(others, 2, 30) == []
