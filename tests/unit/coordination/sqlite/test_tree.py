"""The SQLite tree's promises beyond the port: it lasts, is upgraded, its journal is bounded, damage is refused."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from oncelog.base.tree import ABSENT
from oncelog.coordination.sqlite import database, journal
from oncelog.coordination.sqlite import tree as sqlite
from oncelog.coordination.sqlite.database import APPLICATION_ID, FORMAT_VERSION
from oncelog.coordination.sqlite.tree import SqliteTree, TreeUnusable
from oncelog.ports import Change, CommittedChange, Create, Set, TreeNode, TreeUnavailable


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


FORMAT_1 = (
    "CREATE TABLE node (path TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, session INTEGER)"
    " WITHOUT ROWID",
    f"PRAGMA application_id={APPLICATION_ID}",
    "PRAGMA user_version=1",
    "INSERT INTO node VALUES ('/a', x'31', 7, NULL), ('/alive', x'', 0, 3)",
)


def format_1(path: Path) -> sqlite3.Connection:
    """A file as the versions before clusters have it, open and used by one process alone."""
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", *FORMAT_1):
        database.execute(statement)
    return database


def test_a_file_of_format_1_is_upgraded_and_keeps_its_nodes(path: Path) -> None:
    format_1(path).close()
    tree = SqliteTree(path)
    session = tree.session()
    assert session.snapshot() == (0, [TreeNode("/a", b"1", 7)]), "no session of then is alive"
    assert session.commit([Set("/a", b"2", 7)]) == 1
    tree.close()
    again = SqliteTree(path)
    assert again.session().snapshot() == (1, [TreeNode("/a", b"2", 8)])
    again.close()


def test_a_file_that_an_earlier_version_has_open_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.0)
    earlier = format_1(path)
    with pytest.raises(TreeUnusable, match=r"tree\.db: another process uses it alone"):
        SqliteTree(path)
    earlier.close()


def test_a_file_on_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "network_file_system", lambda directory: "nfs4")
    with pytest.raises(TreeUnusable, match="on a network file system \\(nfs4\\); use a local disk or ZooKeeper"):
        SqliteTree(path)
    assert not path.exists()


def test_a_process_that_writes_for_too_long_makes_the_tree_unavailable_and_not_unreadable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.0)
    tree = SqliteTree(path)
    session = tree.session()
    session.commit([Create("/a", b"")])
    writing = sqlite3.connect(path, isolation_level=None)
    writing.execute("BEGIN IMMEDIATE")
    with pytest.raises(TreeUnavailable):
        session.commit([Create("/b", b"")])
    assert session.children("/") == ["a"]
    with pytest.raises(TreeUnavailable):
        session.renew()
    writing.execute("ROLLBACK")
    session.renew()
    assert session.commit([Create("/b", b"")]) == 2
    writing.close()
    tree.close()


def test_the_journal_is_trimmed_and_a_follower_that_is_behind_sees_a_gap(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "KEPT_CHANGES", 10)
    monkeypatch.setattr(journal, "_TRIM_EVERY", 1)
    tree = SqliteTree(path)
    session = tree.session()
    session.commit([Create("/a", b"")])
    for number in range(30):
        session.commit([Set("/a", b"x", number)], str(number))
    seen: list[CommittedChange] = []
    session.follow(0, seen.append)
    assert [change.position for change in seen] == list(range(22, 32))
    assert (session.was_committed("29"), session.was_committed("0")) == (True, False)
    tree.close()


def test_the_journal_keeps_few_large_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT_BYTES", 10_000)
    monkeypatch.setattr(journal, "_LARGE_BYTES", 4_000)
    tree = SqliteTree(path)
    session = tree.session()
    session.commit([Create("/a", b"")])
    for number in range(10):
        session.commit([Set("/a", bytes(4_000), number)])
    seen: list[CommittedChange] = []
    session.follow(0, seen.append)
    assert [change.position for change in seen] == [10, 11]
    session.commit([Set("/a", bytes(40_000), 10)])
    assert session.position() == 12, "the newest stays, however large"
    tree.close()


def test_sessions_leave_no_files_behind(path: Path) -> None:
    tree, other = SqliteTree(path), SqliteTree(path)
    for session in (tree.session(), tree.session(), other.session()):
        session.commit([Create(f"/e{session._session_id}", b"", ephemeral=True)])
    names = sorted(entry.name.partition(".session-")[0] for entry in path.parent.iterdir())
    assert names == ["tree.db"] * 4 + [f"tree.db{end}" for end in ("-shm", "-wal", ".opening", ".waiting", ".writing")]
    tree.close()
    other.close()
    SqliteTree(path).close()
    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == ["tree.db", "tree.db.opening", "tree.db.waiting", "tree.db.writing"]


def test_what_dead_processes_left_is_removed_before_the_tree_is_read(path: Path) -> None:
    dead = SqliteTree(path)
    dead.session().commit([Create("/a", b""), Create("/alive", b"", ephemeral=True)])
    dead.close()  # without the end of its session
    tree = SqliteTree(path)
    session = tree.session()
    assert session.snapshot() == (2, [TreeNode("/a", b"", 0)])
    seen: list[CommittedChange] = []
    session.follow(1, seen.append)
    assert seen == [CommittedChange(2, "", (Change("/alive", None, ABSENT),))]
    tree.close()


def test_the_thread_that_watches_ends_with_the_tree(path: Path) -> None:
    before = set(threading.enumerate())
    tree = SqliteTree(path)
    tree.session()
    assert len(set(threading.enumerate()) - before) == 1
    tree.close()
    assert set(threading.enumerate()) <= before


def test_a_tree_without_others_is_looked_at_seldom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SqliteTree(path)
    tree.session().commit([Create("/a", b"")])
    assert tree._poll() == sqlite._ALONE_S
    other = SqliteTree(path)
    other.session().commit([Create("/b", b"")])
    assert tree._poll() == sqlite._BUSY_S
    monkeypatch.setattr(sqlite, "_STAYS_BUSY_S", 0.0)
    other.session().commit([Create("/c", b"")])
    tree._poll()
    assert tree._poll() == sqlite._QUIET_S
    other.close()
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
