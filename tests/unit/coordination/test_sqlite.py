"""What the SQLite tree promises beyond the port: it lasts, belongs to one process, and refuses damaged files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from oncelog.coordination.sqlite import FORMAT_VERSION, SqliteTree, TreeUnusable
from oncelog.ports import Create, Set, TreeNode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tree.db"


def filled(path: Path, count: int = 200) -> None:
    tree = SqliteTree(path)
    tree.session().commit([Create(f"/n{i}", b"x" * 100) for i in range(count)])
    tree.close()


def test_what_is_committed_lasts(path: Path) -> None:
    tree = SqliteTree(path)
    tree.session().commit([Create("/a", b"1"), Set("/a", b"2", 0)])
    tree.close()
    again = SqliteTree(path)
    assert again.session().subtree("/") == [TreeNode("/a", b"2", 1)]
    again.close()


def test_what_is_committed_lasts_when_the_process_dies(path: Path, tmp_path: Path) -> None:
    tree = SqliteTree(path)
    tree.session().commit([Create("/a", b"1"), Create("/alive", b"", ephemeral=True)])
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        source = Path(f"{path}{suffix}")
        Path(f"{copy}{suffix}").write_bytes(source.read_bytes())
    tree.close()
    survivor = SqliteTree(copy)
    assert survivor.session().subtree("/") == [TreeNode("/a", b"1", 0)], "no session outlives its process"
    survivor.close()


def test_a_second_user_is_refused(path: Path) -> None:
    tree = SqliteTree(path)
    with pytest.raises(TreeUnusable, match="another process uses it"):
        SqliteTree(path)
    tree.close()


@pytest.mark.parametrize("damage", ["garbage", "header", "middle", "cut"])
def test_a_damaged_file_is_refused_and_left_as_it_is(path: Path, damage: str) -> None:
    filled(path)
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content = bytearray(b"not a database" * 1000)
    elif damage == "header":
        content[0:16] = bytes(16)
    elif damage == "middle":
        content[4096:8192] = b"\xff" * 4096
    else:
        content = content[: len(content) // 2]
    path.write_bytes(content)
    with pytest.raises(TreeUnusable, match=str(path)):
        SqliteTree(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(TreeUnusable, match="another program"):
        SqliteTree(path)


def test_a_newer_format_is_refused(path: Path) -> None:
    SqliteTree(path).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version={FORMAT_VERSION + 1}")
    newer.close()
    with pytest.raises(TreeUnusable, match=f"format {FORMAT_VERSION + 1}"):
        SqliteTree(path)


def test_a_directory_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TreeUnusable, match="cannot open"):
        SqliteTree(tmp_path / "absent" / "tree.db")
