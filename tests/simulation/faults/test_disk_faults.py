"""Trouble on request: a simulated disk ends the machine, or the process, at the worst moment, and damages files."""

from __future__ import annotations

import pytest

from oncelog.sim.virtual.files import MemoryFiles, PowerLost, ProcessKilled


def a_file(files: MemoryFiles, data: bytes = b"durable") -> None:
    file = files.open("a", create=True)
    file.append([data])
    file.sync()
    files.sync_directory("")


def test_the_power_fails_at_a_sync_and_what_it_was_for_is_not_durable() -> None:
    kept = set()
    for seed in range(20):
        files = MemoryFiles()
        a_file(files)
        files.lose_power_at_sync(1)
        file = files.open("a")
        file.append([b"+one"])
        file.sync()
        file.append([b"+two"])
        with pytest.raises(PowerLost):
            file.sync()
        files.crash(seed)
        kept.add(files.content("a").rstrip(b"\0"))
    assert all(content.startswith(b"durable+one") for content in kept)
    assert {b"durable+one", b"durable+one+two"} <= kept


def test_a_process_is_killed_in_the_middle_and_what_it_wrote_stays() -> None:
    files = MemoryFiles()
    a_file(files)
    files.lose_power_after(1, only_process=True)
    file = files.open("a")
    file.append([b"+one"])
    with pytest.raises(ProcessKilled):
        file.append([b"+two"])
    files.process_died()
    assert files.content("a") == b"durable+one"
    file.append([b"+three"])
    assert files.content("a") == b"durable+one+three"


def test_a_flipped_bit_outlives_a_crash() -> None:
    files = MemoryFiles()
    a_file(files, b"\x00\x00")
    files.flip_bit("a", 9)
    files.crash(1)
    assert files.content("a") == b"\x00\x02"


def test_files_are_found_by_their_ending_unless_they_are_empty() -> None:
    files = MemoryFiles()
    a_file(files)
    files.make_directory("topic-0")
    for name in ("topic-0/1.index", "topic-0/1.log", "topic-0/1.snapshot"):
        files.open(name, create=True).append([b"x"])
    files.open("topic-0/2.index", create=True)
    assert files.paths(".index", ".snapshot") == ["topic-0/1.index", "topic-0/1.snapshot"]
