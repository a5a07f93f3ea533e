"""The position read at once: of any process's last commit, and None where it cannot be had without waiting."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncelog.coordination.sqlite.newest_position import NewestPosition
from oncelog.coordination.sqlite.tree import SqliteTree
from oncelog.ports import Create


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.db"


def test_it_follows_the_commits_of_two_trees(path: Path) -> None:
    with closing(SqliteTree(path)) as one, closing(SqliteTree(path)) as other:
        sessions = one.session(), other.session()
        with closing(NewestPosition(path)) as newest:
            assert newest.read() == 0
            for number in range(4):
                assert newest.read() == number
                sessions[number % 2].commit([Create(f"/{number}", b"")])
                assert newest.read() == number + 1 == sessions[0].position()


def test_a_writer_that_stands_still_in_a_commit_does_not_hold_it_up(path: Path) -> None:
    with closing(SqliteTree(path)) as tree, closing(sqlite3.connect(path, isolation_level=None)) as writer:
        tree.session().commit([Create("/a", b"")])
        writer.execute("BEGIN IMMEDIATE")
        assert tree.session().position_at_once() == 1
        writer.execute("ROLLBACK")


def test_a_file_that_another_uses_alone_is_not_waited_for(path: Path) -> None:
    with closing(SqliteTree(path)) as tree:
        tree.session().commit([Create("/a", b"")])
    with closing(NewestPosition(path)) as newest, closing(sqlite3.connect(path, isolation_level=None)) as alone:
        alone.execute("PRAGMA locking_mode=EXCLUSIVE")
        alone.execute("BEGIN EXCLUSIVE")
        assert newest.read() is None


def test_a_closed_tree_has_none(path: Path) -> None:
    tree = SqliteTree(path)
    session = tree.session()
    assert session.position_at_once() == 0
    tree.close()
    assert session.position_at_once() is None


def test_a_tree_that_is_closed_before_it_is_asked_opens_nothing(path: Path) -> None:
    tree = SqliteTree(path)
    session = tree.session()
    tree.close()
    path.rename(path.with_name("moved.db"))
    assert session.position_at_once() is None
    assert not path.exists()


def test_a_file_that_was_moved_away_is_not_made_anew(path: Path) -> None:
    with closing(SqliteTree(path)) as tree:
        tree.session().commit([Create("/a", b"")])
    path.rename(path.with_name("moved.db"))
    with closing(NewestPosition(path)) as newest:
        assert newest.read() is None
    assert not path.exists()
