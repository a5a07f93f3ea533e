"""The kind of file system by the table of mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncelog.coordination.sqlite.database import network_file_system


def table(tmp_path: Path, kind: str) -> Path:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 0:0 / /proc rw,nosuid shared:5 - proc proc rw\n"
        f"36 35 {os.major(device)}:{os.minor(device)} / /data rw,noatime shared:1 master:2 - {kind} server:/x rw\n"
    )
    return mounts


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "lustre"])
def test_a_network_file_system_is_named(tmp_path: Path, kind: str) -> None:
    assert network_file_system(tmp_path, table(tmp_path, kind)) == kind


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "apfs"])
def test_a_local_one_is_not(tmp_path: Path, kind: str) -> None:
    assert network_file_system(tmp_path, table(tmp_path, kind)) is None


def test_nothing_is_known_without_a_table(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, tmp_path / "absent") is None
    assert network_file_system(tmp_path / "absent", table(tmp_path, "nfs")) is None


def test_the_table_of_this_machine_can_be_read(tmp_path: Path) -> None:
    assert network_file_system(tmp_path) is None
