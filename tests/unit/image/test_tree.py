"""Archives of layers: the same bytes for the same files, and the files of packages."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from codegen.image.__main__ import clear
from codegen.image.tree import Entry, Tree, archive, file, link, read_archive, read_directory, without, write_directory

TREE: Tree = {
    "usr/bin/tool": file("#!/bin/true\n", executable=True),
    "etc/name": file("ä\n"),
    "bin": link("usr/bin"),
    "var/data": Entry(0o700, owner=10001),
}


def headers(data: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getmembers()


def test_equal_trees_give_equal_archives_in_any_order() -> None:
    backwards = dict(reversed(TREE.items()))
    assert list(backwards) != list(TREE)
    assert archive(TREE, 7) == archive(backwards, 7)
    assert archive(TREE, 7) != archive(TREE, 8)


def test_an_archive_is_sorted_and_says_nothing_about_its_maker() -> None:
    members = headers(archive(TREE, 7))
    assert [header.name for header in members] == sorted([*TREE, "etc", "usr", "usr/bin", "var"])
    assert {header.mtime for header in members} == {7}
    assert {header.uname + header.gname for header in members} == {""}
    assert {header.name: (header.uid, header.gid) for header in members if header.uid} == {"var/data": (10001, 10001)}
    modes = {header.name: header.mode for header in members}
    assert (modes["usr"], modes["usr/bin/tool"], modes["etc/name"], modes["var/data"]) == (0o755, 0o755, 0o644, 0o700)


def test_files_survive_an_archive_and_a_directory_whatever_their_names(tmp_path: Path) -> None:
    files = {f"{'d' * 120}/{number}/é": file(bytes([number]), executable=number % 2 == 0) for number in range(3)}
    assert read_archive(archive(files)) == files
    write_directory(files, tmp_path)
    assert read_directory(tmp_path) == files


def test_a_package_may_have_hard_links_and_no_devices() -> None:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        header = tarfile.TarInfo("./a")
        header.size = 1
        tar.addfile(header, io.BytesIO(b"x"))
        again = tarfile.TarInfo("./b")
        again.type, again.linkname = tarfile.LNKTYPE, "./a"
        tar.addfile(again)
    assert read_archive(output.getvalue()) == {"a": file("x"), "b": file("x")}
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        device = tarfile.TarInfo("./null")
        device.type = tarfile.CHRTYPE
        tar.addfile(device)
    with pytest.raises(ValueError, match="null is neither"):
        read_archive(output.getvalue())


def test_a_pattern_leaves_out_files_and_what_is_below_directories() -> None:
    tree = {path: file("") for path in ("a/test", "a/test/x/y", "a/tests", "b/c/test.py", "b/test/k")}
    assert list(without(tree, ["*/test", "b/*/test.p?"])) == ["a/tests", "b/c/test.py"]
    assert list(without(tree, ["b/c/*.py"])) == ["a/test", "a/test/x/y", "a/tests", "b/test/k"]


def test_only_an_earlier_image_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "image"
    clear(target)
    (target / "notes").write_text("mine", "utf-8")
    with pytest.raises(SystemExit, match="holds other files; name a new or an empty one"):
        clear(target)
    (target / "oci").mkdir()
    (target / "oci" / "oci-layout").touch()
    (target / "oncelog-0.1.0-amd64.tar").touch()
    with pytest.raises(SystemExit, match="holds other files"):
        clear(target)
    (target / "notes").unlink()  # it is still there
    clear(target)
    assert list(target.iterdir()) == []
