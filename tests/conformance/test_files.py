"""The contract of every ``Files`` adapter: run against the disk and against memory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import pytest

from oncelog.listening import descriptors
from oncelog.ports import Files
from oncelog.runtime.data.disk_files import DirectoryInUse, DiskFiles
from oncelog.sim.virtual.files import MemoryFiles


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "memory":
        yield MemoryFiles()
        return
    disk = DiskFiles(tmp_path / "data", max_open_files=3)
    yield disk
    disk.close()


def write(files: Files, path: str, data: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.append((data,))


def read(files: Files, path: str) -> bytes:
    file = files.open(path)
    return file.read(0, file.size())


def test_appends_go_to_the_end_and_say_where(files: Files) -> None:
    file = files.open("a", create=True)
    assert file.append((b"one", memoryview(b"two"))) == 0
    assert file.append((bytearray(b"three"),)) == 6
    assert file.append(()) == 11
    assert file.append((b"", b"!")) == 11
    assert file.size() == 12
    assert file.read(0, 100) == b"onetwothree!"
    assert file.read(3, 3) == b"two"
    assert file.read(12, 5) == b""


def test_many_chunks_in_one_append(files: Files) -> None:
    file = files.open("a", create=True)
    file.append([bytes([index % 256]) * 3 for index in range(3000)])
    assert file.size() == 9000
    assert file.read(8997, 3) == bytes([2999 % 256]) * 3


def test_cached_read_gives_the_same_or_nothing(files: Files) -> None:
    file = files.open("a", create=True)
    file.append((b"x" * 100_000,))
    assert file.read_cached(10, 50) in (None, b"x" * 50)
    assert file.read_cached(99_990, 50) in (None, b"x" * 10)
    assert not file.read_cached(200_000, 50)


def test_truncate_cuts_and_appends_go_on_there(files: Files) -> None:
    file = files.open("a", create=True)
    file.append((b"0123456789",))
    file.truncate(4)
    file.append((b"xy",))
    assert read(files, "a") == b"0123xy"


def test_opening_what_is_not_there(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("a")
    with pytest.raises(FileNotFoundError):
        files.open("nowhere/a", create=True)
    with pytest.raises(FileNotFoundError):
        files.list("nowhere")
    assert files.size("a") is None


def test_opened_twice_is_one_file(files: Files) -> None:
    one, two = files.open("a", create=True), files.open("a", create=True)
    one.append((b"x",))
    two.append((b"y",))
    assert one.size() == two.size() == 2


def test_lists_names_of_one_directory(files: Files) -> None:
    files.make_directory("d/e")
    files.make_directory("d")
    write(files, "d/b", b"")
    write(files, "d/a", b"")
    write(files, "d/e/c", b"")
    assert files.list("") == ["d"]
    assert files.list("d") == ["a", "b", "e"]
    with pytest.raises(NotADirectoryError):
        files.list("d/a")


def test_rename_replaces_and_is_followed(files: Files) -> None:
    write(files, "old", b"new content")
    write(files, "target", b"old content")
    replaced, moved = files.open("target"), files.open("old")
    files.rename("old", "target")
    assert read(files, "target") == b"new content"
    assert files.size("old") is None
    moved.append((b"!",))
    assert moved.read(0, 100) == read(files, "target") == b"new content!"
    assert replaced.read(0, 100) == b"old content"


def test_renaming_a_directory_takes_open_files_along(files: Files) -> None:
    files.make_directory("d")
    file = files.open("d/a", create=True)
    file.append((b"x",))
    file.close()
    files.rename("d", "e")
    assert file.read(0, 10) == b"x"
    assert files.list("e") == ["a"]
    assert files.list("") == ["e"]
    files.make_directory("d")
    assert files.open("d/a", create=True).size() == 0


def test_a_removed_file_stays_readable_for_who_has_it(files: Files) -> None:
    files.make_directory("d")
    held = [files.open(f"d/{name}", create=True) for name in "abcdef"]
    for file in held:
        file.append((b"x",))
        file.close()
    files.remove("d/a")
    assert files.list("d") == list("bcdef")
    files.remove("d")
    files.remove("d")
    assert [file.read(0, 5) for file in held] == [b"x"] * 6
    assert files.size("d/a") is None
    assert files.list("") == []


def test_more_files_than_descriptors(files: Files) -> None:
    held = [files.open(f"f{number}", create=True) for number in range(20)]
    for number, file in enumerate(held):
        file.append((b"%d" % number,))
    assert [file.read(0, 5) for file in held] == [b"%d" % number for number in range(20)]


def test_sync_and_times(files: Files) -> None:
    files.make_directory("d")
    file = files.open("d/a", create=True)
    file.append((b"x",))
    file.sync()
    files.sync_directory("d")
    files.sync_directory("")
    assert files.modified_ms("d/a") >= 0


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    first, second = DiskFiles(tmp_path), DiskFiles(tmp_path)
    first.lock()
    with pytest.raises(DirectoryInUse):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_without_the_nowait_flag_only_the_end_of_a_file_is_hot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.runtime.data.disk_files._HOT_TAIL", 10)
    disk = DiskFiles(tmp_path)
    disk.nowait = False
    file = disk.open("a", create=True)
    file.append((b"0123456789" * 3,))
    assert file.read_cached(0, 5) is None
    assert file.read_cached(25, 5) == b"56789"
    disk.close()


def test_a_failed_append_leaves_the_file_as_it_was() -> None:
    files = MemoryFiles(capacity=10)
    file = files.open("a", create=True)
    file.append((b"12345678",))
    with pytest.raises(OSError, match="no space") as raised:
        file.append((b"12345678",))
    assert raised.value.errno == errno.ENOSPC
    assert file.size() == 8
    assert (files.errors.full, files.errors.failure) == (raised.value, None)


@pytest.mark.parametrize("name", ["EIO", "ENOSPC", "EAGAIN"])
@pytest.mark.parametrize("call", ["pwrite", "pread", "fdatasync", "open", "fsync", "rename"])
def test_errors_that_concern_the_whole_disk_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    number = getattr(errno, name)

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    disk = DiskFiles(tmp_path)
    file = disk.open("a", create=True)
    file.append((b"1",))
    touch = {
        "pwrite": lambda: file.append((b"2",)),
        "pread": lambda: file.read(0, 1),
        "fdatasync": file.sync,
        "open": lambda: disk.open("b", create=True),
        "fsync": lambda: disk.sync_directory(""),
        "rename": lambda: disk.rename("a", "c"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        with pytest.raises(OSError, match=re.escape(os.strerror(number))):
            touch[call]()
    result = (disk.errors.failure is not None, disk.errors.full is not None)
    assert result == {"EIO": (True, False), "ENOSPC": (False, True)}.get(name, (False, False))
    disk.close()


def test_a_crash_keeps_what_was_synced_and_loses_some_of_the_rest() -> None:
    outcomes = set()
    for seed in range(40):
        files = MemoryFiles()
        file = files.open("a", create=True)
        file.append((b"synced",))
        file.sync()
        files.sync_directory("")
        file.append((b"not",))
        files.open("b", create=True)
        files.crash(seed)
        content = files.content("a")
        assert content[:6] == b"synced"
        outcomes.add((content[6:], files.size("b")))
        with pytest.raises(OSError, match="crashed"):
            file.size()
    assert (b"not", 0) in outcomes
    assert (b"", None) in outcomes
    assert any(content.endswith(b"\0") for content, _ in outcomes)


def test_a_crash_is_the_same_for_the_same_seed() -> None:
    def run(seed: int) -> tuple[bytes, list[str]]:
        files = MemoryFiles()
        files.open("x", create=True).append((b"abcdef",))
        files.sync_directory("")
        for name in "abc":
            files.open(name, create=True)
        files.crash(seed)
        return files.content("x"), files.list("")

    assert [run(seed) for seed in range(10)] == [run(seed) for seed in range(10)]


def test_where_no_descriptor_is_left_those_of_other_files_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskFiles(tmp_path)
    files = [disk.open(str(number), create=True) for number in range(8)]
    most, real = 5, os.open

    def limited(path: str, flags: int, mode: int = 0o777) -> int:
        if open_of(tmp_path) >= most:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, flags, mode)

    for file in files[most:]:
        file.close()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", limited)
        for file in files:
            file.append((b"x",))
        disk.open("new", create=True).append((b"y",))
        disk.sync_directory("")
        assert open_of(tmp_path) <= most
        most = 0
        disk.open("new").close()
        for file in files:
            file.close()
        with pytest.raises(OSError, match="Too many open files"):
            files[0].sync()
        assert disk.errors.unopened is not None
    assert [file.read(0, 2) for file in files] == [b"x"] * 8
    disk.close()


def open_of(directory: Path) -> int:
    """Descriptors of this process for files below a directory."""
    result = 0
    for entry in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):
            result += os.readlink(entry).startswith(f"{directory}/")
    return result


def test_a_removal_goes_on_where_no_descriptor_is_left_to_keep_files_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    disk = DiskFiles(tmp_path)
    disk.make_directory("d")
    files = [disk.open(f"d/{number}", create=True) for number in range(3)]
    for file in files:
        file.close()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", none_left)
        disk.remove("d/0")
    disk.remove("d/1")
    assert disk.list("d") == ["2"]
    with pytest.raises(FileNotFoundError):
        files[0].sync()
    assert files[1].read(0, 1) == b""
    disk.close()


def test_directories_of_a_process_share_descriptors_and_close_them_for_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 256)
    monkeypatch.setattr(descriptors, "_CACHES", WeakSet())
    monkeypatch.setattr(descriptors, "_is_our_process", False)
    disks = [DiskFiles(tmp_path / name) for name in "abc"]
    held = [disk.open(f"f{number}", create=True) for disk in disks for number in range(64)]
    assert sum(disk.open_count() for disk in disks) <= 64
    while descriptors.give_way():
        pass
    assert [disk.open_count() for disk in disks] == [0, 0, 0]
    for file in held[::8]:
        file.append((b"x",))
        assert file.read(0, 5) == b"x"
    for disk in disks:
        disk.close()
