"""Processes that write at the same time get their turns."""

from __future__ import annotations

import fcntl
from pathlib import Path
from threading import Thread

import pytest

from oncelog.base.tree import TreeUnavailable
from oncelog.coordination.sqlite.write_queue import WriteQueue
from tests.waiting import HANG_S, wait_until


def turns(path: Path, wait_s: float = HANG_S) -> WriteQueue:
    return WriteQueue(path / "tree.db", wait_s)


def test_a_process_without_others_has_its_turn_at_once(tmp_path: Path) -> None:
    one = turns(tmp_path, wait_s=0.0)
    for _ in range(3):
        with one.turn():
            pass
        assert one._not_before_s == 0.0
    one.close()


def test_whoever_has_waited_too_long_is_told_so_and_may_ask_again(tmp_path: Path) -> None:
    one, other = turns(tmp_path), turns(tmp_path, wait_s=0.0)
    with one.turn(), pytest.raises(TreeUnavailable, match=r"cannot write .*tree\.db: another process"), other.turn():
        pass
    with other.turn():
        pass
    one.close()
    other.close()


def test_whoever_writes_in_a_row_lets_one_in_that_waits(tmp_path: Path) -> None:
    one, other = turns(tmp_path), turns(tmp_path)
    written = list[str]()

    def write() -> None:
        with other.turn():
            written.append("other")

    waiting = Thread(target=write)
    with one.turn():
        waiting.start()
        wait_until(lambda: not is_free(tmp_path), "somebody who waits")
    assert one._not_before_s > 0.0, "it has seen that somebody waits"
    while "other" not in written:
        with one.turn():
            written.append("one")
    waiting.join()
    assert written.count("other") == 1
    one.close()
    other.close()


def is_free(tmp_path: Path) -> bool:
    """True while nobody waits."""
    with (tmp_path / "tree.db.waiting").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_turn_ends_with_the_process_that_has_it(tmp_path: Path) -> None:
    one, other = turns(tmp_path), turns(tmp_path, wait_s=0.0)
    with pytest.raises(OSError, match="Bad file descriptor"), one.turn():
        one.close()  # as when the process dies
    with other.turn():
        pass
    other.close()
